// Invariants:
// - base_limit_ is the best limit known; limit_ is what is being measured, base or a trial. Only
//   begin_epoch() sets limit_, so an epoch never mixes two limits, and what ran out from the limit
//   before is not counted (counts_from).
// - A trial moves base_limit_ only by a measurement of its own against base_, which was measured
//   just before, under the same weather. What nobody used proves nothing: without demand there are
//   no epochs (used_s), and a trial that is not used is given up.
// - The limit stays within floor and ceiling, whatever is measured. A round without a gain ends at
//   base_limit_.
// - Growth and refusals are two laws. While hold_until_ is not over nothing grows; refusals that
//   come whatever the limit (background_share_) must not make it fall, which is why each back-off
//   is judged by what came after it (backed_off_share_ > 0 until then).
// - Time and chance come in as arguments: the same samples give the same limits.
#include "store/transfer/concurrency_control.h"

#include <algorithm>
#include <cmath>

namespace headrace::transfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Doubling goes on while goodput grows by a quarter of what proportion would give, as in BBR's
// start-up (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 2016).
constexpr double kStartGain = 1.25;
// Steps of the search, as fractions of the limit: it ends when the smallest brings nothing.
constexpr double kFirstStep = 0.25;
constexpr double kSmallestStep = 0.08;
constexpr double kLargestStep = 1.0;
// More goodput than this, and than the error of the measurement, is better.
constexpr double kLeastGain = 0.01;
// A smaller limit that carries as much is taken while all such steps together cost less than this.
constexpr double kTolerableLoss = 0.015;
// ... but not below this: so few requests in flight cost nobody anything, and fewer of them would
// cost CPU, since events come in smaller batches.
constexpr std::uint32_t kModestLimit = 16;

constexpr double kShortestStartEpoch_s = 0.02;
constexpr double kShortestEpoch_s = 0.1;
constexpr double kLongestEpoch_s = 1.5;
constexpr double kLongestStartEpoch_s = 0.5;
constexpr double kWantedError = 0.007;
constexpr double kRoughStep = 0.5;
constexpr double kWantedRoughError = 0.03;
constexpr double kWantedStartError = 0.06;  // looks for a quarter more

constexpr Microseconds kFirstCruise = seconds(2);
constexpr Microseconds kLongestCruise = seconds(16);
// Goodput below this share of what the limit carried before: the store has changed, search now.
constexpr double kChangedStore = 0.75;

// Throttled attempts, beyond those that come whatever the limit, that make the limit fall. BBRv2
// tolerates 2 % loss; stores throw 503 at 1 to 2 % of requests on a normal day.
constexpr double kThrottleShare = 0.04;
constexpr double kOverloadShare = 0.5;
constexpr std::uint64_t kThrottleAttempts = 100;  // to judge a share by
constexpr std::uint64_t kOverloadAttempts = 8;
// After a back-off: attempts to judge it by, and the rest of the refusals that says it was no use.
constexpr std::uint64_t kAfterAttempts = 300;
constexpr double kNoHelp = 0.5;
// Of the limit. In between by the share of refusals: what a store refuses is what is too much.
constexpr double kLeastBackOff = 0.06;
constexpr double kMostBackOff = 0.5;
constexpr Microseconds kFirstHold = seconds(2);
constexpr Microseconds kLongestHold = seconds(60);

double seconds_between(TimePoint from, TimePoint until) {
  return std::chrono::duration<double>(until - from).count();
}

Microseconds from_seconds(double time_s) {
  return Microseconds(static_cast<std::int64_t>(time_s * 1e6));
}

std::uint32_t scaled(std::uint32_t limit, double factor) {
  return static_cast<std::uint32_t>(std::lround(static_cast<double>(limit) * factor));
}

}  // namespace

