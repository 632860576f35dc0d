#pragma once
/// \file
/// upload_part_bytes(): how an object whose size is known is cut into the parts of an upload.
///
/// Threads: a pure function.
#include <algorithm>
#include <cstdint>

#include "headrace/store.h"

namespace headrace {

/// Bytes of each part but the last: `wanted_bytes`; more where the store wants larger parts, or
/// where there would be more parts than it takes (10,000 on S3): then whole MiB.
inline std::uint64_t upload_part_bytes(std::uint64_t size_bytes, std::uint64_t wanted_bytes,
                                       const StoreTraits& traits) noexcept {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const std::uint64_t least = (size_bytes + traits.max_parts - 1) / traits.max_parts;
  const std::uint64_t wanted = std::max(wanted_bytes, traits.min_part_bytes);
  return least <= wanted ? wanted : (least + kMiB - 1) / kMiB * kMiB;
}

}  // namespace headrace
