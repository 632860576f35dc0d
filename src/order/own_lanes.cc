// What the feeder asks an order for beyond single samples: the answers for lanes that are all
// visited alike.
#include <algorithm>
#include <numeric>

#include "headrace/order.h"

namespace headrace {
namespace {

/// Full batches of a plan; a rest that fills no batch is not counted.
std::uint64_t full_batches(const BatchPlan& plan) noexcept {
  return (plan.sample_count - std::min(plan.segment.start, plan.sample_count)) /
         plan.segment.global_batch;
}

/// Beyond this many slots the lanes of a rank are not listed but taken to be all of them.
constexpr std::uint64_t kMaxListedSlots = std::uint64_t{1} << 20;

}  // namespace

std::uint64_t EpochOrder::batch_of(std::uint32_t lane, std::uint64_t position,
                                   const Segment& segment) const {
  // Exact for both ways in which slots map to lanes: they differ only inside of batches.
  const std::uint64_t t = position * lane_count() + lane;
  return t <= segment.start ? 0 : (t - segment.start) / segment.global_batch;
}

void EpochOrder::locate_run(std::uint64_t t, const Segment& segment,
                            std::span<LanePosition> out) const {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = locate(t + i, segment);
}

std::vector<std::uint32_t> EpochOrder::own_lanes(const BatchPlan& plan) const {
  const std::uint64_t lanes = lane_count();
  const std::uint64_t period =
      std::lcm(lanes, plan.segment.global_batch) / plan.segment.global_batch;
  const std::uint64_t batches = std::min(full_batches(plan), period);
  const std::uint64_t slots = plan.segment.global_batch / plan.world_size;
  std::vector<std::uint32_t> own;
  if (batches == 0) return own;
  if (plan.world_size == 1 || batches * slots > kMaxListedSlots) {
    // One rank takes lanes in turn all the same; listing them in order of their number is near
    // enough.
    if (batches * slots >= lanes) {
      own.resize(lanes);
      std::iota(own.begin(), own.end(), 0U);
      return own;
    }
  }
  std::vector<bool> is_seen(lanes, false);
  for (std::uint64_t k = 0; k < batches; ++k) {
    const BatchPlan::Slots batch = plan.slots(k);
    for (std::uint32_t i = 0; i < batch.count; ++i) {
      const std::uint32_t lane = locate(batch.first + i, plan.segment).lane;
      if (is_seen[lane]) continue;
      is_seen[lane] = true;
      own.push_back(lane);
    }
  }
  return own;
}

}  // namespace headrace
