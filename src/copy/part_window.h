#pragma once
/// \file
/// How many parts of large objects may be under way at once. On a slow link many parts would all be
/// begun and none finished for minutes: a copy that is stopped then has nothing to go on from.
///
/// Threads: any.
#include <cstddef>
#include <cstdint>

#include "base/mutex.h"
#include "headrace/clock.h"

namespace headrace::copy_detail {

/// Begins with few: of what a link brings slowly, an interruption then leaves the most. How fast
/// bytes arrive makes room before the first part has ended: for as many as the link brings in
/// kSoon. Every part that took less than kSoon makes room for two more, which triples the window in
/// the time of a part. Where parts take longer, a window is doubled only as long as that makes the
/// whole faster by a quarter: then single connections are slow, not the link. What brought nothing
/// is tried again after kRestRounds windows of parts.
class PartWindow {
 public:
  static constexpr std::size_t kLeast = 4;
  static constexpr Microseconds kSoon = std::chrono::seconds(1);
  static constexpr std::size_t kRestRounds = 8;
  /// As many bytes, and as much time, tell how fast a link is.
  static constexpr std::uint64_t kTellingBytes = std::uint64_t{2} << 20;
  static constexpr Microseconds kTellingTime = std::chrono::milliseconds(8);

  /// Takes room for up to `most` parts; returns for how many.
  std::size_t take(std::size_t most) HEADRACE_EXCLUDES(mutex_);
  /// Gives room back that was not needed.
  void give_back(std::size_t count) HEADRACE_EXCLUDES(mutex_);
  /// A part of so many bytes that began then has ended.
  void end_part(std::uint64_t bytes, TimePoint began, TimePoint now) HEADRACE_EXCLUDES(mutex_);

  /// Whether all of it is used.
  bool is_full() HEADRACE_EXCLUDES(mutex_);
  /// So many bytes have arrived by now, of parts of `part_bytes`, while it is full. \pre part_bytes
  /// > 0.
  void see_arrived(std::uint64_t bytes, std::uint64_t part_bytes, TimePoint now)
      HEADRACE_EXCLUDES(mutex_);

  std::size_t size() HEADRACE_EXCLUDES(mutex_);

 private:
  void begin_round(TimePoint now) HEADRACE_REQUIRES(mutex_);
  void end_round(TimePoint now) HEADRACE_REQUIRES(mutex_);

  Mutex mutex_;
  std::size_t size_ HEADRACE_GUARDED_BY(mutex_) = kLeast;
  std::size_t used_ HEADRACE_GUARDED_BY(mutex_) = 0;
  // What see_arrived() was told when it began to measure.
  std::uint64_t seen_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  TimePoint seen_at_ HEADRACE_GUARDED_BY(mutex_){};
  bool is_arriving_ HEADRACE_GUARDED_BY(mutex_) = false;
  // A round: as many parts as the window holds.
  TimePoint round_began_ HEADRACE_GUARDED_BY(mutex_){};
  std::size_t round_parts_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint64_t round_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t slower_size_ HEADRACE_GUARDED_BY(mutex_) = 0;  ///< Before it was doubled; 0: at rest.
  double slower_rate_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t rest_parts_ HEADRACE_GUARDED_BY(mutex_) = 0;  ///< Until it is tried again.
};

}  // namespace headrace::copy_detail
