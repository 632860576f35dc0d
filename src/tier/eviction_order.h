#pragma once
/// \file
/// In which order extents go when a cache needs room, and how many at once. Pure: the cache and its
/// simulation ask it.
///
/// Threads: functions; any.
#include <cstdint>
#include <optional>
#include <vector>

#include "tier/extent_name.h"

namespace headrace::tier {

/// Of the limit: evicted at once, so that looking at all extents pays.
inline constexpr std::uint64_t kEvictedShare = 64;
/// Of the extents: so many are looked for before it is tried again to make room, after there was
/// none to make.
inline constexpr std::uint64_t kPauseShare = 256;

/// An extent that may go, and why it should not.
struct Candidate {
  ExtentName name;
  std::uint64_t file_bytes = 0;
  /// Batches until it is needed; none: in nobody's plan, or not again as far as is known.
  std::optional<std::uint32_t> need;
  bool was_hit = false;       ///< Read again since it came. These two only where there is no need.
  std::int64_t since_ns = 0;  ///< Of the hit, or of the file.
};

/// First what nobody plans to read: what was never read again as long as it is more than a tenth,
/// oldest first, then what was read again longest ago. Then what is needed last (Belady's rule).
std::vector<Candidate> eviction_order(std::vector<Candidate> all);

}  // namespace headrace::tier
