#pragma once
/// \file
/// Books the time that the training loop waits to the phases of the read that came last.
///
/// Threads: book_wait() from the consumer; the clock's readers from any thread.
#include <cstdint>
#include <span>

#include "headrace/loader.h"
#include "headrace/order.h"
#include "insight/stall_clock.h"

namespace headrace::feed {

/// When a read went from one phase to the next. Zero: did not happen (yet).
struct Timeline {
  TimePoint wanted{};     ///< It was next in line; from here to `submitted` it waited for memory.
  TimePoint submitted{};  ///< It had its memory.
  TimePoint sent{};       ///< It was on the wire; before, it waited for its turn.
  TimePoint first_byte{};
  TimePoint finished{};  ///< The last byte was there.
  TimePoint inflated{};  ///< It was decompressed. Zero for uncompressed blocks.
  /// Its turn came late because the store refused requests, not because of the bytes before it.
  bool was_held_off = false;
  bool was_cached = false;  ///< What came last came from a cache.
  // What was read: for those who say what was waited for.
  Piece piece{};
  std::size_t last_request = 0;  ///< Of the read's requests, the one that ended last.
  std::uint32_t attempts = 0;    ///< It took so many.
};

/// Why a batch was not there earlier: the read that came last, the wait for the batch's own memory,
/// and decoding.
struct BatchTimeline {
  Timeline slowest;
  TimePoint memory_from{};
  TimePoint memory_until{};
  TimePoint decode_from{};  ///< Its values were all there, and were to be decoded.
  TimePoint decode_until{};
};

/// A wait of the consumer, [from, until).
struct WaitInterval {
  TimePoint from{};
  TimePoint until{};
};

using StallBook = StallClock<static_cast<std::size_t>(StallCause::kCount)>;

/// Splits the interval over the phases of `timeline` and books each part. Times are floored to
/// microseconds first, so the parts add up to the floored length of the wait.
void book_wait(StallBook& book, const WaitInterval& wait, const BatchTimeline& timeline);

/// The cause that most was booked to.
StallCause main_cause(const StallBook& book) noexcept;

/// Length that book_wait() books in all.
Microseconds wait_length(const WaitInterval& wait) noexcept;

}  // namespace headrace::feed
