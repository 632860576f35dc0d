#pragma once
/// \file
/// Reads a run of samples of a dataset, block after block, and hands out their cells in order.
#include <functional>
#include <utility>

#include "headrace/dataset.h"

namespace headrace::read {

using CellSink = std::function<Status(std::uint64_t position, std::span<const ColumnBytes> cells)>;

/// Samples [range.first, range.second). Blocks are read whole (the part that is needed, unless
/// compressed), many extents in flight; memory is one block (and its inflated form). Hashes
/// of blocks that are read whole are checked. Errors: those of kGet, verify, decompress, unpack,
/// cut and of `sink`; kInvalidArgument (range), kExhausted (a block larger than the pool).
Status read_samples(const Dataset& dataset, Store& store, SlabPool& pool,
                    std::pair<std::uint64_t, std::uint64_t> range, const CallOptions& call,
                    const CellSink& sink);

}  // namespace headrace::read
