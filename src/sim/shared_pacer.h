#pragma once
/// \file
/// Bandwidth that several connections share: each books a slot for its next bytes. Any thread.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"
#include "headrace/clock.h"

namespace headrace::sim {

class SharedPacer {
 public:
  /// When `bytes` may move, in the order of the calls. Time left unused for more than 20 ms is
  /// lost; less makes up for late wake-ups.
  TimePoint book(std::uint64_t bytes, double bytes_per_s, TimePoint now) HEADRACE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    next_ = std::max(next_, now - std::chrono::milliseconds(20));
    const TimePoint at = next_;
    next_ += std::chrono::nanoseconds(
        static_cast<std::int64_t>(static_cast<double>(bytes) / bytes_per_s * 1e9));
    return at;
  }

 private:
  Mutex mutex_;
  TimePoint next_ HEADRACE_GUARDED_BY(mutex_){};
};

/// The pacers of parts of objects, by hash. Bounded: a full table starts anew.
class PartPacers {
 public:
  std::shared_ptr<SharedPacer> of(std::uint64_t part_id) HEADRACE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (pacers_.size() >= kMaxParts) pacers_.clear();
    auto& pacer = pacers_[part_id];
    if (!pacer) pacer = std::make_shared<SharedPacer>();
    return pacer;
  }

 private:
  static constexpr std::size_t kMaxParts = 1 << 16;
  Mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<SharedPacer>> pacers_
      HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::sim
