#include <algorithm>
#include <limits>

#include "headrace/order.h"

namespace headrace {
namespace {

/// Lanes that mix a small batch well: 64 lanes of two blocks are 128 places of the dataset.
constexpr std::uint64_t kEnoughLanes = 64;
/// A large batch takes more: eight slots share a lane.
constexpr std::uint64_t kSlotsPerLane = 8;
/// Bundles that a choice keeps, so that this many ranks own their lanes whatever their number.
constexpr std::uint64_t kEnoughBundles = 4;
/// With this many bundles a rank, one that two ranks share costs at most a third more bytes.
constexpr std::uint64_t kBundlesPerRank = 3;

/// Largest divisor of `value` that is at most `limit`. O(sqrt(value)). \pre limit >= 1.
std::uint64_t largest_divisor(std::uint64_t value, std::uint64_t limit) noexcept {
  std::uint64_t best = 1;
  for (std::uint64_t d = 1; d * d <= value; ++d) {
    if (value % d != 0) continue;
    if (d <= limit) best = std::max(best, d);
    if (value / d <= limit) best = std::max(best, value / d);
  }
  return best;
}

/// Lanes by what all runs with this global batch have in common; the number of ranks plays no part.
LaneChoice common_choice(std::uint64_t global_batch, std::uint64_t limit) noexcept {
  const std::uint64_t lanes = global_batch <= limit ? limit / global_batch * global_batch
                                                    : largest_divisor(global_batch, limit);
  const auto count = static_cast<std::uint32_t>(lanes);
  return {.lane_count = count, .bundle_lanes = bundle_of(count)};
}

/// Lanes of which each rank owns some: the way out where the common choice would make ranks share
/// what they read.
LaneChoice owned_choice(std::uint64_t global_batch, std::uint64_t world_size,
                        std::uint64_t limit) noexcept {
  const std::uint64_t per_rank = std::max<std::uint64_t>(limit / world_size, 1);
  const std::uint64_t lanes = world_size * largest_divisor(global_batch / world_size, per_rank);
  LaneChoice choice{.lane_count = static_cast<std::uint32_t>(lanes), .bundle_lanes = 1};
  for (const std::uint32_t bundle : {4U, 2U}) {
    if (lanes / world_size % bundle == 0) return {choice.lane_count, bundle};
  }
  return choice;
}

}  // namespace

std::uint32_t bundle_of(std::uint32_t lane_count) noexcept {
  for (const std::uint32_t bundle : {4U, 2U}) {
    if (lane_count % bundle == 0 && lane_count / bundle >= kEnoughBundles) return bundle;
  }
  return 1;
}

LaneChoice choose_lanes(const LaneNeeds& needs) {
  const std::uint64_t global_batch = std::max<std::uint64_t>(needs.global_batch, 1);
  const std::uint64_t world_size = std::max<std::uint64_t>(needs.world_size, 1);
  // 1.5: lanes are staggered, so on average half of the next window is read ahead while one is used
  // up.
  const std::uint64_t window = std::max<std::uint64_t>(needs.window_bytes * 3 / 2, 1);
  const std::uint64_t fitting = std::max<std::uint64_t>(needs.memory_bytes / window, 1);
  const std::uint64_t window_count =
      std::max<std::uint64_t>(needs.block_count / std::max(needs.window_blocks, 1U), 1);
  const std::uint64_t limit =
      std::min({std::max(kEnoughLanes, global_batch / kSlotsPerLane), fitting, window_count,
                std::max<std::uint64_t>(needs.sample_count, 1),
                std::uint64_t{std::numeric_limits<std::uint32_t>::max()}});
  const LaneChoice choice = common_choice(global_batch, limit);
  if (world_size == 1) {
    // A single rank owns all lanes whatever their number, so an awkward batch size (a prime) need
    // not cost mixing.
    if (std::uint64_t{choice.lane_count} * 4 >= limit) return choice;
    return {.lane_count = static_cast<std::uint32_t>(limit), .bundle_lanes = 1};
  }
  // Where ranks do not divide the bundles, neighbours share one: at most R - 1 of them are read
  // twice.
  const std::uint64_t bundles = choice.lane_count / choice.bundle_lanes;
  const bool is_nearly_owned = bundles % world_size == 0 || bundles >= kBundlesPerRank * world_size;
  if (is_nearly_owned || window_count < world_size || global_batch % world_size != 0) return choice;
  return owned_choice(global_batch, world_size, limit);
}

}  // namespace headrace
