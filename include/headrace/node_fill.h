#pragma once
/// \file
/// plan_node_fill(): what a cache is filled with beside a loader (BackgroundFill), when several
/// ranks of one node share the cache.
///
/// Place: src/feed/. docs/design/0048.
///
/// Threads: any.
#include <cstdint>
#include <stop_token>

#include "headrace/fill_cache.h"
#include "headrace/loader.h"

namespace headrace {

struct NodeFill {
  std::uint32_t rank = 0;         ///< Of the loader.
  std::uint32_t first_rank = 0;   ///< The ranks of its node are
  std::uint32_t rank_count = 1;   ///< so many from this one on.
  std::uint64_t epochs_left = 0;  ///< That of the position is the first; 0: not known.
  std::uint64_t memory_bytes = std::uint64_t{64} << 20;  ///< FillOptions::memory_bytes.
};

/// What the rank is going to need within two epochs, which is as far as a loader tells its cache,
/// in the order of need. Then, where there are more epochs than those, its share of what no rank of
/// the node needs in them. Reads only while the loader is_ahead(). `loader` must outlive the
/// options. Errors: those of Loader::block_needs(). \pre first_rank <= rank < first_rank +
/// rank_count.
Result<FillOptions> plan_node_fill(const Loader& loader, const NodeFill& node,
                                   const std::stop_token& stop = {});

}  // namespace headrace
