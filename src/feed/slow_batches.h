#pragma once
/// \file
/// Tells the log (headrace/log.h) of batches that the training loop waited for longer than it
/// should: what for, how long, and what to do. A line a minute at most.
///
/// Threads: the caller of Loader::next() only.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "feed/stall.h"

namespace headrace::feed {

/// How a line names a cause, and what to do about it.
struct StallAdvice {
  std::string_view waited_for;  ///< "first bytes from {}": of the read that came last.
  std::string_view advice;      ///< Ends with the section of docs/stalls.md.
};
StallAdvice stall_advice(StallCause cause) noexcept;

class SlowBatches {
 public:
  /// A batch after which the loop waited less is not worth a line.
  static constexpr std::chrono::seconds kSlow{5};
  static constexpr std::chrono::seconds kQuiet{60};

  /// A batch came, for which the loop waited during `waits`. `name` says what the read of
  /// `timeline` asked for; called only where a line is written.
  void after(std::span<const WaitInterval> waits, const BatchTimeline& timeline, TimePoint now,
             const std::function<std::string()>& name);

 private:
  TimePoint quiet_until_{};
  std::uint64_t untold_count_ = 0;  ///< Slow batches since the last line.
  Microseconds untold_{0};          ///< That they were waited for.
};

}  // namespace headrace::feed