ConcurrencyControl::ConcurrencyControl(const Options& options, TimePoint now)
    : options_(options),
      random_(options.seed),
      limit_(std::min(options.initial, options.ceiling)),
      base_limit_(limit_),
      cruise_time_(kFirstCruise),
      last_used_(now),
      throttle_window_(now),
      hold_until_(now),
      hold_time_(kFirstHold),
      allowed_rate_(options.initial_rate),
      rate_window_(now),
      rate_doubles_at_(now + options.doubling) {
  begin_epoch(limit_, now);
}

std::uint32_t ConcurrencyControl::limit() const noexcept {
  double limit = limit_;
  if (allowed_rate_ > 0 && duration_s_ > 0) limit = std::min(limit, allowed_rate_ * duration_s_);
  const auto floor = std::min(options_.floor, options_.ceiling);
  return std::clamp(static_cast<std::uint32_t>(limit), floor, options_.ceiling);
}

void ConcurrencyControl::hold(TimePoint until) noexcept {
  hold_until_ = std::max(hold_until_, until);
}

void ConcurrencyControl::add(const ControlSample& sample, TimePoint now) {
  if (sample.used_s > 0) last_used_ = now;
  if (sample.completions > 0 && sample.bytes > 0) {
    // A weight by time: 0.2 s to forget, whatever the rate of calls.
    const double weight =
        duration_s_ == 0 ? 1.0 : std::min(1.0, sample.busy_s / (0.2 * std::max(1U, limit_)));
    const auto count = static_cast<double>(sample.completions);
    const double byte_duration_s = sample.byte_seconds / static_cast<double>(sample.bytes);
    duration_s_ += weight * (sample.busy_s / count - duration_s_);
    byte_duration_s_ += weight * (byte_duration_s - byte_duration_s_);
  }
  watch_rate(sample, now);
  watch_throttling(sample, now);
  if (now < epoch_.counts_from || sample.used_s <= 0) return give_up_unused_trial(now);
  const auto bytes = static_cast<double>(sample.bytes);
  epoch_.completions += sample.completions;
  epoch_.bytes += bytes;
  epoch_.busy_s += sample.busy_s;
  epoch_.first_byte_s += sample.first_byte_s;
  epoch_.used_s += sample.used_s;
  epoch_.in_flight_s += sample.in_flight_s;
  epoch_.sum_bb += bytes * bytes;
  epoch_.sum_bt += bytes * sample.busy_s;
  epoch_.sum_tt += sample.busy_s * sample.busy_s;
  if (sample.completions > 0) ++epoch_.samples;
  if (is_epoch_over()) on_epoch(now);
}

void ConcurrencyControl::adopt(std::uint32_t limit, TimePoint now) {
  if (limit == 0 || limit == limit_) return;
  base_limit_ = std::clamp(limit, std::min(options_.floor, options_.ceiling), options_.ceiling);
  best_goodput_ = 0;
  enter_search(kFirstStep, now);
}

// --- measuring ---

void ConcurrencyControl::begin_epoch(std::uint32_t new_limit, TimePoint now) {
  const bool is_change = new_limit != limit_;
  limit_ = std::clamp(new_limit, std::min(options_.floor, options_.ceiling), options_.ceiling);
  epoch_ = Epoch{};
  epoch_.started = now;
  // Requests of the old limit run out first. The time of the longest that matter, and the new limit
  // may make them slower.
  epoch_.counts_from = is_change ? now + from_seconds(1.1 * byte_duration_s_) : now;
}

bool ConcurrencyControl::is_epoch_over() const {
  const bool is_start = phase_ == Phase::kStart;
  // Large steps make large differences, which show through more noise.
  const bool is_rough = is_start || step_ >= kRoughStep;
  const double shortest_s = is_rough ? std::max(kShortestStartEpoch_s, 1.5 * byte_duration_s_)
                                     : std::max(kShortestEpoch_s, 2 * byte_duration_s_);
  const std::uint64_t least_count = is_rough ? std::max(24U, limit_) : std::max(64U, 2 * limit_);
  if (epoch_.used_s < shortest_s || epoch_.completions < least_count) return false;
  const double wanted_error = is_start   ? kWantedStartError
                              : is_rough ? kWantedRoughError
                                         : kWantedError;
  const double longest_s = is_rough ? kLongestStartEpoch_s : kLongestEpoch_s;
  return epoch_.used_s >= std::max(longest_s, shortest_s) || measure().error <= wanted_error;
}

