// What the feeder asks an order for beyond single samples: the answers for lanes that are all
// visited alike.
#include <algorithm>
#include <numeric>

#include "headrace/order.h"
#include "order/mean_readers.h"

namespace headrace {
namespace order_detail {

double mean_readers(std::uint64_t lanes, std::uint64_t bundle_lanes, std::uint64_t global_batch,
                    std::uint32_t world_size) noexcept {
  const std::uint64_t slots = global_batch / world_size;
  if (global_batch % lanes != 0) {
    // Slot j of any batch meets the lanes that are j modulo the common divisor.
    const std::uint64_t common = std::gcd(lanes, global_batch);
    return static_cast<double>(world_size * std::min(slots, common)) / static_cast<double>(common);
  }
  const std::uint64_t bundle_slots = bundle_lanes * (global_batch / lanes);
  std::uint64_t read = 0;
  for (std::uint64_t at = 0; at < global_batch;) {
    // From one border of ranks or bundles to the next: neighbours alternate between the lanes.
    const std::uint64_t end =
        std::min(at / slots * slots + slots, at / bundle_slots * bundle_slots + bundle_slots);
    read += std::min(end - at, bundle_lanes);
    at = end;
  }
  return static_cast<double>(read) / static_cast<double>(lanes);
}

}  // namespace order_detail

namespace {

/// Beyond this many slots the lanes of a rank are not listed but taken to be all of them.
constexpr std::uint64_t kMaxListedSlots = std::uint64_t{1} << 20;

}  // namespace

std::uint64_t LaneOrder::batch_of(std::uint32_t lane, std::uint64_t position,
                                  const Segment& segment) const {
  const std::uint64_t t = std::min(global_sample(lane, position, segment), sample_count());
  return t <= segment.start ? 0 : (t - segment.start) / segment.global_batch;
}

void EpochOrder::locate_run(std::uint64_t t, const Segment& segment,
                            std::span<LanePosition> out) const {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = locate(t + i, segment);
}

double LaneOrder::lane_readers(std::uint64_t global_batch, std::uint32_t world_size) const {
  return order_detail::mean_readers(lane_count(), spec().bundle_lanes, global_batch, world_size);
}

std::vector<std::uint32_t> LaneOrder::own_lanes(const BatchPlan& plan) const {
  const std::uint64_t lanes = lane_count();
  const std::uint64_t period =
      std::lcm(lanes, plan.segment.global_batch) / plan.segment.global_batch;
  const std::uint64_t full_samples = plan.segment.full_end(plan.sample_count) - plan.segment.start;
  const std::uint64_t batches = std::min(full_samples / plan.segment.global_batch, period);
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
