#pragma once
/// \file
/// Histogram of non-negative integers (times, sizes) with logarithmic buckets.
///
/// Threads: any. record() is one relaxed add; it never allocates or blocks. Size: 7.6 KiB.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "headrace/metrics.h"

namespace headrace {

class Histogram {
 public:
  void record(std::uint64_t value) noexcept;

  std::uint64_t count() const noexcept;
  std::uint64_t sum() const noexcept { return sum_.load(std::memory_order_relaxed); }
  /// Smallest bucket bound that at least `share` (0 .. 1) of the values do not exceed: the true
  /// percentile or at most 1/16 more. 0 when nothing was recorded. O(buckets).
  std::uint64_t percentile(double share) const noexcept;
  /// Appends NAME_p50_UNIT, NAME_p99_UNIT and NAME_max_UNIT (the latter within 1/16), quantiles of
  /// the family NAME_UNIT. `unit` is static.
  void append_to(MetricList& out, std::string_view name, std::string_view unit) const;

  /// 16 buckets for each power of two; the values below 16 have one each.
  static constexpr std::size_t kBucketCount = 16 + 60 * 16;
  static std::size_t bucket_of(std::uint64_t value) noexcept;
  /// Largest value of a bucket.
  static std::uint64_t bucket_bound(std::size_t bucket) noexcept;

 private:
  std::array<std::atomic<std::uint64_t>, kBucketCount> buckets_{};
  std::atomic<std::uint64_t> sum_{0};
};

}  // namespace headrace
