#pragma once
/// \file
/// Pace: whether a cache's disk keeps up with who reads through it, or the store would be sooner.
///
/// A disk may be slower than the store behind it (a network volume, a disk that others use). Then
/// a cache in front would make its users wait. The signs: the store, as far as it was seen, gives
/// more bytes per second than the disk does; and reads of cached extents pile up, for longer than
/// it takes to fill a loader's memory, or for a moment where the disk is much slower. While both
/// hold, whatever the store has sooner comes from there, and the disk goes on with what it has.
///
/// How fast the disk took writes says nothing: their threads give way to all others, so that may
/// have been the processors.
///
/// Threads: any.
#include <cstdint>
#include <optional>

#include "base/mutex.h"
#include "headrace/clock.h"

namespace headrace::tier {

/// Bytes per second of something while it has anything to do.
class BusyRate {
 public:
  void begin(std::uint64_t bytes, TimePoint now) noexcept;
  /// `moved_bytes`: what came of the `bytes` of a begin().
  void end(std::uint64_t bytes, std::uint64_t moved_bytes, TimePoint now) noexcept;
  /// None before half a second of it was seen.
  std::optional<double> bytes_per_s() const noexcept { return rate_; }
  std::uint64_t pending_bytes() const noexcept { return pending_bytes_; }

 private:
  std::uint64_t pending_count_ = 0, pending_bytes_ = 0;
  TimePoint since_{};
  double busy_s_ = 0, moved_bytes_ = 0;
  std::optional<double> rate_;
};

class Pace {
 public:
  /// Shorter reads are neither measured nor sent elsewhere: they are over before it matters.
  static constexpr std::uint64_t kLeastBytes = std::uint64_t{256} << 10;

  void begin_disk(std::uint64_t bytes, TimePoint now);
  void end_disk(std::uint64_t bytes, std::uint64_t moved_bytes, TimePoint now);
  void begin_store(std::uint64_t bytes, TimePoint now);
  void end_store(std::uint64_t bytes, std::uint64_t moved_bytes, TimePoint now);
  /// Whether a read that the disk has not begun yet had better go to the store.
  bool prefers_store(TimePoint now);

 private:
  void look(TimePoint now) HEADRACE_REQUIRES(mutex_);

  Mutex mutex_;
  BusyRate disk_ HEADRACE_GUARDED_BY(mutex_), store_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<TimePoint> behind_since_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t asked_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::tier
