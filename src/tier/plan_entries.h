#pragma once
/// \file
/// Looking into the entries of a plan, which are sorted by object and offset. Their ranges do not
/// overlap; what is needed more than twice has several entries of the same range.
///
/// Threads: functions; any.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
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
  if (at == entries.begin() || std::prev(at)->range.object != range.object ||
      range_end(std::prev(at)->range) <= range.offset_bytes)
    return at;
  const ExtentName& around = std::prev(at)->range;
  while (at != entries.begin() && std::prev(at)->range == around) --at;
  return at;
}

inline bool is_inside(const PlanEntry& entry, const ExtentName& range) noexcept {
  return entry.range.object == range.object && entry.range.offset_bytes < range_end(range);
}

inline std::uint32_t need_of(const PlanEntry& entry) noexcept {
  return entry.first != PlanEntry::kNever ? entry.first : entry.second;
}

/// Bytes of `range` are read: of each range of the plan that begins in them the soonest need is
/// over. Calls `mark` for the words that say so, which become kNever.
template <class Mark>
void visit_over(std::span<PlanEntry> entries, const ExtentName& range, const Mark& mark) {
  for (auto at = find_first(entries, range); at != entries.end() && is_inside(*at, range);) {
    auto soonest = at;
    const auto begin = at;
    for (; at != entries.end() && at->range == begin->range; ++at)
      if (need_of(*at) < need_of(*soonest)) soonest = at;
    // Parts of a range are read one by one, a lane's share of a block maybe without its first:
    // where it begins it counts.
    if (begin->range.offset_bytes >= range.offset_bytes)
      mark(soonest->first != PlanEntry::kNever ? soonest->first : soonest->second);
  }
}

}  // namespace headrace::tier
