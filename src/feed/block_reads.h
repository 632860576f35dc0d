#pragma once
/// \file
/// Which parts of blocks a run reads, and for which batches, for whoever keeps what was read.
///
/// Place: the forecast tells them to the store. Made of an order and a plan; knows no bytes.
///
/// Threads: functions; any.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/dataset.h"
#include "order/need_index.h"

namespace headrace::feed {

/// Samples [begin, end) of a block, read in one for the batches from `batch` on.
struct BlockRead {
  std::uint32_t block = 0, begin = 0, end = 0;
  std::uint64_t batch = 0;
};

/// What the batches of `plan` read for `ranks` of its world, in no order. Of an order of lanes: the
/// pieces of its windows, so a mixture's block as often as it is repeated, and one that lanes cut
/// by its parts. Of a list: each block once, whole, for the first batch that needs it, since
/// memory decides how long it stays.
std::vector<BlockRead> find_block_reads(const std::shared_ptr<const EpochOrder>& order,
                                        const Dataset& dataset, const BatchPlan& plan,
                                        NeedIndex::Ranks ranks);

/// Samples [begin, end) of a block, of which each read has all or none.
struct BlockPart {
  std::uint32_t begin = 0, end = 0;
  std::vector<std::uint64_t> needs;  ///< Batches of its reads, rising.
};

/// The parts that `reads`, all of one block, are made of: from the first sample of any to the last,
/// rising, those between that none reads included. One part with all reads where a block is read so
/// often, and in so many pieces, that they would be too many.
std::vector<BlockPart> find_parts(std::span<const BlockRead> reads);

}  // namespace headrace::feed
