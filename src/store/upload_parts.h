#pragma once
/// \file
/// How an object whose size is known is cut into the parts of an upload, and what is noted of a
/// part that has arrived.
///
/// Threads: pure functions.
#include <algorithm>
#include <cstdint>
#include <utility>

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

/// What complete_upload() is told of a part of `size_bytes`. Takes the texts of `done`. \pre it has
/// succeeded.
inline UploadedPart arrived_part(std::uint32_t number, std::uint64_t size_bytes, Completion& done) {
  return {.part_number = number,
          .etag = std::move(done.etag),
          .size_bytes = size_bytes,
          .checksum = std::move(done.checksum)};
}

}  // namespace headrace
