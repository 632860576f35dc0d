// Orders and the states of loaders count in blocks: samples that fell into other blocks would be
// another order, and a state of before would be refused (block_table_digest). The rule of cutting
// is therefore part of the formats (docs/formats.md, "Block rule 1").
//
// Cuts fall on samples, next to even shares of the bytes. A cut is found by division where samples
// have one size and by binary search elsewhere, so the cost of a shard grows with its blocks, not
// with its samples.
#include "shard/index/block_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace headrace::detail {
namespace {

__extension__ using Wide128 = unsigned __int128;

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

// Last frame that begins at or before `sample`.
std::uint32_t frame_holding(const IndexView& index, const ShardRecord& shard,
                            std::uint64_t sample) noexcept {
  std::uint32_t low = 0, high = shard.frame_count;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (index.frame_of(shard, middle).first_sample <= sample) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Fills the block table; one call a shard.
class Cutter {
 public:
  Cutter(const IndexView& index, std::uint64_t block_bytes, std::uint64_t most_blocks,
         std::vector<Block>& blocks)
      : index_(index), block_bytes_(block_bytes), most_blocks_(most_blocks), blocks_(blocks) {}

  Status cut(std::uint32_t shard_index) {
    shard_index_ = shard_index;
    const ShardRecord& shard = index_.shards()[shard_index];
    if (shard.sample_count == 0) return Status();
    if (shard.compression == Compression::kNone) return cut_plain(shard);
    if (shard.frame_count > 0) return cut_frames(shard);
    return add({shard_index, static_cast<std::uint32_t>(shard.sample_count), shard.first_sample,
                shard.stored_bytes, shard.raw_bytes});
  }

 private:
  Status add(const Block& block) {
    if (blocks_.size() >= most_blocks_) return too_many();
    blocks_.push_back(block);
    return Status();
  }
  Status too_many() const {
    return Status(
        Code::kInvalidArgument,
        fmt::format("more than {} blocks; raise block_bytes (now {})", most_blocks_, block_bytes_));
  }

  // Even parts rather than full blocks and a rest: a rest of a few KiB would cost a request like
  // any other.
  Status cut_plain(const ShardRecord& shard) {
    const std::uint64_t from = index_.begin_of(shard, 0);
    const std::uint64_t total = std::max(from, index_.end_of(shard, shard.sample_count - 1)) - from;
    const std::uint64_t parts =
        std::clamp<std::uint64_t>((total + block_bytes_ - 1) / block_bytes_, 1, shard.sample_count);
    if (parts > most_blocks_) return too_many();
    std::uint64_t begin = 0;
    for (std::uint64_t j = 1; j <= parts && begin < shard.sample_count; ++j) {
      const auto target = static_cast<std::uint64_t>(static_cast<Wide128>(total) * j / parts);
      const std::uint64_t end =
          j == parts ? shard.sample_count : first_at_or_after(index_, shard, begin, from + target);
      if (end == begin) continue;
      HEADRACE_TRY(add(plain_block(index_, shard_index_, begin, end)));
      begin = end;
    }
    return Status();
  }

  // Greedy, unlike plain shards: frames may be larger than blocks, and two of those should not be
  // in one.
  Status cut_frames(const ShardRecord& shard) {
    Block block{.shard = shard_index_};
    Frame first = index_.frame_of(shard, 0);
    for (std::uint32_t i = 0; i < shard.frame_count; ++i) {
      const Frame frame = index_.frame_of(shard, i);
      const std::uint64_t next = i + 1 < shard.frame_count
                                     ? index_.frame_of(shard, i + 1).first_sample
                                     : shard.sample_count;
      if (next == frame.first_sample) continue;  // Without samples: nobody needs it.
      const std::uint64_t stored = frame.stored_begin + frame.stored_bytes - first.stored_begin;
      const std::uint64_t raw = frame.raw_begin + frame.raw_bytes - first.raw_begin;
      if (block.sample_count > 0 && std::max(stored, raw) > block_bytes_) {
        HEADRACE_TRY(add(block));
        block.sample_count = 0;
      }
      if (block.sample_count == 0) {
        first = frame;
        block.first_sample = shard.first_sample + frame.first_sample;
      }
      block.sample_count =
          static_cast<std::uint32_t>(shard.first_sample + next - block.first_sample);
      block.stored_bytes = frame.stored_begin + frame.stored_bytes - first.stored_begin;
      block.raw_bytes = frame.raw_begin + frame.raw_bytes - first.raw_begin;
    }
    return block.sample_count > 0 ? add(block) : Status();
  }

  const IndexView& index_;
  const std::uint64_t block_bytes_;
  const std::uint64_t most_blocks_;
  std::vector<Block>& blocks_;
  std::uint32_t shard_index_ = 0;
};

}  // namespace

FrameRun frames_of(const IndexView& index, const ShardRecord& shard, std::uint64_t first,
                   std::uint64_t count) noexcept {
  return {frame_holding(index, shard, first), frame_holding(index, shard, first + count - 1) + 1};
}

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
  blocks.reserve(std::min<std::uint64_t>(index.shards().size(), most_blocks));
  Cutter cutter(index, block_bytes, most_blocks, blocks);
  for (std::size_t s = 0; s < index.shards().size(); ++s)
    HEADRACE_TRY(cutter.cut(static_cast<std::uint32_t>(s)));
  return blocks;
}

}  // namespace headrace::detail
