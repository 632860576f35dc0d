#pragma once
/// \file
/// Timers of one reactor: a binary heap of timers that live inside the objects that they belong to,
/// so that setting one allocates nothing once the heap has reached its size.
///
/// Threads: owner thread only.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "headrace/clock.h"

namespace headrace {

/// One timer. Must not move or die while set.
class Timer {
 public:
  explicit Timer(void* owner_in, std::uint8_t kind_in = 0) noexcept
      : owner(owner_in), kind(kind_in) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { HEADRACE_DCHECK(!is_set()); }

  bool is_set() const noexcept { return index_ != kUnset; }
  TimePoint when() const noexcept { return when_; }

  void* const owner;        ///< For the caller.
  const std::uint8_t kind;  ///< For the caller.

 private:
  friend class TimerHeap;
  static constexpr std::size_t kUnset = std::numeric_limits<std::size_t>::max();
  std::size_t index_ = kUnset;
  TimePoint when_{};
};

class TimerHeap {
 public:
  explicit TimerHeap(std::size_t reserve_count = 0) { heap_.reserve(reserve_count); }

  /// Sets or moves a timer. O(log n), O(1) when it becomes the latest.
  void set(Timer& timer, TimePoint when) {
    if (!timer.is_set()) {
      timer.index_ = heap_.size();
      heap_.push_back(&timer);
      timer.when_ = when;
      sift_up(timer.index_);
      return;
    }
    const bool is_earlier = when < timer.when_;
    timer.when_ = when;
    is_earlier ? sift_up(timer.index_) : sift_down(timer.index_);
  }

  void clear(Timer& timer) {
    if (!timer.is_set()) return;
    const std::size_t hole = timer.index_;
    Timer* last = heap_.back();
    heap_.pop_back();
    timer.index_ = Timer::kUnset;
    if (last == &timer) return;
    place(hole, last);
    sift_up(hole);
    sift_down(last->index_);
  }

  /// The earliest, or TimePoint::max() without any.
  TimePoint next() const noexcept {
    return heap_.empty() ? TimePoint::max() : heap_.front()->when_;
  }

  /// Unsets and returns a timer that is due, the earliest first; nullptr without any.
  Timer* pop_due(TimePoint now) {
    if (heap_.empty() || heap_.front()->when_ > now) return nullptr;
    Timer* due = heap_.front();
    clear(*due);
    return due;
  }

  std::size_t size() const noexcept { return heap_.size(); }

 private:
  void place(std::size_t index, Timer* timer) {
    heap_[index] = timer;
    timer->index_ = index;
  }
  void sift_up(std::size_t index) {
    Timer* timer = heap_[index];
    while (index > 0 && timer->when_ < heap_[(index - 1) / 2]->when_) {
      place(index, heap_[(index - 1) / 2]);
      index = (index - 1) / 2;
    }
    place(index, timer);
  }
  void sift_down(std::size_t index) {
    Timer* timer = heap_[index];
    for (std::size_t child = 2 * index + 1; child < heap_.size(); child = 2 * index + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1]->when_ < heap_[child]->when_) ++child;
      if (timer->when_ <= heap_[child]->when_) break;
      place(index, heap_[child]);
      index = child;
    }
    place(index, timer);
  }

  std::vector<Timer*> heap_;
};

}  // namespace headrace
