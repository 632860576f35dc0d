// The lanes that the ranks take part in are walked window by window: B windows' pieces and C more.
// Which of a window's positions belong to the ranks is found by bisection, because the global
// sample rises with the position in the lane, whatever the slots of a batch look like.
//
// The last, incomplete batch takes its samples from all lanes, so it is looked at sample by sample
// (fewer than G): it adds itself to the windows that its samples lie in.
#include "order/laned_needs.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "order/listed_needs.h"
#include "order/window_pieces.h"

namespace headrace {
namespace {

class Walker {
 public:
  Walker(const LaneOrder& order, const BatchPlan& plan, NeedIndex::Ranks ranks)
      : order_(order), plan_(plan), ranks_(ranks), shift_(batch_shift(plan)) {
    const Segment& segment = plan.segment;
    start_ = std::min(segment.start, plan.sample_count);
    full_end_ = Segment{start_, segment.global_batch}.full_end(plan.sample_count);
    const std::uint64_t slots = segment.global_batch / plan.world_size;
    first_slot_ = ranks.first * slots;
    end_slot_ = first_slot_ + ranks.count * slots;
    last_batch_ = (full_end_ - start_) / segment.global_batch;
  }

  std::vector<LaneNeed> walk() {
    find_last_places();
    std::vector<bool> is_own(order_.lane_count(), false);
    for (plan_.rank = ranks_.first; plan_.rank < ranks_.first + ranks_.count; ++plan_.rank) {
      for (const std::uint32_t lane : order_.own_lanes(plan_)) is_own[lane] = true;
    }
    for (std::uint32_t lane = 0; lane < is_own.size(); ++lane) walk_lane(lane, is_own[lane]);
    return std::move(needs_);
  }

 private:
  /// Positions that the ranks take in the incomplete batch.
  void find_last_places() {
    if (last_batch_ == plan_.batch_count()) return;
    for (plan_.rank = ranks_.first; plan_.rank < ranks_.first + ranks_.count; ++plan_.rank) {
      const BatchPlan::Slots slots = plan_.slots(last_batch_);
      const std::uint64_t end = std::min(slots.first + slots.count, slots.end);
      for (std::uint64_t t = slots.first; t < end; ++t)
        last_places_.push_back(order_.locate(t, plan_.segment));
    }
    std::sort(last_places_.begin(), last_places_.end(), [](const auto& a, const auto& b) {
      return a.lane != b.lane ? a.lane < b.lane : a.position < b.position;
    });
  }

  void walk_lane(std::uint32_t lane, bool is_own) {
    const std::uint64_t begin = order_.lane_consumed(lane, start_);
    const std::uint64_t full_end = is_own ? order_.lane_consumed(lane, full_end_) : begin;
    std::uint64_t position = begin;
    while (true) {
      if (position >= full_end) {
        // Only windows of the incomplete batch are left.
        if (next_last_ == last_places_.size() || last_places_[next_last_].lane != lane) return;
        position = std::max(position, last_places_[next_last_].position);
      }
      const Window window = order_.window_at(lane, position);
      const std::uint64_t end = window.first_position + window.sample_count;
      std::uint64_t first = first_batch(lane, position, std::min(end, full_end));
      std::uint64_t last =
          first == kNever ? kNever : end_batch(lane, position, std::min(end, full_end));
      if (take_last_places(lane, end)) {
        first = std::min(first, last_batch_);
        last = last_batch_;
      }
      if (first != kNever) add(window, begin, first, last);
      position = end;
    }
  }

  /// Whether the incomplete batch takes positions of the lane before `end`; steps over them.
  bool take_last_places(std::uint32_t lane, std::uint64_t end) {
    const std::size_t before = next_last_;
    while (next_last_ < last_places_.size() && last_places_[next_last_].lane == lane &&
           last_places_[next_last_].position < end)
      ++next_last_;
    return next_last_ != before;
  }

