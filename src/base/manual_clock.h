#pragma once
/// \file
/// A Clock that stands still until told to move: for tests and simulations. Thread-safe.
#include <atomic>

#include "headrace/clock.h"

namespace headrace {

class ManualClock final : public Clock {
 public:
  /// Starts one hour after the epoch of the steady clock, and at `wall`.
  explicit ManualClock(
      std::chrono::sys_seconds wall = std::chrono::sys_seconds(std::chrono::seconds(1'440'938'160)))
      : wall_start_(wall) {}
  TimePoint now() const noexcept override { return TimePoint(std::chrono::hours(1) + elapsed()); }
  std::chrono::sys_seconds wall_now() const noexcept override {
    return wall_start_ + std::chrono::floor<std::chrono::seconds>(elapsed());
  }
  void advance(std::chrono::nanoseconds by) noexcept { elapsed_ns_.fetch_add(by.count()); }

 private:
  std::chrono::nanoseconds elapsed() const noexcept {
    return std::chrono::nanoseconds(elapsed_ns_.load());
  }
  const std::chrono::sys_seconds wall_start_;
  std::atomic<std::int64_t> elapsed_ns_{0};
};

}  // namespace headrace