ConcurrencyControl::Measurement ConcurrencyControl::measure() const {
  Measurement measured;
  if (epoch_.busy_s <= 0 || epoch_.used_s <= 0 || epoch_.completions == 0) return measured;
  const double ratio = epoch_.bytes / epoch_.busy_s;
  measured.in_flight = epoch_.in_flight_s / epoch_.used_s;
  measured.goodput = measured.in_flight * ratio;
  measured.first_byte_s = epoch_.first_byte_s / static_cast<double>(epoch_.completions);
  const double square = epoch_.sum_bb - 2 * ratio * epoch_.sum_bt + ratio * ratio * epoch_.sum_tt;
  measured.error = epoch_.samples < 4 || epoch_.bytes <= 0
                       ? 1.0
                       : std::sqrt(std::max(0.0, square)) / epoch_.bytes;
  return measured;
}

void ConcurrencyControl::on_epoch(TimePoint now) {
  const Measurement measured = measure();
  goodput_ = measured.goodput;
  // Forgets a better past at 1 % per second.
  best_goodput_ *= 1 - 0.01 * std::min(10.0, seconds_between(epoch_.started, now));
  best_goodput_ = std::max(best_goodput_, measured.goodput * (1 - std::min(0.5, measured.error)));
  if (phase_ == Phase::kStart) return on_start_epoch(measured, now);
  on_trial(measured, now);
}

void ConcurrencyControl::give_up_unused_trial(TimePoint now) {
  // A larger limit that nobody uses proves nothing; back to the one that was measured.
  if (phase_ == Phase::kStart || trial_ == Trial::kBase) return;
  if (now - last_used_ < seconds(1) || now - epoch_.started < seconds(1)) return;
  phase_ = Phase::kCruise;
  trial_ = Trial::kBase;
  cruise_until_ = now + cruise_time_;
  begin_epoch(base_limit_, now);
}

// --- slow start ---

void ConcurrencyControl::restart(std::uint32_t limit, TimePoint now) {
  phase_ = Phase::kStart;
  previous_ = Measurement{};
  is_second_look_ = false;
  begin_epoch(limit, now);
}

void ConcurrencyControl::on_start_epoch(const Measurement& measured, TimePoint now) {
  const bool has_grown = measured.goodput >= kStartGain * previous_.goodput;
  if (now < hold_until_) return begin_epoch(limit_, now);
  if (has_grown) {
    previous_ = measured;
    previous_limit_ = limit_;
    is_second_look_ = false;
    if (limit_ < options_.ceiling) return begin_epoch(std::min(options_.ceiling, 2 * limit_), now);
  } else if (!has_grown && !is_second_look_) {
    is_second_look_ = true;  // one unlucky interval ends nothing
    return begin_epoch(limit_, now);
  }
  if (!has_grown && previous_.goodput > 0) {
    // Up to the knee goodput is proportional, so its growth tells where the knee was passed.
    const double growth = std::max(1.0, measured.goodput / previous_.goodput);
    base_limit_ = std::min(limit_, scaled(previous_limit_, 1.1 * growth));
    enter_search(kFirstStep, now);
    return;
  }
  base_limit_ = limit_;
  enter_search(kFirstStep, now);
}

// --- search and cruise ---

void ConcurrencyControl::enter_search(double step, TimePoint now) {
  phase_ = Phase::kSearch;
  step_ = step;
  begin_round(now);
}

void ConcurrencyControl::begin_round(TimePoint now) {
  trial_ = Trial::kBase;
  has_moved_ = false;
  begin_epoch(base_limit_, now);
}

