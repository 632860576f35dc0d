#include <algorithm>
#include <array>
#include <limits>

#include "headrace/order.h"

namespace headrace {
namespace {

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

/// Lanes whose ownership by ranks is fixed where that costs little: see docs/design/0003-order.md,
/// section Lanes.
std::uint64_t lanes_for(std::uint64_t global_batch, std::uint64_t world_size, std::uint64_t limit) {
  if (global_batch <= limit) return limit / global_batch * global_batch;
  const std::uint64_t any = largest_divisor(global_batch, limit);
  std::uint64_t owned = 0;
  if (global_batch % world_size == 0 && limit >= world_size) {
    owned = world_size * largest_divisor(global_batch / world_size, limit / world_size);
  }
  // One rank owns all lanes whatever their number, so an awkward batch size (a prime) need not cost
  // mixing.
  if (world_size == 1 && any * 4 < limit) return limit;
  // Half the lanes mix almost as well; lanes read by two ranks cost bytes.
  return owned * 2 >= any ? owned : any;
}

std::uint32_t bundle_for(std::uint64_t lanes, std::uint64_t world_size) noexcept {
  constexpr std::array<std::uint32_t, 5> kWidths = {4, 2, 3, 5, 7};
  for (const std::uint32_t width : kWidths) {
    if (lanes % width == 0 && lanes / width % world_size == 0) return width;
  }
  if (lanes % world_size == 0) return 1;
  for (const std::uint32_t width : kWidths) {
    if (lanes % width == 0) return width;
  }
  return 1;
}

}  // namespace

LaneChoice choose_lanes(std::uint64_t global_batch, std::uint32_t world_size,
                        std::uint64_t sample_count, std::uint64_t window_bytes,
                        std::uint64_t memory_bytes, std::uint32_t lanes_per_rank) {
  global_batch = std::max<std::uint64_t>(global_batch, 1);
  world_size = std::max<std::uint32_t>(world_size, 1);
  // 1.5: lanes are staggered, so on average half of the next window is read ahead while one is used
  // up.
  const std::uint64_t windows =
      memory_bytes / std::max<std::uint64_t>(window_bytes + window_bytes / 2, 1);
  const std::uint64_t per_rank =
      std::clamp<std::uint64_t>(windows, 1, std::max<std::uint32_t>(lanes_per_rank, 1));
  const std::uint64_t limit =
      std::min({per_rank * world_size, std::max<std::uint64_t>(sample_count, 1),
                std::uint64_t{std::numeric_limits<std::uint32_t>::max()}});
  const std::uint64_t lanes = lanes_for(global_batch, world_size, limit);
  return {.lane_count = static_cast<std::uint32_t>(lanes),
          .bundle_lanes = bundle_for(lanes, world_size)};
}

}  // namespace headrace
