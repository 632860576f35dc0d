#pragma once
/// \file
/// Time as the engine sees it. Deadlines are absolute TimePoints; durations are std::chrono types;
/// nothing below bindings/ reads a clock except through a Clock handed to it, so that tests and the
/// planner can drive time by hand.
#include <chrono>

namespace headrace {

using TimePoint = std::chrono::steady_clock::time_point;
using Microseconds = std::chrono::microseconds;

/// Source of time. Thread-safe. Implementations: system_clock() here, ManualClock in
/// src/base/manual_clock.h (tests).
class Clock {
 public:
  virtual ~Clock() = default;
  /// Monotonic now.
  virtual TimePoint now() const noexcept = 0;
  /// Wall clock, seconds since 1970 UTC; used for request signatures only.
  virtual std::chrono::sys_seconds wall_now() const noexcept = 0;
};

/// The machine's clocks. Never destroyed.
Clock& system_clock() noexcept;

}  // namespace headrace
