#pragma once
/// \file
/// Token bucket of one connection. Pure; one owner.
#include <algorithm>
#include <chrono>
#include <cstdint>

#include "headrace/clock.h"

namespace headrace::sim {

class Pacer {
 public:
  /// 0: no limit.
  void set_rate(double bytes_per_s) noexcept { rate_ = bytes_per_s; }
  bool is_active() const noexcept { return rate_ > 0; }

  /// A body begins: what was saved up while idle does not make it faster.
  void start(TimePoint now) noexcept {
    refill(now);
    tokens_ = std::min(tokens_, kFirstBytes);
  }

  /// Bytes that may move now, at most `wanted`; 0: come back at ready_at(). \pre wanted > 0
  std::uint64_t allow(std::uint64_t wanted, TimePoint now) noexcept {
    if (!is_active()) return wanted;
    refill(now);
    if (tokens_ < threshold(wanted)) return 0;
    return std::min(wanted, static_cast<std::uint64_t>(tokens_));
  }
  void take(std::uint64_t bytes) noexcept {
    if (is_active()) tokens_ -= static_cast<double>(bytes);
  }
  TimePoint ready_at(std::uint64_t wanted, TimePoint now) const noexcept {
    const double missing = std::max(0.0, threshold(wanted) - tokens_);
    return now + std::chrono::nanoseconds(static_cast<std::int64_t>(missing / rate_ * 1e9) + 1);
  }

 private:
  // One wake-up moves some 4 ms worth: seldom enough to cost little, often enough to look like a
  // steady stream. The bucket holds 20 ms, so that late wake-ups do not lower the rate.
  static constexpr double kStepSeconds = 0.004;
  static constexpr double kBucketSeconds = 0.020;
  static constexpr double kFirstBytes = 16384;

  double threshold(std::uint64_t wanted) const noexcept {
    return std::max(1.0, std::min(static_cast<double>(wanted), rate_ * kStepSeconds));
  }
  void refill(TimePoint now) noexcept {
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    tokens_ = std::min(tokens_ + std::max(0.0, seconds) * rate_,
                       std::max(kFirstBytes, rate_ * kBucketSeconds));
  }

  double rate_ = 0;
  double tokens_ = 0;
  TimePoint last_{};
};

}  // namespace headrace::sim
