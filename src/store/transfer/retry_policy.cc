#include "store/transfer/retry_policy.h"

#include <cmath>

namespace headrace::transfer {

void RetryBudget::rate_successes(TimePoint now) noexcept {
  constexpr double kShortest_s = 0.05;
  constexpr double kMemory_s = 0.5;
  const double elapsed_s = std::chrono::duration<double>(now - rated_at_).count();
  if (elapsed_s < kShortest_s) return;
  const double rate = static_cast<double>(successes_) / elapsed_s;
  success_rate_ += std::min(1.0, elapsed_s / kMemory_s) * (rate - success_rate_);
  successes_ = 0;
  rated_at_ = now;
}

Microseconds RetryBudget::take(TimePoint now) noexcept {
  rate_successes(now);
  if (now > filled_at_) {
    const double elapsed_s = std::chrono::duration<double>(now - filled_at_).count();
    level_ = std::min(options_.capacity, level_ + elapsed_s * options_.per_second);
    filled_at_ = now;
  }
  level_ -= 1;
  if (level_ >= 0) return Microseconds(0);
  const double per_second = options_.per_second + options_.per_success * success_rate_;
  return Microseconds(static_cast<std::int64_t>(std::ceil(-level_ / per_second * 1e6)));
}

RetryDecision decide_retry(const RetryOptions& options, const AttemptFailure& failure,
                           TimePoint now, TimePoint deadline, RetryBudget& budget, Random& random) {
  if (!is_retryable(failure.code) || !failure.may_repeat ||
      failure.attempts >= options.max_attempts)
    return {};
  const std::uint32_t doublings = std::min<std::uint32_t>(failure.attempts - 1, 20);
  auto bound = std::min<Microseconds>(options.cap,
                                      Microseconds(options.base) * (std::int64_t{1} << doublings));
  if (failure.is_rare) {
    const std::uint32_t quadruplings = std::min<std::uint32_t>(failure.attempts - 1, 10);
    bound = std::min<Microseconds>(
        bound, Microseconds(options.quick) * (std::int64_t{1} << (2 * quadruplings)));
  }
  Microseconds delay(static_cast<std::int64_t>(random.unit() * static_cast<double>(bound.count())));
  // The server knows better when it wants us back; the jitter on top keeps clients from coming back
  // together. It does not know our deadline: one more try before it may find the store well again.
  if (failure.retry_after) {
    const auto left = std::chrono::duration_cast<Microseconds>(deadline - now);
    delay += *failure.retry_after;
    if (delay >= left && left >= options.least_wait)
      delay = left / 2 + Microseconds(static_cast<std::int64_t>(
                             random.unit() * static_cast<double>(left.count() / 4)));
  }
  if (deadline - now <= delay) return {RetryVerdict::kDeadline, {}};
  const Microseconds turn = std::max(delay, budget.take(now));
  if (deadline - now > turn) return {RetryVerdict::kRetry, now + turn};
  budget.give_back();
  if (failure.code != Code::kThrottled) return {RetryVerdict::kDeadline, {}};
  // A store that throttles serves others meanwhile, and each success pays for retries: our turn may
  // come long before time alone would bring it. Somewhere in the first half of what is left, so
  // that there is time for more.
  const auto spread = (deadline - now - delay) * (random.unit() / 2);
  return {RetryVerdict::kRetry, now + delay + std::chrono::duration_cast<Microseconds>(spread)};
}

}  // namespace headrace::transfer
