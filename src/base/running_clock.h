#pragma once
/// \file
/// Marks the clocks that go on by themselves, also while the process is stopped: what waits on one
/// can tell that it slept longer than it asked to. A clock that is moved by hand cannot.
///
/// Threads: as Clock.
#include "headrace/clock.h"

namespace headrace {

class RunningClock : public Clock {};

inline bool runs_by_itself(const Clock& clock) noexcept {
  return dynamic_cast<const RunningClock*>(&clock) != nullptr;
}

}  // namespace headrace
