#pragma once
/// \file
/// Whether the values of a decoded column are worth being kept, from what was measured of them.
///
/// Threads: MeanTime any; functions any.
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "headrace/clock.h"

namespace headrace::feed {

/// How long something takes on average, once it was done often enough.
class MeanTime {
 public:
  /// Less says little: the first ones load tables and caches.
  static constexpr std::uint64_t kLeastCount = 16;

  /// \return how often by now.
  std::uint64_t add(TimePoint::duration took) noexcept {
    total_ns_.fetch_add(static_cast<std::uint64_t>(took.count()), std::memory_order_relaxed);
    return count_.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  /// None before it was done kLeastCount times.
  std::optional<double> seconds() const noexcept;
  void reset() noexcept;  ///< What is added meanwhile may be lost.

 private:
  // Two numbers that are a hint together, so relaxed.
  std::atomic<std::uint64_t> total_ns_{0}, count_{0};
};

enum class CacheVerdict : std::uint8_t {
  kUnknown,    ///< Not measured yet.
  kKept,       ///< Its values are kept, and read.
  kCheap,      ///< Decoding takes about as long as reading.
  kNoRoom,     ///< The cache cannot hold all of them beside the stored bytes.
  kSlowCache,  ///< Reading turned out to take longer than decoding.
};

/// What is known of a column.
struct CacheCosts {
  std::optional<double> decode_s, read_s;  ///< Of a value.
  std::uint64_t value_bytes = 0;
  std::uint64_t needed_bytes = 0;  ///< For everything, in files of the cache.
  std::uint64_t capacity_bytes = 0;
};

/// Pure. kUnknown without decode_s.
CacheVerdict judge_cache(const CacheCosts& costs) noexcept;
/// For people: "is kept decoded in the cache: decoding a value takes 812 us, reading it 170 us".
std::string explain_cache(const CacheCosts& costs, CacheVerdict verdict);

}  // namespace headrace::feed
