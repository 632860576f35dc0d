#pragma once
/// \file
/// How the memory of a pack is divided: how many workers fit, and the largest piece of a shard that
/// one may hold. Pure.
#include <cstdint>

#include "headrace/store.h"
#include "pack/plan.h"

namespace headrace::pack_detail {

struct MemoryShare {
  std::uint32_t worker_count = 1;
  std::uint64_t share_bytes =
      0;  ///< Of one worker: images being made or written, and reads in flight.
  std::uint64_t read_bytes = 0;   ///< Part of it for reads in flight;
  bool is_read_bounded = false;   ///< with more memory it would be no larger.
  std::uint64_t chunk_bytes = 0;  ///< Longest single read.
  std::uint64_t part_bytes = 0;   ///< A larger shard is written in parts of this size.
};

/// At most `wanted_workers` (> 0), fewer when memory_bytes does not give each what a shard needs;
/// up to `most_workers` where each still has room for a shard in one piece. `target`: its sizes of
/// parts and objects hold. Errors: kExhausted (names the memory that one shard needs; token and
/// compressed shards are made as a whole), kInvalidArgument (below 1 MiB; a shard in one piece that
/// the target does not take).
Result<MemoryShare> share_memory(const PackPlan& plan, std::uint64_t memory_bytes,
                                 std::uint32_t wanted_workers, std::uint32_t most_workers,
                                 const StoreTraits& target);

/// Upper bound of a shard's size after compression.
std::uint64_t compressed_bound(std::uint64_t image_bytes) noexcept;

}  // namespace headrace::pack_detail
