#pragma once
/// \file
/// HedgePolicy: which requests get a second attempt before the first has failed, and when an
/// attempt without an answer is given up. Pure: time comes as an argument.
///
/// A hedge is due when an answer takes 1.5 times what 95 % take (and never under 4 ms). A token
/// bucket keeps hedges below their share of all requests, at any time; when it runs dry the factor
/// grows, so that the tokens go to the latest. When many requests are late at once, or the store
/// refuses many, a second request would only add load: then there is none.
/// Source of the scheme: Dean and Barroso, "The Tail at Scale", CACM 2013; numbers: facts of
/// docs/design/0012-control-hedging.md.
///
/// Threads: its owner's.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "headrace/clock.h"
#include "store/transfer/first_byte_times.h"

namespace headrace::transfer {

class HedgePolicy {
 public:
  struct Options {
    double fraction = 0.02;                                    ///< Of all gets; 0: never.
    double burst = 16;                                         ///< Tokens kept at most.
    Microseconds floor = std::chrono::milliseconds(4);         ///< No hedge before.
    Microseconds deadline_ceiling = std::chrono::seconds(10);  ///< Of deadline().
  };
  explicit HedgePolicy(const Options& options) : options_(options) {}

  /// A get was sent for the first time.
  void on_request() noexcept { tokens_ = std::min(options_.burst, tokens_ + options_.fraction); }
  void on_first_byte(std::uint64_t length_bytes, Microseconds time) noexcept {
    times_.record(FirstByteTimes::class_of(length_bytes), time);
  }
  /// Each attempt that ended: whether the store refused it or failed, and whether it ran into
  /// deadline().
  void on_attempt(bool has_failed, bool has_timed_out) noexcept {
    failed_share_ += ((has_failed ? 1.0 : 0.0) - failed_share_) / 64;
    if (has_timed_out) {
      patience_ = std::min(kMostPatience, patience_ * 2);
    } else {
      patience_ = std::max(1.0, patience_ * (1 - 1.0 / 256));
    }
  }
  /// Few attempts fail: a repetition at once is worth it.
  bool is_calm() const noexcept { return failed_share_ < kCalmShare; }

  /// How long after sending a get becomes late; Microseconds::max(): never, too little is known.
  Microseconds late_after(std::uint64_t length_bytes) const noexcept {
    const std::size_t size_class = FirstByteTimes::class_of(length_bytes);
    if (options_.fraction <= 0 || !times_.is_known(size_class)) return Microseconds::max();
    return std::max(options_.floor, scaled(times_.p95(size_class), factor_));
  }

  /// Asks for one hedge, when `late` of `waiting` requests without an answer are late. True: a
  /// token is spent.
  bool take(std::size_t late, std::size_t waiting) noexcept {
    if (late > std::max<std::size_t>(2, waiting / 8) || !is_calm()) return false;
    if (tokens_ < 1) {
      factor_ = std::min(kLargestFactor, factor_ * 1.05);
      return false;
    }
    tokens_ -= 1;
    if (tokens_ > options_.burst / 2) factor_ = std::max(kSmallestFactor, factor_ * 0.98);
    return true;
  }
  /// The hedge did not come about.
  void give_back() noexcept { tokens_ += 1; }

  /// How long to wait for a head before the attempt counts as lost: far beyond what is usual, and
  /// longer after each such loss, so that a slow store is not flooded with repetitions.
  Microseconds deadline(std::uint64_t length_bytes) const noexcept {
    const std::size_t size_class = FirstByteTimes::class_of(length_bytes);
    if (!times_.is_known(size_class)) return options_.deadline_ceiling;
    const Microseconds usual = std::max(kShortestDeadline, scaled(times_.p99(size_class), 10));
    return std::min(options_.deadline_ceiling, scaled(usual, patience_));
  }

 private:
  static constexpr double kSmallestFactor = 1.5;
  static constexpr double kLargestFactor = 6;
  static constexpr double kMostPatience = 64;
  static constexpr double kCalmShare = 0.1;
  // Two round trips around the world, and a lost SYN in the path of a proxy.
  static constexpr Microseconds kShortestDeadline = std::chrono::seconds(2);

  static Microseconds scaled(Microseconds time, double factor) noexcept {
    return Microseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * factor));
  }

  Options options_;
  FirstByteTimes times_;
  double tokens_ = 0;  // from nothing, so that hedges never exceed their fraction
  double factor_ = kSmallestFactor;
  double failed_share_ = 0;
  double patience_ = 1;
};

}  // namespace headrace::transfer
