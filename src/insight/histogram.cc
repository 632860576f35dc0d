#include "insight/histogram.h"

#include <bit>
#include <cmath>
#include <string>

namespace headrace {

std::size_t Histogram::bucket_of(std::uint64_t value) noexcept {
  if (value < 16) return static_cast<std::size_t>(value);
  const auto shift =
      static_cast<unsigned>(std::bit_width(value)) - 5;  // value >> shift is in [16, 32)
  return 16 * std::size_t{shift} + static_cast<std::size_t>(value >> shift);
}

std::uint64_t Histogram::bucket_bound(std::size_t bucket) noexcept {
  if (bucket < 16) return bucket;
  const std::size_t shift = bucket / 16 - 1;
  const std::uint64_t first = std::uint64_t{bucket % 16 + 16} << shift;
  return first + ((std::uint64_t{1} << shift) - 1);
}

void Histogram::record(std::uint64_t value) noexcept {
  buckets_[bucket_of(value)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::uint64_t Histogram::count() const noexcept {
  std::uint64_t total = 0;
  for (const auto& bucket : buckets_) total += bucket.load(std::memory_order_relaxed);
  return total;
}

std::uint64_t Histogram::percentile(double share) const noexcept {
  const std::uint64_t total = count();
  if (total == 0) return 0;
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(total)));
  std::uint64_t seen = 0;
  std::uint64_t bound = 0;
  for (std::size_t i = 0; i < kBucketCount; ++i) {
    const std::uint64_t here = buckets_[i].load(std::memory_order_relaxed);
    if (here == 0) continue;
    seen += here;
    bound = bucket_bound(i);
    if (seen >= wanted) break;
  }
  return bound;
}

void Histogram::append_to(MetricList& out, std::string_view name, std::string_view unit) const {
  const std::string begin(name);
  const auto append = [&](const char* which, const char* quantile, double share) {
    out.push_back({.name = begin + which + std::string(unit),
                   .value = static_cast<double>(percentile(share)),
                   .kind = MetricKind::kQuantile,
                   .unit = unit,
                   .family = begin + "_" + std::string(unit),
                   .labels = {{"quantile", quantile}}});
  };
  append("_p50_", "0.5", 0.5);
  append("_p99_", "0.99", 0.99);
  append("_max_", "1", 1.0);
}

}  // namespace headrace
