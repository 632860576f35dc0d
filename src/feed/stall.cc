#include "feed/stall.h"

#include <algorithm>
#include <array>

namespace headrace {

std::string_view stall_cause_name(StallCause cause) noexcept {
  static constexpr std::string_view kNames[] = {"memory",   "throttled",  "first_byte",
                                                "transfer", "cache_read", "decompress",
                                                "decode",   "transform",  "other"};
  const auto index = static_cast<std::size_t>(cause);
  return index < std::size(kNames) ? kNames[index] : kNames[std::size(kNames) - 1];
}

namespace feed {
namespace {

std::int64_t micros(TimePoint time) noexcept {
  return std::chrono::floor<Microseconds>(time.time_since_epoch()).count();
}

/// A phase ends at `end`; before it began nothing of the read was under way.
struct Phase {
  TimePoint end;
  StallCause cause;
};

}  // namespace

Microseconds wait_length(const WaitInterval& wait) noexcept {
  return Microseconds(std::max<std::int64_t>(0, micros(wait.until) - micros(wait.from)));
}

void book_wait(StallBook& book, const WaitInterval& wait, const BatchTimeline& timeline) {
  const Timeline& read = timeline.slowest;
  const StallCause body = read.was_cached ? StallCause::kCacheRead : StallCause::kTransfer;
  const std::array<Phase, 10> phases = {{
      {read.wanted, StallCause::kOther},
      {read.submitted, StallCause::kMemory},
      {read.sent, read.was_held_off ? StallCause::kThrottled : body},
      {read.first_byte, read.was_cached ? body : StallCause::kFirstByte},
      {read.finished, body},
      {read.inflated, StallCause::kDecompress},
      {timeline.memory_from, StallCause::kOther},
      {timeline.memory_until, StallCause::kMemory},
      {timeline.decode_from, StallCause::kOther},
      {timeline.decode_until, StallCause::kDecode},
  }};
  const std::int64_t until = micros(wait.until);
  std::int64_t from = micros(wait.from);
  for (const Phase& phase : phases) {
    // A phase that did not happen has a zero end, so it takes nothing.
    const std::int64_t end = std::min(until, micros(phase.end));
    if (end <= from) continue;
    book.book(static_cast<std::size_t>(phase.cause), Microseconds(end - from));
    from = end;
  }
  if (until > from) {
    book.book(static_cast<std::size_t>(StallCause::kOther), Microseconds(until - from));
  }
}

StallCause main_cause(const StallBook& book) noexcept {
  std::size_t most = 0;
  for (std::size_t i = 1; i < static_cast<std::size_t>(StallCause::kCount); ++i)
    if (book.total_us(i) > book.total_us(most)) most = i;
  return static_cast<StallCause>(most);
}

}  // namespace feed
}  // namespace headrace
