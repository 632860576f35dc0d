#pragma once
/// \file
/// How many ranks read a lane, where slots of a batch alternate between bundles of lanes. Pure.
#include <cstdint>

namespace headrace::order_detail {

/// Mean over `lanes` of the ranks that read it in a long epoch from its start. \pre world_size
/// divides global_batch, bundle_lanes divides lanes.
double mean_readers(std::uint64_t lanes, std::uint64_t bundle_lanes, std::uint64_t global_batch,
                    std::uint32_t world_size) noexcept;

}  // namespace headrace::order_detail
