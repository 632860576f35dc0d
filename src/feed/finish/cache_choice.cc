#include "feed/finish/cache_choice.h"

#include <cmath>

#include "base/strings.h"

namespace headrace::feed {
namespace {

/// Of a read that was not measured: opening a file, and a disk of 1 GB/s. What page caches and NVMe
/// do is less (bench/cache.py), what is slower shows as soon as it is measured.
constexpr double kOpenSeconds = 20e-6;
constexpr double kSecondsPerByte = 1e-9;
/// So much longer must decoding take: keeping a value costs about what reading it does.
constexpr double kLeastGain = 2;

double expected_read_s(const CacheCosts& costs) noexcept {
  return kOpenSeconds + kSecondsPerByte * static_cast<double>(costs.value_bytes);
}

std::string in_us(double seconds) { return std::to_string(std::llround(seconds * 1e6)) + " us"; }

}  // namespace

std::optional<double> MeanTime::seconds() const noexcept {
  const std::uint64_t count = count_.load(std::memory_order_relaxed);
  if (count < kLeastCount) return std::nullopt;
  return static_cast<double>(total_ns_.load(std::memory_order_relaxed)) / 1e9 /
         static_cast<double>(count);
}

void MeanTime::reset() noexcept {
  total_ns_.store(0, std::memory_order_relaxed);
  count_.store(0, std::memory_order_relaxed);
}

CacheVerdict judge_cache(const CacheCosts& costs) noexcept {
  if (!costs.decode_s) return CacheVerdict::kUnknown;
  if (costs.read_s && *costs.read_s > *costs.decode_s) return CacheVerdict::kSlowCache;
  if (!costs.read_s && *costs.decode_s < kLeastGain * expected_read_s(costs))
    return CacheVerdict::kCheap;
  if (costs.needed_bytes > costs.capacity_bytes) return CacheVerdict::kNoRoom;
  return CacheVerdict::kKept;
}

std::string explain_cache(const CacheCosts& costs, CacheVerdict verdict) {
  const std::string decoding = "decoding a value takes " + in_us(costs.decode_s.value_or(0));
  const std::string reading = costs.read_s ? "reading it " + in_us(*costs.read_s)
                                           : "reading it about " + in_us(expected_read_s(costs));
  switch (verdict) {
    case CacheVerdict::kKept:
      return "is kept decoded in the cache: " + decoding + ", " + reading;
    case CacheVerdict::kCheap:
    case CacheVerdict::kSlowCache:
      return "is decoded in each epoch: " + decoding + ", " + reading + " from the cache";
    case CacheVerdict::kNoRoom:
      return "is decoded in each epoch: the cache has " + in_mib(costs.capacity_bytes) +
             ", stored bytes and decoded values take " + in_mib(costs.needed_bytes);
    case CacheVerdict::kUnknown:
      break;
  }
  return "is measured";
}

}  // namespace headrace::feed
