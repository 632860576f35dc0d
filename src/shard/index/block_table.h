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

/// Blocks of all shards, in order. Each sample is in exactly one block. A plain block has at most
/// block_bytes plus one sample. Errors: kInvalidArgument (block_bytes out of range, more than
/// `most_blocks`).
Result<std::vector<Block>> make_blocks(const IndexView& index, std::uint64_t block_bytes,
                                       std::uint64_t most_blocks = kMostBlocks);

}  // namespace headrace::detail
