#pragma once
/// \file
/// For tests of src/feed: keeps values in memory, loses some, and counts.
///
/// Threads: any.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "headrace/value_cache.h"

namespace headrace::feed_test {

class KeepingCache : public ValueCache {
 public:
  explicit KeepingCache(std::uint64_t capacity_bytes = std::uint64_t{1} << 40)
      : capacity_bytes_(capacity_bytes) {}

  std::uint64_t capacity_bytes() const override { return capacity_bytes_; }
  bool read(const ValueSeries& series, std::uint32_t index, std::span<std::byte> out) override {
    MutexLock lock(mutex_);
    ++look_count_;
    const auto found = values_.find(name_of(series, index));
    if (found == values_.end()) return false;
    EXPECT_EQ(found->second.size(), out.size());
    std::copy(found->second.begin(), found->second.end(), out.begin());
    return true;
  }
  void keep(const ValueSeries& series, std::uint32_t index,
            std::span<const std::byte> value) override {
    EXPECT_LT(index, series.count);
    EXPECT_EQ(value.size(), series.value_bytes);
    MutexLock lock(mutex_);
    values_[name_of(series, index)].assign(value.begin(), value.end());
  }
  void settle() override {
    MutexLock lock(mutex_);
    ++settled_count_;
  }

  std::size_t value_count() {
    MutexLock lock(mutex_);
    return values_.size();
  }
  /// How often a value was looked for.
  std::uint64_t look_count() {
    MutexLock lock(mutex_);
    return look_count_;
  }
  std::uint64_t settled_count() {
    MutexLock lock(mutex_);
    return settled_count_;
  }
  /// Nothing stays of a share of the values.
  void lose(Random& random, double share) {
    MutexLock lock(mutex_);
    std::erase_if(values_, [&](const auto&) { return random.unit() < share; });
  }

 private:
  using Name = std::tuple<std::string, std::string, std::uint32_t>;  // Key, version, index.
  static Name name_of(const ValueSeries& series, std::uint32_t index) {
    return {std::string(series.key), std::string(series.version), index};
  }

  const std::uint64_t capacity_bytes_;
  Mutex mutex_;
  std::map<Name, std::vector<std::byte>> values_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t look_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint64_t settled_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::feed_test
