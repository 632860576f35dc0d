#pragma once
/// \file
/// The block table: a pure function of an index and block_bytes (docs/formats.md, "Block rule 1").
/// It is computed when a dataset is opened, never stored, so it cannot disagree with the samples.
///
/// Threads: a function and values.
#include <cstdint>
#include <vector>

#include "headrace/dataset.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// Bounds of DatasetOptions::block_bytes.
inline constexpr std::uint64_t kSmallestBlockBytes = std::uint64_t{64} << 10;
inline constexpr std::uint64_t kLargestBlockBytes = std::uint64_t{1} << 30;
/// Bounds what a hostile index can make us allocate (32 bytes each); 2^25 blocks of 8 MiB are 256
/// TiB.
inline constexpr std::uint64_t kMostBlocks = std::uint64_t{1} << 25;

/// What DatasetOptions::block_bytes = 0 means: the power of two next below a 1024th of the stored
/// bytes, 1 .. 8 MiB. A loader keeps about 200 blocks in memory (64 lanes of 2, and half as much
/// read ahead): a fifth of a small dataset, 1.5 GiB of a large one. Below 1 MiB requests would cost
/// more than the memory saved.
std::uint64_t default_block_bytes(std::uint64_t stored_bytes) noexcept;

/// Frames [begin, end) of a shard.
struct FrameRun {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// The frames that hold samples [first, first + count) of a shard with frames: what a block of
/// these samples reads. \pre count > 0, frame_count > 0.
FrameRun frames_of(const IndexView& index, const ShardRecord& shard, std::uint64_t first,
                   std::uint64_t count) noexcept;

/// Blocks of all shards, in order. Each sample is in exactly one block. A plain block has at most
/// block_bytes plus one sample; a block of frames has more than block_bytes (raw, or stored) only
/// if it is one frame; 0 means default_block_bytes(). Errors: kInvalidArgument (block_bytes out of
/// range, more than `most_blocks`).
Result<std::vector<Block>> make_blocks(const IndexView& index, std::uint64_t block_bytes,
                                       std::uint64_t most_blocks = kMostBlocks);

}  // namespace headrace::detail
