#pragma once
/// \file
/// Looking into the entries of a plan, which are sorted by object and offset and do not overlap.
///
/// Threads: functions; any.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <tuple>

#include "tier/extent_name.h"

namespace headrace::tier {

/// A range that will be read. The numbers are batches of its reader; kNever: not as far as is
/// known.
struct PlanEntry {
  static constexpr std::uint32_t kNever = UINT32_MAX;
  ExtentName range;
  std::uint32_t first = kNever;   ///< kNever as well once it was read.
  std::uint32_t second = kNever;  ///< The next time.
};

inline std::uint64_t range_end(const ExtentName& range) noexcept {
  return range.offset_bytes + range.length_bytes;
}

/// The first entry that ends behind the beginning of `range`, in its object.
template <class Entries>
auto find_first(Entries& entries, const ExtentName& range) noexcept {
  auto at = std::upper_bound(entries.begin(), entries.end(), range,
                             [](const ExtentName& r, const PlanEntry& entry) {
                               return std::tuple(r.object, r.offset_bytes) <
                                      std::tuple(entry.range.object, entry.range.offset_bytes);
                             });
  if (at != entries.begin() && std::prev(at)->range.object == range.object &&
      range_end(std::prev(at)->range) > range.offset_bytes)
    --at;
  return at;
}

inline bool is_inside(const PlanEntry& entry, const ExtentName& range) noexcept {
  return entry.range.object == range.object && entry.range.offset_bytes < range_end(range);
}

inline std::uint32_t need_of(std::uint32_t first, std::uint32_t second) noexcept {
  return first != PlanEntry::kNever ? first : second;
}

}  // namespace headrace::tier
