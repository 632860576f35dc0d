#include "shard/index/block_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace headrace::detail {
namespace {

__extension__ using Wide = unsigned __int128;

// First sample in [low, count) that begins at or after `offset`.
std::uint64_t first_at_or_after(const IndexView& index, const ShardRecord& shard, std::uint64_t low,
                                std::uint64_t offset) {
  std::uint64_t high = shard.sample_count;
  if (shard.bounds.first_group == kNoGroups && !shard.has_gaps && shard.bounds.stride > 0) {
    if (offset <= shard.bounds.base) return low;
    const std::uint64_t found = (offset - shard.bounds.base - 1) / shard.bounds.stride + 1;
    return std::clamp(found, low, high);
  }
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (index.begin_of(shard, middle) < offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

Block plain_block(const IndexView& index, std::uint32_t shard_index, std::uint64_t begin,
                  std::uint64_t end) {
  const ShardRecord& shard = index.shards()[shard_index];
  const std::uint64_t from = index.begin_of(shard, begin);
  const std::uint64_t to = std::max(from, index.end_of(shard, end - 1));
  return Block{.shard = shard_index,
               .sample_count = static_cast<std::uint32_t>(end - begin),
               .first_sample = shard.first_sample + begin,
               .stored_bytes = to - from,
               .raw_bytes = to - from};
}

}  // namespace

std::uint64_t default_block_bytes(std::uint64_t stored_bytes) noexcept {
  constexpr std::uint64_t kBlocksWanted = 1024;
  constexpr std::uint64_t kLeast = std::uint64_t{1} << 20, kMost = std::uint64_t{8} << 20;
  return std::clamp(std::bit_floor(stored_bytes / kBlocksWanted), kLeast, kMost);
}

Result<std::vector<Block>> make_blocks(const IndexView& index, std::uint64_t block_bytes,
                                       std::uint64_t most_blocks) {
  if (block_bytes == 0) {
    std::uint64_t stored_bytes = 0;
    for (const ShardRecord& shard : index.shards()) stored_bytes += shard.stored_bytes;
    block_bytes = default_block_bytes(stored_bytes);
  }
  if (block_bytes < kSmallestBlockBytes || block_bytes > kLargestBlockBytes) {
    return Status(Code::kInvalidArgument,
                  fmt::format("block_bytes={}: must be {} .. {}", block_bytes, kSmallestBlockBytes,
                              kLargestBlockBytes));
  }
  std::vector<Block> blocks;
  for (std::size_t s = 0; s < index.shards().size(); ++s) {
    const ShardRecord& shard = index.shards()[s];
    const auto shard_index = static_cast<std::uint32_t>(s);
    if (shard.sample_count == 0) continue;
    std::uint64_t parts = 1;
    std::uint64_t from = 0, total = 0;
    if (shard.compression == Compression::kNone) {
      from = index.begin_of(shard, 0);
      total = std::max(from, index.end_of(shard, shard.sample_count - 1)) - from;
      parts =
          std::clamp<std::uint64_t>((total + block_bytes - 1) / block_bytes, 1, shard.sample_count);
    }
    if (parts > most_blocks || blocks.size() + parts > most_blocks) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("more than {} blocks; raise block_bytes (now {})", most_blocks, block_bytes));
    }
    if (shard.compression != Compression::kNone) {
      blocks.push_back({shard_index, static_cast<std::uint32_t>(shard.sample_count),
                        shard.first_sample, shard.stored_bytes, shard.raw_bytes});
      continue;
    }
    // Even parts rather than full blocks and a rest: a rest of a few KiB would cost a request like
    // any other.
    std::uint64_t begin = 0;
    for (std::uint64_t j = 1; j <= parts && begin < shard.sample_count; ++j) {
      const auto target = static_cast<std::uint64_t>(static_cast<Wide>(total) * j / parts);
      std::uint64_t end =
          j == parts ? shard.sample_count : first_at_or_after(index, shard, begin, from + target);
      if (end == begin) continue;
      blocks.push_back(plain_block(index, shard_index, begin, end));
      begin = end;
    }
  }
  return blocks;
}

}  // namespace headrace::detail
