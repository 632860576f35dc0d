#pragma once
/// \file
/// HedgePolicy: which requests get a second attempt before the first has failed, and when an
/// attempt without an answer, or with one that only drips, is given up. Pure: time comes as an
/// argument.
///
/// A hedge is due when an answer takes 1.5 times what 95 % take (and never under 4 ms). A token
/// bucket keeps hedges below their share of all requests, at any time; when it runs dry the factor
/// grows, so that the tokens go to the latest. A short run needs tokens before it has earned any:
/// what is ten times as late as usual is hedged on credit. When many requests are late at once and
/// few are answered, or the store refuses many, a second request would only add load: then there is
/// none. The last requests of a run may all be late, and are a few of many. Source of the
/// scheme: Dean and Barroso, "The Tail at Scale", CACM 2013; numbers: facts of
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
    double credit = 8;                                         ///< Tokens owed at most.
    Microseconds floor = std::chrono::milliseconds(4);         ///< No hedge before.
    Microseconds deadline_ceiling = std::chrono::seconds(10);  ///< Of deadline().
  };
  explicit HedgePolicy(const Options& options) : options_(options) {}

  /// A get was sent for the first time.
  void on_request() noexcept { tokens_ = std::min(options_.burst, tokens_ + options_.fraction); }
  void on_first_byte(std::uint64_t length_bytes, Microseconds time) noexcept {
    times_.record(FirstByteTimes::class_of(length_bytes), time);
    ++answered_;
  }
  /// How many first bytes have come.
  std::uint64_t answered() const noexcept { return answered_; }
  /// A body of this length came whole, in `time` from its first byte on.
  void on_body(std::uint64_t length_bytes, Microseconds time) noexcept {
    body_times_.record(FirstByteTimes::class_of(length_bytes), time / large_pieces(length_bytes));
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

  /// `waited` is ten times what 95 % take (and never under 40 ms), or more.
  bool is_far(std::uint64_t length_bytes, Microseconds waited) const noexcept {
    const std::size_t size_class = FirstByteTimes::class_of(length_bytes);
    return times_.is_known(size_class) &&
           waited >= scaled(std::max(options_.floor, times_.p95(size_class)), kFarFactor);
  }

  /// Asks for one hedge, when `late` of `others` requests are late: of those that wait, and those
  /// that were answered since this one was sent. True: a token is spent. `is_far`: this one may be
  /// on credit.
  bool take(std::size_t late, std::size_t others, bool is_far = false) noexcept {
    if (late > std::max<std::size_t>(2, others / 8) || !is_calm()) return false;
    if (tokens_ < (is_far ? 1 - options_.credit : 1)) {
      factor_ = std::min(kLargestFactor, factor_ * 1.05);
      return false;
    }
    tokens_ -= 1;
    if (tokens_ > options_.burst / 2) factor_ = std::max(kSmallestFactor, factor_ * 0.98);
    return true;
  }
  /// The same for one attempt that is slow by itself.
  bool take_spare() noexcept {
    if (tokens_ < 1 || !is_calm()) return false;
    tokens_ -= 1;
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

  /// How long a body of this length may take when nothing is known of the store: so long that only
  /// a drip is too slow.
  static Microseconds longest_unknown(std::uint64_t length_bytes) noexcept {
    // A length that a server makes up must not overflow.
    const std::uint64_t drip_s = std::min(length_bytes / kDripBytesPerSecond, kLongestDripSeconds);
    const std::chrono::seconds drip(static_cast<std::int64_t>(drip_s));
    return std::max<Microseconds>(kUnknownBody, drip);
  }
  /// How long a body of this length may take, at the pace that it comes at, before its attempt
  /// counts as slow: far beyond what is usual, and longer after each loss.
  Microseconds longest_body(std::uint64_t length_bytes) const noexcept {
    const std::size_t size_class = FirstByteTimes::class_of(length_bytes);
    if (!body_times_.is_known(size_class)) return longest_unknown(length_bytes);
    const Microseconds usual = body_times_.p99(size_class) * large_pieces(length_bytes);
    return scaled(std::max(kShortestDeadline, 16 * usual), patience_);
  }

 private:
  static constexpr double kSmallestFactor = 1.5;
  static constexpr double kLargestFactor = 6;
  static constexpr double kFarFactor = 10;
  static constexpr double kMostPatience = 64;
  static constexpr double kCalmShare = 0.1;
  // Two round trips around the world, and a lost SYN in the path of a proxy.
  static constexpr Microseconds kShortestDeadline = std::chrono::seconds(2);
  // 256 connections at this pace are a line of 2 Mbit/s: nobody trains over less.
  static constexpr std::uint64_t kDripBytesPerSecond = 1024;
  static constexpr std::uint64_t kLongestDripSeconds = 86'400;
  static constexpr Microseconds kUnknownBody = std::chrono::seconds(40);

  /// Bodies of the last class differ by a factor of a thousand: their times are kept by 2 MiB.
  static std::int64_t large_pieces(std::uint64_t length_bytes) noexcept {
    return static_cast<std::int64_t>(std::max<std::uint64_t>(1, length_bytes >> 21));
  }

  static Microseconds scaled(Microseconds time, double factor) noexcept {
    return Microseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * factor));
  }

  Options options_;
  FirstByteTimes times_;
  FirstByteTimes body_times_;
  std::uint64_t answered_ = 0;
  double tokens_ = 0;  // from nothing, so that hedges exceed their fraction by the credit at most
  double factor_ = kSmallestFactor;
  double failed_share_ = 0;
  double patience_ = 1;
};

}  // namespace headrace::transfer
