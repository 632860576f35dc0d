#pragma once
/// \file
/// Request rates of partitioned prefixes: token buckets in a tree that splits where a prefix stays
/// over its limit, and limits that grow with use. Pure but for a lock; time is an argument.
///
/// A bucket is one partition at first. A split one hands its keys to a partition for each next
/// component of the key ("a/" of "a/b/c"), below the last component to two by hash: S3 splits
/// anywhere in the key.
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "headrace/clock.h"

namespace headrace::sim {

class RequestLimits {
 public:
  struct Rules {
    double reads_per_s = 0;  ///< 0: no limit.
    double writes_per_s = 0;
    std::chrono::milliseconds partition_after{0};  ///< 0: never.
    std::chrono::milliseconds ramp_period{0};      ///< 0: no growth.
  };
  /// Counts one request. False: over the limit, answer SlowDown.
  bool admit(std::string_view bucket, std::string_view key, bool is_read, const Rules& rules,
             TimePoint now) HEADRACE_EXCLUDES(mutex_);
  std::size_t partition_count() const HEADRACE_EXCLUDES(mutex_);
  void reset() HEADRACE_EXCLUDES(mutex_);

 private:
  struct Meter {         // reads or writes
    double tokens = -1;  // < 0: not used yet
    TimePoint filled_at{};
    double scale = 1;
    TimePoint scaled_at{};
    TimePoint window_begin{};
    std::uint64_t window_count = 0;
    bool take(double limit_per_s, const Rules& rules, TimePoint now);
    void grow(double limit_per_s, const Rules& rules, TimePoint now);
  };
  struct Node {
    std::array<Meter, 2> meters;
    TimePoint over_since = TimePoint::min();
    TimePoint over_at = TimePoint::min();
    bool is_split = false;
    std::map<std::string, std::unique_ptr<Node>, std::less<>> children;
  };
  Node& find(std::string_view bucket, std::string_view key) HEADRACE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Node>, std::less<>> buckets_ HEADRACE_GUARDED_BY(mutex_);
  std::size_t node_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::sim
