#pragma once
/// \file
/// The simulator's clock: the machine's, moved ahead by advance(). Any thread.
#include <atomic>
#include <chrono>
#include <cstdint>

#include "headrace/clock.h"

namespace headrace::sim {

class SimClock final : public Clock {
 public:
  TimePoint now() const noexcept override {
    return system_clock().now() +
           std::chrono::nanoseconds(ahead_ns_.load(std::memory_order_relaxed));
  }
  /// Not moved: signatures of clients must go on to match.
  std::chrono::sys_seconds wall_now() const noexcept override { return system_clock().wall_now(); }
  void advance(std::chrono::nanoseconds by) noexcept {
    ahead_ns_.fetch_add(by.count(), std::memory_order_relaxed);
  }

 private:
  std::atomic<std::int64_t> ahead_ns_{0};  // relaxed: only itself matters
};

}  // namespace headrace::sim
