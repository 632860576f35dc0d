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

/// Blocks of all shards, in order. Each sample is in exactly one block. A plain block has at most
/// block_bytes plus one sample; 0 means default_block_bytes(). Errors: kInvalidArgument
/// (block_bytes out of range, more than `most_blocks`).
Result<std::vector<Block>> make_blocks(const IndexView& index, std::uint64_t block_bytes,
                                       std::uint64_t most_blocks = kMostBlocks);

}  // namespace headrace::detail
