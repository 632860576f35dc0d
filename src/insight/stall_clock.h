#pragma once
/// \file
/// StallClock: time that somebody waited, booked to causes. Knows no causes itself: the owner gives
/// their names.
///
/// Threads: book() and the readers from any thread.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "headrace/metrics.h"
#include "insight/counter.h"

namespace headrace {

template <std::size_t kCauseCount>
class StallClock {
 public:
  /// Adds a wait to a cause. \pre cause < kCauseCount. Negative durations count as zero.
  void book(std::size_t cause, std::chrono::microseconds waited) noexcept {
    HEADRACE_DCHECK(cause < kCauseCount);
    if (waited.count() > 0) waited_us_[cause].add(static_cast<std::uint64_t>(waited.count()));
  }
  std::uint64_t total_us(std::size_t cause) const noexcept { return waited_us_[cause].value(); }
  std::uint64_t total_us() const noexcept {
    std::uint64_t sum = 0;
    for (const Counter& counter : waited_us_) sum += counter.value();
    return sum;
  }
  /// Appends "stall.NAME_us" for every cause; `name_of(index)` gives NAME.
  template <class NameOf>
  void append_to(MetricList& out, NameOf name_of) const {
    for (std::size_t i = 0; i < kCauseCount; ++i) {
      const std::string cause(std::string_view(name_of(i)));
      append_counter(out, "stall." + cause + "_us", "us", total_us(i));
      out.back().family = "stall.waited_us";
      out.back().labels = {{"cause", cause}};
    }
  }

 private:
  std::array<Counter, kCauseCount> waited_us_{};
};

}  // namespace headrace
