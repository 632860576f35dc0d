#include "store/transfer/retry_policy.h"

#include <cmath>

namespace headrace::transfer {

Microseconds RetryBudget::take(TimePoint now) noexcept {
  if (now > filled_at_) {
    const double elapsed_s = std::chrono::duration<double>(now - filled_at_).count();
    level_ = std::min(options_.capacity, level_ + elapsed_s * options_.per_second);
    filled_at_ = now;
  }
  level_ -= 1;
  if (level_ >= 0) return Microseconds(0);
  return Microseconds(static_cast<std::int64_t>(std::ceil(-level_ / options_.per_second * 1e6)));
}

RetryDecision decide_retry(const RetryOptions& options, const AttemptFailure& failure,
                           TimePoint now, TimePoint deadline, RetryBudget& budget, Random& random) {
  if (!is_retryable(failure.code) || !failure.may_repeat ||
      failure.attempts >= options.max_attempts)
    return {};
  const std::uint32_t doublings = std::min<std::uint32_t>(failure.attempts - 1, 20);
  auto bound = std::min<Microseconds>(options.cap,
                                      Microseconds(options.base) * (std::int64_t{1} << doublings));
  if (failure.is_rare && failure.attempts == 1)
    bound = std::min<Microseconds>(bound, options.quick);
  Microseconds delay(static_cast<std::int64_t>(random.unit() * static_cast<double>(bound.count())));
  // The server knows better when it wants us back; the jitter on top keeps clients from coming back
  // together.
  if (failure.retry_after) delay += *failure.retry_after;
  if (deadline - now <= delay) return {RetryVerdict::kDeadline, {}};
  delay = std::max(delay, budget.take(now));
  if (deadline - now <= delay) {
    budget.give_back();
    return {RetryVerdict::kDeadline, {}};
  }
  return {RetryVerdict::kRetry, now + delay};
}

}  // namespace headrace::transfer
