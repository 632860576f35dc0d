#pragma once
/// \file
/// When to try again, and how often: pure, with time and randomness as arguments.
///
/// Full-jitter exponential back-off (delay uniform in [0, base * 2^k)), the scheme with the least
/// work under contention in Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog 2015.
/// On top a budget per endpoint: in an outage each request would bring max_attempts times its load;
/// the budget keeps retries at a fraction of the successes plus a trickle.
///
/// Threads: values; RetryBudget by its owner only.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/random.h"
#include "headrace/clock.h"
#include "headrace/status.h"

namespace headrace::transfer {

struct RetryOptions {
  std::chrono::milliseconds base{100};  ///< Bound of the first delay; doubles with each attempt.
  /// Bound of the first delay instead, when failures are rare: then the next attempt most likely
  /// succeeds, and a wait would only make a tail. Quadruples with each attempt, up to what `base`
  /// gives: of 100,000 requests of which 2 % fail, 40 fail twice in a row.
  std::chrono::milliseconds quick{10};
  std::chrono::milliseconds cap{10'000};  ///< Largest bound.
  /// With less than this left a store that asks for more time is not asked again.
  std::chrono::milliseconds least_wait{100};
  std::uint32_t max_attempts = 10;  ///< >= 1
};

/// What goes wrong on the way strikes once: an answer that makes no sense is asked for again so
/// often, and the next one like it is the store's own.
constexpr std::uint32_t kDoubtfulRepeats = 2;

/// A name that nobody knows is most often a mistake, which is told within about two seconds, and
/// seldom a network that is not up yet.
constexpr std::uint32_t kUnknownHostAttempts = 6;

/// Token bucket of retries. When it is empty, retries are not refused but spread out in time: a
/// training job outlives a minute of outage, and the store sees about `per_second` retries
/// meanwhile. While others succeed turns come as much sooner as their successes pay. Only what was
/// throttled is repeated although its turn would come too late.
class RetryBudget {
 public:
  struct Options {
    double capacity = 100;     ///< Retries at once after a quiet time.
    double per_second = 20;    ///< Refill by time.
    double per_success = 0.1;  ///< Refill by success: retries may add 10 % to a healthy load.
  };
  RetryBudget(const Options& options, TimePoint now) noexcept
      : options_(options), level_(options.capacity), filled_at_(now), rated_at_(now) {}

  void on_success() noexcept {
    ++successes_;
    level_ = std::min(options_.capacity, level_ + options_.per_success);
  }

  /// Takes one retry and returns how long it has to wait for its turn (zero while there are
  /// tokens).
  Microseconds take(TimePoint now) noexcept;
  /// Returns a retry that will not be made. Without this an outage would leave a debt that makes
  /// the first failure of every later request final.
  void give_back() noexcept { level_ += 1; }

 private:
  void rate_successes(TimePoint now) noexcept;

  Options options_;
  double level_;  // below zero: retries that wait already
  TimePoint filled_at_;
  std::uint64_t successes_ = 0;  // since rated_at_
  TimePoint rated_at_;
  double success_rate_ = 0;  // a second; forgets within half a second
};

/// What happened to an attempt, as far as retrying goes.
struct AttemptFailure {
  Code code = Code::kUnavailable;
  std::uint32_t attempts = 1;  ///< That have failed so far, this one included.
  bool may_repeat = true;      ///< Idempotent, or nothing was sent.
  bool is_rare = false;        ///< Few attempts at this endpoint fail now.
  std::optional<std::chrono::milliseconds> retry_after;  ///< What the server asked for.
};

enum class RetryVerdict : std::uint8_t {
  kRetry,
  kFinal,     ///< Not worth it, or attempts used up: report this failure.
  kDeadline,  ///< The wait would pass the deadline: report kDeadline with this failure as the
              ///< cause.
};

struct RetryDecision {
  RetryVerdict verdict = RetryVerdict::kFinal;
  TimePoint at{};  ///< kRetry: start the next attempt then.
};

RetryDecision decide_retry(const RetryOptions& options, const AttemptFailure& failure,
                           TimePoint now, TimePoint deadline, RetryBudget& budget, Random& random);

}  // namespace headrace::transfer
