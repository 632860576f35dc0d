#pragma once
/// \file
/// LitData's shuffles of chunks and items, and which worker reads which part of which chunk.
///
/// Place: src/order/litdata; pure. Definition: docs/order.md, "LitData's orders".
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/litdata_order.h"

namespace headrace::litdata {

/// Items [begin, end) of a chunk.
struct Visit {
  std::uint32_t chunk = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const noexcept { return end - begin; }
};
/// What each worker reads, in order; worker w of rank r is r * workers + w.
using Visits = std::vector<std::vector<Visit>>;

/// get_chunks_and_intervals_per_workers() of NoShuffle, FullShuffle or WindowShuffle. \pre a
/// checked spec and world.
Visits associate(const LitDataSpec& spec, std::span<const LitDataChunk> chunks,
                 const LitDataWorld& world, std::uint32_t epoch);

/// The items of a visit as they are served, appended to `out`. `chunk_count`: of the data set.
void append_items(const LitDataSpec& spec, const Visit& visit, std::uint32_t chunk_count,
                  std::uint32_t epoch, std::vector<std::uint64_t>& out);

}  // namespace headrace::litdata
