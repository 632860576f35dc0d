#include "tier/pace.h"

#include <algorithm>

namespace headrace::tier {
namespace {

using Seconds = std::chrono::duration<double>;

/// Busy time after which a rate is known, and half of what it is made from forgotten.
constexpr double kWindowS = 0.5;
/// More than this waits for the disk: it is behind.
constexpr double kBacklogS = 0.25;
/// The store has to be so much faster: measurements differ by less.
constexpr double kClearlyFaster = 1.1;
/// So long in one piece, a disk that is hardly slower than the store is slow rather than being
/// filled up from,
constexpr Seconds kPatience{3};
/// and one that is slower by this at once: whoever fills up from it has the store sooner. Between
/// the two the patience falls evenly.
constexpr double kMuchFaster = 4;
/// Of reads that wait for a disk that is behind while nothing is known of the store: one in so
/// many goes there, to see.
constexpr std::uint64_t kProbeShare = 16;

Seconds patience_with(double times_faster) noexcept {
  const double left = (kMuchFaster - times_faster) / (kMuchFaster - kClearlyFaster);
  return kPatience * std::clamp(left, 0.0, 1.0);
}

double seconds_of(std::uint64_t bytes, double bytes_per_s) noexcept {
  return static_cast<double>(bytes) / bytes_per_s;
}

}  // namespace

void BusyRate::begin(std::uint64_t bytes, TimePoint now) noexcept {
  if (pending_count_++ == 0) since_ = now;
  pending_bytes_ += bytes;
}

void BusyRate::end(std::uint64_t bytes, std::uint64_t moved_bytes, TimePoint now) noexcept {
  --pending_count_;
  pending_bytes_ -= bytes;
  busy_s_ += Seconds(now - since_).count();
  since_ = now;
  moved_bytes_ += static_cast<double>(moved_bytes);
  if (busy_s_ < kWindowS || moved_bytes_ == 0) return;
  rate_ = moved_bytes_ / busy_s_;
  busy_s_ /= 2;
  moved_bytes_ /= 2;
}

void Pace::begin_disk(std::uint64_t bytes, TimePoint now) {
  MutexLock lock(mutex_);
  disk_.begin(bytes, now);
}
void Pace::end_disk(std::uint64_t bytes, std::uint64_t moved_bytes, TimePoint now) {
  MutexLock lock(mutex_);
  disk_.end(bytes, moved_bytes, now);
  look(now);
}
void Pace::begin_store(std::uint64_t bytes, TimePoint now) {
  MutexLock lock(mutex_);
  store_.begin(bytes, now);
}
void Pace::end_store(std::uint64_t bytes, std::uint64_t moved_bytes, TimePoint now) {
  MutexLock lock(mutex_);
  store_.end(bytes, moved_bytes, now);
}

void Pace::look(TimePoint now) {
  const auto rate = disk_.bytes_per_s();
  const bool is_behind = rate && seconds_of(disk_.pending_bytes(), *rate) > kBacklogS;
  if (!is_behind) {
    behind_since_.reset();
  } else if (!behind_since_) {
    behind_since_ = now;
  }
}

bool Pace::prefers_store(TimePoint now) {
  MutexLock lock(mutex_);
  look(now);
  if (!behind_since_) return false;
  const Seconds behind = now - *behind_since_;
  const double disk = *disk_.bytes_per_s();
  const auto store = store_.bytes_per_s();
  if (!store) return behind >= kPatience && ++asked_count_ % kProbeShare == 0;
  if (*store < kClearlyFaster * disk || behind < patience_with(*store / disk)) return false;
  return seconds_of(store_.pending_bytes(), *store) < seconds_of(disk_.pending_bytes(), disk);
}

}  // namespace headrace::tier