void ConcurrencyControl::try_up(TimePoint now) {
  const std::uint32_t up =
      std::min(options_.ceiling, std::max(base_limit_ + 1, scaled(base_limit_, 1 + step_)));
  if (up == base_limit_ || now < hold_until_) return try_down(now);
  trial_ = Trial::kUp;
  begin_epoch(up, now);
}

void ConcurrencyControl::try_down(TimePoint now) {
  const std::uint32_t down =
      std::max(options_.floor, std::min(base_limit_ - 1, scaled(base_limit_, 1 / (1 + step_))));
  if (base_limit_ <= options_.floor || down >= base_limit_) return end_round(now);
  trial_ = Trial::kDown;
  begin_epoch(down, now);
}

bool ConcurrencyControl::is_down_better(const Measurement& measured) const {
  const double gain = measured.goodput / base_.goodput - 1;
  if (gain > std::max(kLeastGain, measured.error + base_.error)) return true;
  if (is_falling_) return gain > -2 * kLeastGain;  // in doubt the load was too much
  if (limit_ < kModestLimit) return false;
  // As much with fewer requests, which then wait less: the queue of the store was ours.
  return gain > -kLeastGain / 2 && measured.goodput > (1 - kTolerableLoss) * best_goodput_ &&
         measured.first_byte_s < base_.first_byte_s;
}

void ConcurrencyControl::on_trial(const Measurement& measured, TimePoint now) {
  if (trial_ == Trial::kBase) {
    const bool has_fallen = measured.goodput < kChangedStore * base_.goodput;
    const bool is_cruising = phase_ == Phase::kCruise;
    base_ = measured;
    if (is_cruising && has_fallen) {
      phase_ = Phase::kSearch;
      step_ = kLargestStep;  // far from the knee, measuring takes long
      cruise_time_ = kFirstCruise;
      is_falling_ = true;
      return try_down(now);
    }
    if (!is_cruising) return is_falling_ ? try_down(now) : try_up(now);
    if (now < cruise_until_) return begin_epoch(base_limit_, now);
    next_probe_is_up_ = !next_probe_is_up_;
    return next_probe_is_up_ ? try_down(now) : try_up(now);
  }
  const double gain = measured.goodput / std::max(base_.goodput, 1.0) - 1;
  const bool is_up = trial_ == Trial::kUp;
  const bool is_better =
      is_up ? gain > std::max(kLeastGain, measured.error) : is_down_better(measured);
  if (is_better) {
    base_ = measured;
    base_limit_ = limit_;
    has_moved_ = true;
    phase_ = Phase::kSearch;
    if (gain > 0.5 * step_ || is_falling_) step_ = std::min(kLargestStep, 2 * step_);
    return is_up ? try_up(now) : try_down(now);
  }
  if (is_up && !has_moved_ && phase_ == Phase::kSearch) return try_down(now);
  end_round(now);
}

void ConcurrencyControl::end_round(TimePoint now) {
  if (phase_ == Phase::kSearch && step_ > kSmallestStep) {
    step_ /= 2;
    if (step_ < kFirstStep) is_falling_ = false;
    return begin_round(now);
  }
  is_falling_ = false;
  cruise_time_ =
      phase_ == Phase::kSearch ? kFirstCruise : std::min(kLongestCruise, cruise_time_ * 3 / 2);
  phase_ = Phase::kCruise;
  trial_ = Trial::kBase;
  has_moved_ = false;
  step_ = kFirstStep / 2;
  // Jitter, so that the machines that share a store do not probe in step.
  const double jitter = 0.75 + 0.5 * random_.unit();
  cruise_until_ = now + from_seconds(jitter * std::chrono::duration<double>(cruise_time_).count());
  begin_epoch(base_limit_, now);
}

// --- throttling ---

