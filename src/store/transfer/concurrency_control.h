#pragma once
/// \file
/// ConcurrencyControl: how many requests one endpoint should have on the wire. A closed loop on
/// goodput and first-byte time, without I/O, clocks or threads.
///
/// Law (docs/design/0012-control-hedging.md): double while goodput follows (slow start), then try
/// larger and smaller limits in turn and keep what carries more. Goodput of a limit is, by Little's
/// law, requests in flight x bytes / time on the wire, which waves of requests that end together do
/// not disturb. Only time in which the limit was used counts, so an idle application is no knee.
///
/// Place: EndpointControl feeds it with what the reactors saw. Threads: its owner's.
#include <cstdint>

#include "base/random.h"
#include "headrace/clock.h"

namespace headrace::transfer {

/// What the requests of an endpoint did in some time. Plain sums, so that those of several reactors
/// and processes add up.
struct ControlSample {
  std::uint64_t completions =
      0;                        ///< Transfers with bytes that ended well while the limit was used.
  std::uint64_t bytes = 0;      ///< Of those.
  double busy_s = 0;            ///< Of those: time on the wire, added up.
  double byte_seconds = 0;      ///< Of those: bytes x time on the wire.
  double first_byte_s = 0;      ///< Of those: sent until first byte.
  std::uint64_t attempts = 0;   ///< Attempts that were answered, whatever with.
  std::uint64_t throttles = 0;  ///< Of those: 503 SlowDown, 429.
  double used_s = 0;            ///< Time in which the limit was used.
  double in_flight_s = 0;       ///< Requests in flight, integrated over used_s.
};

class ConcurrencyControl {
 public:
  struct Options {
    std::uint32_t initial = 8;
    std::uint32_t floor = 2;      ///< Never less, except under `ceiling`.
    std::uint32_t ceiling = 256;  ///< Never more.
    double initial_rate = 0;  ///< Requests/s that may come at first (EndpointRules); 0: no rule.
    Microseconds doubling{std::chrono::minutes(20)};  ///< Of initial_rate.
    std::uint64_t seed = 0;                           ///< Of the jitter between probes.
  };
  ConcurrencyControl(const Options& options, TimePoint now);

  /// Takes in what happened since the last call. Calls 1 to 50 ms apart suit.
  void add(const ControlSample& sample, TimePoint now);
  /// Requests that may be in flight now.
  std::uint32_t limit() const noexcept;
  /// Somebody else saw throttling (another process of the node): no growth for a while.
  void hold(TimePoint until) noexcept;

  /// Goes on from a limit that was found elsewhere (by the leader before).
  void adopt(std::uint32_t limit, TimePoint now);

  /// Bytes/s of the last measured interval; 0 before the first.
  double goodput() const noexcept { return goodput_; }
  /// Whether slow start has ended and nothing better was found since.
  bool is_settled() const noexcept { return phase_ == Phase::kCruise; }

 private:
  enum class Phase : std::uint8_t {
    kStart,   ///< Doubling.
    kSearch,  ///< Measuring base, larger, smaller; smaller steps each round.
    kCruise,  ///< At base; a probe now and then.
  };
  enum class Trial : std::uint8_t { kBase, kUp, kDown };

  /// Sums of one measured interval.
  struct Epoch {
    TimePoint counts_from{};  // before, requests of the old limit are still on the wire
    TimePoint started{};
    std::uint64_t completions = 0;
    double bytes = 0, busy_s = 0, first_byte_s = 0, used_s = 0, in_flight_s = 0;
    double sum_bb = 0, sum_bt = 0, sum_tt = 0;  // squares of the samples, for the ratio's error
    std::uint32_t samples = 0;
  };
  struct Measurement {
    double goodput = 0;
    double error = 0;  // relative standard error
    double first_byte_s = 0;
    double in_flight = 0;
  };

  void begin_epoch(std::uint32_t new_limit, TimePoint now);
  bool is_epoch_over() const;
  Measurement measure() const;
  void on_epoch(TimePoint now);
  void restart(std::uint32_t limit, TimePoint now);
  void on_start_epoch(const Measurement& measured, TimePoint now);
  void on_trial(const Measurement& measured, TimePoint now);
  void begin_round(TimePoint now);
  void try_up(TimePoint now);
  void try_down(TimePoint now);
  void end_round(TimePoint now);
  void enter_search(double step, TimePoint now);
  bool is_down_better(const Measurement& measured) const;
  void give_up_unused_trial(TimePoint now);

  void watch_throttling(const ControlSample& sample, TimePoint now);
  bool is_background(TimePoint now);
  void back_off(double share, TimePoint now);
  void watch_rate(const ControlSample& sample, TimePoint now);

  const Options options_;
  Random random_;
  Phase phase_ = Phase::kStart;
  Trial trial_ = Trial::kBase;
  std::uint32_t limit_;
  std::uint32_t base_limit_;
  Measurement base_;
  Measurement previous_;  // kStart: of half the limit
  std::uint32_t previous_limit_ = 0;
  bool is_second_look_ = false;
  bool has_moved_ = false;   // in this round
  bool is_falling_ = false;  // goodput fell at the same limit: smaller ones come first
  bool next_probe_is_up_ = true;
  double step_ = 0;
  double best_goodput_ = 0;  // decays
  double goodput_ = 0;
  Epoch epoch_;
  TimePoint cruise_until_{};
  Microseconds cruise_time_{};
  TimePoint last_used_{};

  double byte_duration_s_ = 0;  // of the request that an average byte travels in
  double duration_s_ = 0;       // of an average request

  TimePoint throttle_window_{};
  std::uint64_t window_attempts_ = 0;
  std::uint64_t window_throttles_ = 0;
  double background_share_ = 0;  // of throttled attempts whatever the limit
  double background_cap_ = 0;
  double backed_off_share_ = 0;  // what the last back-off was for, while its effect is watched
  std::uint64_t after_attempts_ = 0;
  std::uint64_t after_throttles_ = 0;
  std::uint32_t limit_before_back_off_ = 0;
  TimePoint hold_until_{};
  Microseconds hold_time_{};

  double allowed_rate_ = 0;
  double peak_rate_ = 0;
  std::uint64_t rate_attempts_ = 0;
  TimePoint rate_window_{};
  TimePoint rate_doubles_at_{};
};

}  // namespace headrace::transfer
