// mutex_ is taken before LargeCopy::mutex (take_parts()) and the window's. No sleeper is rung under
// mutex_, for one who wakes up wants it at once.
//
// unfinished_ and is_closed_ are atomics without the lock. The last object and close() may come at
// the same time from two threads: each writes its own first and then reads the other's, so one of
// the two at least sees both and rings everybody. Ringing twice does no harm.
#include <utility>

#include "copy/transfer.h"

namespace headrace::copy_detail {
namespace {

// A listing may be this far ahead of the copying: about 1 MiB of names.
constexpr std::size_t kMostQueued = 8192;
// As much as one mover takes at a time, roughly.
constexpr std::size_t kTogether = 16;

/// Moves the next parts of `large` that are still to be moved; true when it has no more after them.
bool take_parts(const std::shared_ptr<LargeCopy>& large, std::vector<Unit>& out,
                std::size_t& room) {
  const TimePoint now = system_clock().now();
  MutexLock lock(large->mutex);
  while (large->next_part < large->part_count) {
    if (room == 0) return false;
    const std::uint32_t part = large->next_part++;
    if (large->is_there[part]) continue;
    Unit unit;
    unit.large = large;
    unit.part = part;
    unit.began = now;
    out.push_back(std::move(unit));
    --room;
  }
  return true;
}

}  // namespace

bool WorkQueue::push(std::vector<Item>& items) {
  if (items.empty()) return true;
  const std::size_t count = items.size();
  {
    MutexLock lock(mutex_);
    while (!is_stopped_ && small_.size() >= kMostQueued) lock.wait(room_);
    if (is_stopped_) return false;
    for (Item& item : items) small_.push_back(std::move(item));
  }
  items.clear();
  ring_hungry(count);
  return true;
}

bool WorkQueue::push_again(Item item) {
  {
    MutexLock lock(mutex_);
    if (is_stopped_) return false;
    small_.push_back(std::move(item));
  }
  ring_hungry(1);
  return true;
}

void WorkQueue::add_large(std::shared_ptr<LargeCopy> large) {
  const std::size_t parts = large->part_count;
  {
    MutexLock lock(mutex_);
    large_.push_back(std::move(large));
  }
  ring_hungry(parts);
}

bool WorkQueue::pull(std::vector<Unit>& out, std::size_t most) {
  bool is_roomy = false;
  const std::size_t before = out.size();
  {
    MutexLock lock(mutex_);
    // Large objects first: they take longest, and each holds a file or an upload open.
    while (!large_.empty() && most > 0 && pull_parts(out, most)) large_.pop_front();
    while (!small_.empty() && most > 0) {
      Unit unit;
      unit.item = std::move(small_.front());
      small_.pop_front();
      out.push_back(std::move(unit));
      --most;
    }
    // Half empty, not one place: the lister then adds many names for one wake-up.
    is_roomy = small_.size() < kMostQueued / 2;
  }
  if (is_roomy) room_.notify_one();
  return out.size() > before;
}

/// Of the first large object; true when it has no more after them.
bool WorkQueue::pull_parts(std::vector<Unit>& out, std::size_t& most) {
  if (!is_limited_) return take_parts(large_.front(), out, most);
  const std::size_t granted = window_.take(most);
  std::size_t left = granted;
  const bool has_ended = take_parts(large_.front(), out, left);
  window_.give_back(left);
  most -= granted - left;
  return has_ended;
}

void WorkQueue::end_part(std::uint64_t moved_bytes, TimePoint began) {
  if (!is_limited_) return;
  if (moved_bytes > 0) {
    window_.end_part(moved_bytes, began, system_clock().now());
  } else {
    window_.give_back(1);
  }
  // Whoever slept because the window was full.
  ring_hungry(2 * kTogether);
}

bool WorkQueue::waits_for_window() {
  MutexLock lock(mutex_);
  return is_limited_ && !large_.empty() && window_.is_full();
}

void WorkQueue::see_arrived(std::uint64_t bytes) {
  {
    MutexLock lock(mutex_);
    if (large_.empty()) return;
    window_.see_arrived(bytes, large_.front()->part_bytes, system_clock().now());
    if (window_.is_full()) return;
  }
  ring_hungry(2 * kTogether);
}

std::deque<std::shared_ptr<LargeCopy>> WorkQueue::take_large() {
  MutexLock lock(mutex_);
  return std::exchange(large_, {});
}

void WorkQueue::finish_one() noexcept {
  if (--unfinished_ == 0 && is_closed_) ring_all();
}

void WorkQueue::close() noexcept {
  is_closed_ = true;
  if (unfinished_ == 0) ring_all();
}

void WorkQueue::stop() noexcept {
  {
    MutexLock lock(mutex_);
    is_stopped_ = true;
  }
  room_.notify_all();
  ring_all();
}

void WorkQueue::ring_all() noexcept {
  for (Sleeper* sleeper : sleepers_) sleeper->ring();
}

void WorkQueue::ring_hungry(std::size_t count) noexcept {
  for (Sleeper* sleeper : sleepers_) {
    if (count == 0) return;
    if (!sleeper->is_hungry.exchange(false)) continue;
    sleeper->ring();
    count -= std::min(count, kTogether);
  }
}

}  // namespace headrace::copy_detail
