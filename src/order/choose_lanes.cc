#include <algorithm>
#include <limits>

#include "headrace/order.h"

namespace headrace {
namespace {

/// Lanes that mix a small batch well: 64 lanes of two blocks are 128 places of the dataset.
constexpr std::uint64_t kEnoughLanes = 64;
/// A large batch takes more: eight slots share a lane.
constexpr std::uint64_t kSlotsPerLane = 8;
/// Lanes of a dataset that fills fewer windows. A window does not mix what is in one lane alone:
/// the first one of a lane may hold a single piece, so a dataset of two blocks in one lane gives
/// all of one block before the other.
constexpr std::uint64_t kLanesOfSmallSet = 8;
/// Bundles that a choice keeps, so that this many ranks own their lanes whatever their number.
constexpr std::uint64_t kEnoughBundles = 8;
/// Fewer lanes than a quarter of the limit mix a batch badly.
constexpr std::uint64_t kFewLanes = 4;

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

}  // namespace

std::uint32_t bundle_of(std::uint32_t lane_count) noexcept {
  return lane_count % 2 == 0 && lane_count / 2 >= kEnoughBundles ? 2 : 1;
}

LaneChoice choose_lanes(const LaneNeeds& needs) {
  const std::uint64_t global_batch = std::max<std::uint64_t>(needs.global_batch, 1);
  // 1.5: lanes are staggered, so on average half of the next window is read ahead while one is used
  // up.
  const std::uint64_t window = std::max<std::uint64_t>(needs.window_bytes * 3 / 2, 1);
  const std::uint64_t fitting = std::max<std::uint64_t>(needs.memory_bytes / window, 1);
  // One block is one window of one lane: a full shuffle.
  const std::uint64_t filled =
      needs.block_count <= 1
          ? 1
          : std::max<std::uint64_t>(needs.block_count / std::max(needs.window_blocks, 1U),
                                    kLanesOfSmallSet);
  const std::uint64_t limit =
      std::min({std::max(kEnoughLanes, global_batch / kSlotsPerLane), fitting, filled,
                std::max<std::uint64_t>(needs.sample_count, 1),
                std::uint64_t{std::numeric_limits<std::uint32_t>::max()}});
  std::uint64_t lanes = global_batch <= limit ? limit / global_batch * global_batch
                                              : largest_divisor(global_batch, limit);
  // An awkward batch size (a prime) need not cost mixing: ranks then share lanes.
  if (lanes * kFewLanes < limit) lanes = limit;
  const auto count = static_cast<std::uint32_t>(lanes);
  return {.lane_count = count, .bundle_lanes = bundle_of(count)};
}

}  // namespace headrace
