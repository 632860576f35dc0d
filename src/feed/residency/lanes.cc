// Each lane is read from front to back: of a lane there is at most one window to open next, and
// queue_ has one entry a dense lane, by the batch that needs it. So the next read of all is the
// first of the queue, in O(log lanes).
//
// A lane may fall behind when its window was evicted and batches read its samples singly meanwhile:
// open_next() then moves it on to where the batches are. The incomplete batch at the end of an
// epoch is not worth windows of its own (read_ahead_end), since its samples lie in all lanes.
#include "feed/residency/lanes.h"

#include <algorithm>

namespace headrace::feed {

LaneTable::LaneTable(std::shared_ptr<const LaneOrder> order, const Dataset& dataset,
                     const BatchPlan& plan, std::uint32_t dense_lanes, SlabSizes sizes,
                     const StandIns& stand_ins, bool reads_wholes)
    : order_(std::move(order)),
      dataset_(dataset),
      plan_(plan),
      sizes_(sizes),
      stand_ins_(stand_ins),
      reads_wholes_(reads_wholes) {
  lanes_.resize(order_->lane_count());
  const std::vector<std::uint32_t> own = order_->own_lanes(plan);
  const std::uint64_t full_end = plan.segment.full_end(plan.sample_count);
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (i >= dense_lanes) break;
    Lane& lane = lanes_[own[i]];
    lane.is_dense = true;
    lane.next_position = order_->lane_consumed(own[i], plan.segment.start);
    lane.read_ahead_end = order_->lane_consumed(own[i], full_end);
    enqueue(own[i]);
  }
  sparse_lane_count_ = static_cast<std::uint32_t>(own.size()) -
                       std::min(dense_lanes, static_cast<std::uint32_t>(own.size()));
}

std::uint64_t LaneTable::need_of(std::uint32_t lane, std::uint64_t position) const {
  return order_->batch_of(lane, position, plan_.segment);
}

void LaneTable::enqueue(std::uint32_t lane) {
  if (lanes_[lane].next_position < lanes_[lane].read_ahead_end) {
    queue_.emplace(need_of(lane, lanes_[lane].next_position), lane);
  }
}

std::uint64_t LaneTable::consumed_by(std::uint32_t lane, std::uint64_t batch) const noexcept {
  const std::uint64_t t = plan_.segment.start + batch * plan_.segment.global_batch;
  return order_->lane_consumed(lane, std::min(t, plan_.sample_count));
}

std::uint64_t LaneTable::next_need() const noexcept {
  return queue_.empty() ? kNever : queue_.begin()->first;
}

bool LaneTable::is_dense(const LanePosition& place) const {
  const Lane& lane = lanes_[place.lane];
  if (!lane.is_dense) return false;
  if (place.position < lane.read_ahead_end) return true;
  // A sample of the incomplete batch: worth a window only if full batches need that window too.
  return order_->window_at(place.lane, place.position).first_position < lane.read_ahead_end;
}

LaneWindow* LaneTable::find(const LanePosition& place) noexcept {
  for (auto& window : lanes_[place.lane].windows) {
    if (place.position - window->window.first_position < window->window.sample_count)
      return window.get();
  }
  return nullptr;
}

std::shared_ptr<Fetch> LaneTable::find_whole(std::uint32_t block) const {
  const auto [begin, end] = by_block_.equal_range(block);
  for (auto entry = begin; entry != end; ++entry) {
    if (auto found = entry->second->find_whole(block, dataset_)) return found;
  }
  return nullptr;
}

LaneWindow& LaneTable::open(const LanePosition& place, std::uint64_t batch) {
  return open_from(place.lane, place.position, consumed_by(place.lane, batch));
}

LaneWindow& LaneTable::open_from(std::uint32_t index, std::uint64_t position,
                                 std::uint64_t consumed) {
  Lane& lane = lanes_[index];
  queue_.erase({need_of(index, lane.next_position), index});
  auto window = std::make_unique<LaneWindow>(order_->window_at(index, position));
  window->lane = index;
  window->need_batch = need_of(index, std::max(position, consumed));
  window->plan_fetches(dataset_, sizes_, stand_ins_, consumed, reads_wholes_);
  charged_bytes_ += window->charged_bytes;
  lane.next_position = std::max(lane.next_position, window->end_position());
  const auto after = std::find_if(lane.windows.begin(), lane.windows.end(), [&](const auto& other) {
    return other->window.first_position > window->window.first_position;
  });
  LaneWindow& opened = **lane.windows.insert(after, std::move(window));
  for (const Piece& piece : opened.window.pieces) by_block_.emplace(piece.block, &opened);
  enqueue(index);
  return opened;
}

LaneWindow* LaneTable::open_next(const Bounds& bounds, Windows&) {
  while (!queue_.empty()) {
    const std::uint32_t index = queue_.begin()->second;
    Lane& lane = lanes_[index];
    const std::uint64_t consumed = consumed_by(index, bounds.batch);
    if (lane.next_position < consumed) {
      // Batches went past it by single reads after an eviction.
      queue_.erase(queue_.begin());
      lane.next_position = consumed;
      enqueue(index);
      continue;
    }
    if (LaneWindow* covering = find({index, lane.next_position}); covering != nullptr) {
      queue_.erase(queue_.begin());
      lane.next_position = covering->end_position();
      enqueue(index);
      continue;
    }
    return &open_from(index, lane.next_position, consumed);
  }
  return nullptr;
}

void LaneTable::pass(std::uint64_t, std::span<const LanePosition> places, Windows& closed) {
  for (const LanePosition& place : places) close_before(place.lane, place.position + 1, closed);
}

void LaneTable::forget(const LaneWindow& window) {
  charged_bytes_ -= window.charged_bytes;
  for (const Piece& piece : window.window.pieces) {
    const auto [begin, end] = by_block_.equal_range(piece.block);
    const auto entry =
        std::find_if(begin, end, [&](const auto& each) { return each.second == &window; });
    if (entry != end) by_block_.erase(entry);
  }
}

void LaneTable::close_before(std::uint32_t index, std::uint64_t position, Windows& closed) {
  Lane& lane = lanes_[index];
  while (!lane.windows.empty() && lane.windows.front()->end_position() <= position) {
    forget(*lane.windows.front());
    closed.push_back(std::move(lane.windows.front()));
    lane.windows.erase(lane.windows.begin());
  }
}

std::unique_ptr<LaneWindow> LaneTable::evict_last(std::uint64_t batch) {
  Lane* chosen = nullptr;
  std::uint32_t chosen_index = 0;
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.windows.empty() || lane.windows.back()->need_batch < batch) continue;
    if (chosen == nullptr || lane.windows.back()->need_batch > chosen->windows.back()->need_batch) {
      chosen = &lane;
      chosen_index = i;
    }
  }
  if (chosen == nullptr) return nullptr;
  std::unique_ptr<LaneWindow> window = std::move(chosen->windows.back());
  chosen->windows.pop_back();
  forget(*window);
  queue_.erase({need_of(chosen_index, chosen->next_position), chosen_index});
  chosen->next_position = window->window.first_position;
  enqueue(chosen_index);
  return window;
}

void LaneTable::close_all(Windows& closed) {
  for (Lane& lane : lanes_) {
    for (auto& window : lane.windows) closed.push_back(std::move(window));
    lane.windows.clear();
  }
  queue_.clear();
  by_block_.clear();
  charged_bytes_ = 0;
}

std::uint64_t LaneTable::held_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Lane& lane : lanes_)
    for (const auto& window : lane.windows) bytes += window->held_bytes();
  return bytes;
}

}  // namespace headrace::feed