  /// First of positions [begin, end) whose global sample is not before `t`.
  std::uint64_t position_of(std::uint32_t lane, std::uint64_t begin, std::uint64_t end,
                            std::uint64_t t) const {
    while (begin < end) {
      const std::uint64_t middle = begin + (end - begin) / 2;
      if (order_.global_sample(lane, middle, plan_.segment) < t) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }

  /// First batch in which the ranks take one of positions [begin, end); kNever: none.
  std::uint64_t first_batch(std::uint32_t lane, std::uint64_t begin, std::uint64_t end) const {
    while (begin < end) {
      const std::uint64_t offset = order_.global_sample(lane, begin, plan_.segment) - start_;
      const std::uint64_t batch = offset / plan_.segment.global_batch;
      const std::uint64_t slot = offset % plan_.segment.global_batch;
      if (first_slot_ <= slot && slot < end_slot_) return batch;
      const std::uint64_t own = slot < first_slot_ ? batch : batch + 1;
      begin = position_of(lane, begin, end, sample_of(own, first_slot_));
    }
    return kNever;
  }

  /// The last such batch. \pre first_batch() found one.
  std::uint64_t end_batch(std::uint32_t lane, std::uint64_t begin, std::uint64_t end) const {
    while (true) {
      HEADRACE_CHECK(begin < end);
      const std::uint64_t offset = order_.global_sample(lane, end - 1, plan_.segment) - start_;
      const std::uint64_t batch = offset / plan_.segment.global_batch;
      const std::uint64_t slot = offset % plan_.segment.global_batch;
      if (first_slot_ <= slot && slot < end_slot_) return batch;
      HEADRACE_CHECK(slot >= end_slot_ || batch > 0);
      const std::uint64_t own = slot < first_slot_ ? batch - 1 : batch;
      end = position_of(lane, begin, end, sample_of(own, end_slot_));
    }
  }

  std::uint64_t sample_of(std::uint64_t batch, std::uint64_t slot) const noexcept {
    return start_ + batch * plan_.segment.global_batch + slot;
  }

  void add(const Window& window, std::uint64_t begin, std::uint64_t first, std::uint64_t last) {
    const order_math::Permutation permutation(window.key, window.shuffled_count);
    for (const Piece& piece : pieces_from(window, permutation, begin)) {
      if (piece.begin >= piece.end) continue;
      needs_.push_back({.block = piece.block,
                        .begin = piece.begin,
                        .end = piece.end,
                        .first = static_cast<std::uint32_t>(first >> shift_),
                        .last = static_cast<std::uint32_t>(last >> shift_)});
    }
  }

  const LaneOrder& order_;
  BatchPlan plan_;
  const NeedIndex::Ranks ranks_;
  const std::uint32_t shift_;
  std::uint64_t start_ = 0;
  std::uint64_t full_end_ = 0;  ///< End of the last full batch.
  std::uint64_t first_slot_ = 0;
  std::uint64_t end_slot_ = 0;
  std::uint64_t last_batch_ = 0;           ///< The incomplete one, if there is one.
  std::vector<LanePosition> last_places_;  ///< By lane and position.
  std::size_t next_last_ = 0;
  std::vector<LaneNeed> needs_;
};

}  // namespace

std::uint32_t batch_shift(const BatchPlan& plan) noexcept {
  const auto bits = static_cast<std::uint32_t>(std::bit_width(plan.batch_count()));
  return bits > 32 ? bits - 32 : 0;
}

std::vector<LaneNeed> find_lane_needs(const LaneOrder& order, const BatchPlan& plan,
                                      NeedIndex::Ranks ranks) {
  HEADRACE_DCHECK(ranks.first + ranks.count <= plan.world_size);
  return Walker(order, plan, ranks).walk();
}

LanedNeeds::LanedNeeds(const LaneOrder& order, std::uint32_t block_count, const BatchPlan& plan,
                       Ranks ranks)
    : shift_(batch_shift(plan)) {
  std::vector<LaneNeed> needs = find_lane_needs(order, plan, ranks);
  std::sort(needs.begin(), needs.end(), [](const LaneNeed& a, const LaneNeed& b) {
    return a.block != b.block ? a.block < b.block : a.first < b.first;
  });
  begins_.reserve(block_count + std::size_t{1});
  auto next = needs.begin();
  for (std::uint32_t block = 0; block < block_count; ++block) {
    const std::size_t begin = stretches_.size();
    begins_.push_back(static_cast<std::uint32_t>(begin));
    for (; next != needs.end() && next->block == block; ++next) {
      if (stretches_.size() > begin && next->first <= stretches_.back().last + std::uint64_t{1}) {
        stretches_.back().last = std::max(stretches_.back().last, next->last);
      } else {
        stretches_.push_back({next->first, next->last});
      }
    }
  }
  begins_.push_back(static_cast<std::uint32_t>(stretches_.size()));
  stretches_.shrink_to_fit();
}

std::uint64_t LanedNeeds::next_need(std::uint32_t block, std::uint64_t from) const noexcept {
  const auto end = stretches_.begin() + begins_[block + std::size_t{1}];
  const auto found =
      std::lower_bound(stretches_.begin() + begins_[block], end, from >> shift_,
                       [](const Stretch& stretch, std::uint64_t at) { return stretch.last < at; });
  if (found == end) return kNever;
  return std::max(from, std::uint64_t{found->first} << shift_);
}

std::uint64_t LanedNeeds::memory_bytes() const noexcept {
  return begins_.capacity() * sizeof begins_[0] + stretches_.capacity() * sizeof stretches_[0];
}

std::unique_ptr<NeedIndex> NeedIndex::create(std::shared_ptr<const EpochOrder> order,
                                             std::uint32_t block_count, const BatchPlan& plan,
                                             Ranks ranks) {
  if (const LaneOrder* lanes = order->lanes())
    return std::make_unique<LanedNeeds>(*lanes, block_count, plan, ranks);
  return std::make_unique<ListedNeeds>(std::move(order), block_count, plan, ranks);
}

}  // namespace headrace
