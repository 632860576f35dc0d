#include "pack/memory_share.h"

#include <zstd.h>

#include <algorithm>

#include "headrace/memory.h"

namespace headrace::pack_detail {
namespace {

constexpr std::uint64_t kLeastMemoryBytes = 1 << 20;
// A worker that holds less than this of a shard at a time makes more requests than it saves time.
constexpr std::uint64_t kGoodPartBytes = 16 << 20;
// One PUT of S3 takes 5 GiB; beyond this size parts cost nothing.
constexpr std::uint64_t kMostPartBytes = std::uint64_t{1} << 30;
// An eighth of a share keeps hundreds of small files or four chunks in flight.
constexpr std::uint64_t kReadFraction = 8;
constexpr std::uint64_t kMostReadBytes = 64 << 20;
// One connection to a store brings 50 to 100 MB/s: longer reads only leave fewer of them.
constexpr std::uint64_t kMostChunkBytes = 4 << 20;

/// Memory for a shard of this size in one piece, reads not included.
std::uint64_t whole_bytes(const PackPlan& plan, std::uint64_t image_bytes) {
  std::uint64_t bytes = SlabPool::charged_bytes(image_bytes);
  if (plan.is_compressed()) bytes += SlabPool::charged_bytes(compressed_bound(image_bytes));
  return bytes;
}

MemoryShare divide(std::uint64_t memory_bytes, std::uint32_t workers) {
  MemoryShare share;
  share.worker_count = workers;
  share.share_bytes = memory_bytes / workers;
  share.read_bytes = std::min(share.share_bytes / kReadFraction, kMostReadBytes);
  share.is_read_bounded = share.read_bytes == kMostReadBytes;
  share.chunk_bytes =
      std::clamp<std::uint64_t>(share.read_bytes / 4 / 4096 * 4096, 4096, kMostChunkBytes);
  // Size classes are at most a quarter larger than what is asked for.
  const std::uint64_t room = share.share_bytes - share.read_bytes;
  share.part_bytes = std::clamp<std::uint64_t>(room / 5 * 4 / 4096 * 4096, 4096, kMostPartBytes);
  return share;
}

}  // namespace

std::uint64_t compressed_bound(std::uint64_t image_bytes) noexcept {
  return ZSTD_compressBound(image_bytes);
}

Result<MemoryShare> share_memory(const PackPlan& plan, std::uint64_t memory_bytes,
                                 std::uint32_t wanted_workers, std::uint32_t most_workers,
                                 const StoreTraits& target) {
  if (memory_bytes < kLeastMemoryBytes) {
    return Status(Code::kInvalidArgument, "pack: memory_bytes is less than 1 MiB");
  }
  std::uint64_t largest = 0;
  for (const ShardPlan& shard : plan.shards) largest = std::max(largest, shard.image_bytes);
  const bool is_whole = plan.is_compressed() || plan.layout == Layout::kMdsTokens;
  const std::uint64_t most_whole = is_whole ? target.max_put_bytes : kMostPartBytes;
  if (is_whole && largest > most_whole) {
    return Status(Code::kInvalidArgument,
                  "pack: a shard of " + std::to_string(largest) +
                      " bytes is written as a whole, and the target takes " +
                      std::to_string(most_whole) +
                      " bytes at once; make smaller shards, or leave out the compression");
  }
  // One shard of a single large file should not take the workers from all others: it goes in parts.
  const std::uint64_t usual = is_whole ? largest : std::min(largest, plan.shard_bytes);
  const std::uint64_t least_part =
      std::max(target.min_part_bytes, (largest + target.max_parts - 1) / target.max_parts);
  std::uint64_t needed = whole_bytes(plan, usual);
  const auto most =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(plan.shards.size(), 1, most_workers));
  const auto is_taken = [&](std::uint64_t part_bytes) {
    return is_whole || largest <= part_bytes || part_bytes >= least_part;
  };
  for (std::uint32_t workers = most; workers >= 1; --workers) {
    MemoryShare share = divide(memory_bytes, workers);
    const bool is_good_part = workers == 1 || share.part_bytes >= kGoodPartBytes;
    if (needed + share.read_bytes <= share.share_bytes && usual <= most_whole) {
      share.part_bytes = std::max(share.part_bytes, usual);
      if (is_taken(share.part_bytes)) return share;
    }
    if (workers > wanted_workers) continue;
    if (!is_whole && is_good_part && is_taken(share.part_bytes)) return share;
  }
  // In parts no less than the target takes, where that is less than a shard.
  if (!is_whole) needed = std::min(needed, least_part / 4 * 5);
  return Status(Code::kExhausted,
                "pack: a shard of " + std::to_string(largest) + " bytes needs " +
                    std::to_string(needed + needed / (kReadFraction - 1) + kLeastMemoryBytes) +
                    " bytes of memory, the limit is " + std::to_string(memory_bytes) +
                    "; give more memory or smaller shards");
}

}  // namespace headrace::pack_detail