void ConcurrencyControl::watch_throttling(const ControlSample& sample, TimePoint now) {
  if (now < throttle_window_) return;  // answers to requests of the limit before
  window_attempts_ += sample.attempts;
  window_throttles_ += sample.throttles;
  const auto attempts = static_cast<double>(window_attempts_);
  const double share = attempts > 0 ? static_cast<double>(window_throttles_) / attempts : 0;
  const bool is_overload = window_attempts_ >= kOverloadAttempts && share >= kOverloadShare;
  if (!is_overload && window_attempts_ < std::max(kThrottleAttempts, std::uint64_t{2} * limit_))
    return;
  if (seconds_between(throttle_window_, now) < 0.05) return;
  if (!is_overload && is_background(now)) return;
  window_attempts_ = window_throttles_ = 0;
  throttle_window_ = now;
  const double luck = 2.5 * std::sqrt(share * (1 - share) / attempts);
  if (is_overload || (share - background_share_ > kThrottleShare + luck && backed_off_share_ == 0))
    return back_off(share, now);
  background_share_ = std::min(background_cap_, 0.95 * background_share_ + 0.05 * share);
}

bool ConcurrencyControl::is_background(TimePoint now) {
  const auto attempts = static_cast<double>(window_attempts_);
  if (backed_off_share_ > 0) {
    // The limit fell in proportion to the refusals, so they should have all but ended.
    after_attempts_ += window_attempts_;
    after_throttles_ += window_throttles_;
    if (after_attempts_ < kAfterAttempts) return false;
    const double after =
        static_cast<double>(after_throttles_) / static_cast<double>(after_attempts_);
    const bool is_no_help = after > kNoHelp * backed_off_share_;
    backed_off_share_ = 0;
    after_attempts_ = after_throttles_ = 0;
    if (!is_no_help) return false;
    background_cap_ = background_share_ = after;
    hold_until_ = now;
    window_attempts_ = window_throttles_ = 0;
    throttle_window_ = now;
    restart(std::max(limit_, limit_before_back_off_), now);
    return true;
  }
  if (limit_ > options_.initial) return false;
  background_cap_ = background_share_ = static_cast<double>(window_throttles_) / attempts;
  window_attempts_ = window_throttles_ = 0;  // so few requests are not the cause
  throttle_window_ = now;
  return true;
}

void ConcurrencyControl::back_off(double share, TimePoint now) {
  throttle_window_ = now + from_seconds(std::max(0.05, 1.1 * byte_duration_s_));
  if (backed_off_share_ == 0) {
    limit_before_back_off_ = limit_;
    hold_time_ = now - hold_until_ < 4 * hold_time_ ? std::min(kLongestHold, hold_time_ * 3 / 2)
                                                    : kFirstHold;
  }
  backed_off_share_ = share;
  after_attempts_ = after_throttles_ = 0;
  hold_until_ = now + hold_time_;
  const double factor = 1 - std::clamp(share, kLeastBackOff, kMostBackOff);
  base_limit_ = std::min(options_.ceiling, std::max(options_.floor, scaled(limit_, factor)));
  best_goodput_ = 0;
  if (share >= kOverloadShare && base_limit_ < options_.initial) {
    // Whatever comes after an outage is found anew.
    hold_until_ = now;
    return restart(base_limit_, now);
  }
  enter_search(kFirstStep / 2, now);
}

// --- the vendor's ramp rule ---

void ConcurrencyControl::watch_rate(const ControlSample& sample, TimePoint now) {
  if (allowed_rate_ <= 0) return;
  rate_attempts_ += sample.attempts;
  const double elapsed_s = seconds_between(rate_window_, now);
  if (elapsed_s >= 1) {
    peak_rate_ = std::max(peak_rate_, static_cast<double>(rate_attempts_) / elapsed_s);
    rate_attempts_ = 0;
    rate_window_ = now;
  }
  if (now < rate_doubles_at_) return;
  // The store grows with the load that it sees, not with time.
  if (peak_rate_ >= allowed_rate_ / 2) allowed_rate_ *= 2;
  peak_rate_ = 0;
  rate_doubles_at_ = now + options_.doubling;
}

}  // namespace headrace::transfer
