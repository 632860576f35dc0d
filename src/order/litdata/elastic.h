#pragma once
/// \file
/// LitData's elastic resume: the rest of an epoch dealt out to another world.
///
/// Place: src/order/litdata; pure. Definition: docs/order.md, "LitData's state".
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/litdata_order.h"

namespace headrace::litdata {

/// An item and the chunk it lies in.
struct ChunkItem {
  std::uint64_t item = 0;
  std::uint32_t chunk = 0;
};
/// Items of each worker, in order; worker w of rank r is r * workers + w.
using WorkerItems = std::vector<std::vector<ChunkItem>>;

/// The items of all workers as their batches are served, rank by rank in lockstep.
std::vector<ChunkItem> lockstep_stream(const WorkerItems& workers, const LitDataWorld& world);

struct RestripeSpec {
  LitDataWorld world;
  std::uint64_t drop_first = 0;  ///< Rounded down to a global batch, unless by chunk.
  bool drop_last = false;
  bool is_by_chunk = false;  ///< Whole chunks; one that was begun is left out altogether.
};
WorkerItems restripe(std::span<const ChunkItem> stream, const RestripeSpec& spec);

/// Items each of a rank's workers has served when the rank has yielded `samples`.
std::vector<std::uint64_t> replay_sampling(std::uint64_t samples, const LitDataWorld& world);

}  // namespace headrace::litdata
