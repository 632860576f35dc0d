#include "feed/lanes.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace headrace::feed {
namespace {

/// Full batches of a plan; a rest that fills no batch is not counted.
std::uint64_t full_batches(const BatchPlan& plan) noexcept {
  return (plan.sample_count - std::min(plan.segment.start, plan.sample_count)) /
         plan.segment.global_batch;
}

/// Beyond this many slots the lanes of a rank are not listed but taken to be all of them.
constexpr std::uint64_t kMaxListedSlots = std::uint64_t{1} << 20;

}  // namespace

LaneWindow::LaneWindow(Window w, bool shuffled)
    : window(std::move(w)), permutation(window.key, window.sample_count), is_shuffled(shuffled) {}

bool LaneWindow::refresh() {
  if (is_ready) return true;
  for (const auto& fetch : fetches) {
    if (fetch && fetch->state != Fetch::State::kReady) return false;
  }
  bytes.resize(fetches.size());
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    if (fetches[i]) bytes[i] = fetches[i]->bytes;
  }
  is_ready = true;
  return true;
}

const Fetch* LaneWindow::failed() const noexcept {
  for (const auto& fetch : fetches) {
    if (fetch && fetch->state == Fetch::State::kFailed) return fetch.get();
  }
  return nullptr;
}

std::vector<std::uint32_t> LaneTable::own_lanes(const EpochOrder& order, const BatchPlan& plan) {
  const std::uint64_t lanes = order.spec().lane_count;
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
      const std::uint32_t lane = order.locate(batch.first + i, plan.segment).lane;
      if (is_seen[lane]) continue;
      is_seen[lane] = true;
      own.push_back(lane);
    }
  }
  return own;
}

LaneTable::LaneTable(std::shared_ptr<const EpochOrder> order, const Dataset& dataset,
                     const BatchPlan& plan, std::uint32_t dense_lanes, SlabSizes sizes)
    : order_(std::move(order)),
      dataset_(dataset),
      plan_(plan),
      is_shuffled_(order_->spec().id != "sequential"),
      sizes_(sizes) {
  lanes_.resize(order_->spec().lane_count);
  const std::vector<std::uint32_t> own = own_lanes(*order_, plan);
  const std::uint64_t full_end =
      plan.segment.start + full_batches(plan) * plan.segment.global_batch;
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

std::uint64_t LaneTable::need_of(std::uint64_t lane, std::uint64_t position) const noexcept {
  const std::uint64_t t = position * lanes_.size() + lane;
  return t <= plan_.segment.start ? 0 : (t - plan_.segment.start) / plan_.segment.global_batch;
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
  return queue_.empty() ? std::numeric_limits<std::uint64_t>::max() : queue_.begin()->first;
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

LaneWindow& LaneTable::open(std::uint32_t index, std::uint64_t position, std::uint64_t consumed) {
  Lane& lane = lanes_[index];
  queue_.erase({need_of(index, lane.next_position), index});
  auto window = std::make_unique<LaneWindow>(order_->window_at(index, position), is_shuffled_);
  window->lane = index;
  window->need_batch = need_of(index, std::max(position, consumed));
  plan_fetches(*window, consumed);
  charged_bytes_ += window->charged_bytes;
  lane.next_position = std::max(lane.next_position, window->end_position());
  const auto after = std::find_if(lane.windows.begin(), lane.windows.end(), [&](const auto& other) {
    return other->window.first_position > window->window.first_position;
  });
  LaneWindow& opened = **lane.windows.insert(after, std::move(window));
  enqueue(index);
  return opened;
}

LaneWindow* LaneTable::open_next(std::uint64_t batch) {
  while (!queue_.empty()) {
    const std::uint32_t index = queue_.begin()->second;
    Lane& lane = lanes_[index];
    const std::uint64_t consumed = consumed_by(index, batch);
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
    return &open(index, lane.next_position, consumed);
  }
  return nullptr;
}

void LaneTable::plan_fetches(LaneWindow& window, std::uint64_t consumed) const {
  const std::vector<Piece>& pieces = window.window.pieces;
  std::vector<Piece> needed(pieces);
  if (consumed > window.window.first_position) {
    for (Piece& piece : needed) std::swap(piece.begin, piece.end);  // Empty, to be widened.
    for (std::uint64_t position = consumed; position < window.end_position(); ++position) {
      const WindowSample sample = window.sample_at(position);
      Piece& piece = needed[sample.piece];
      piece.begin = std::min(piece.begin, sample.sample_in_block);
      piece.end = std::max(piece.end, sample.sample_in_block + 1);
    }
  }
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const Piece& piece = needed[i];
    window.first_sample.push_back(dataset_.block(piece.block).first_sample);
    window.fetches.emplace_back();
    if (piece.begin >= piece.end) continue;
    window.fetches.back() = std::make_shared<Fetch>();
    window.fetches.back()->piece = piece;
    extents.clear();
    const std::uint64_t size =
        dataset_.append_extents(piece.block, piece.begin, piece.end, extents);
    window.charged_bytes += sizes_.charged_bytes(dataset_, piece.block, size);
  }
}

void LaneTable::close_before(std::uint32_t index, std::uint64_t position,
                             std::vector<std::unique_ptr<LaneWindow>>& closed) {
  Lane& lane = lanes_[index];
  while (!lane.windows.empty() && lane.windows.front()->end_position() <= position) {
    charged_bytes_ -= lane.windows.front()->charged_bytes;
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
  charged_bytes_ -= window->charged_bytes;
  queue_.erase({need_of(chosen_index, chosen->next_position), chosen_index});
  chosen->next_position = window->window.first_position;
  enqueue(chosen_index);
  return window;
}

void LaneTable::close_all(std::vector<std::unique_ptr<LaneWindow>>& closed) {
  for (Lane& lane : lanes_) {
    for (auto& window : lane.windows) closed.push_back(std::move(window));
    lane.windows.clear();
  }
  queue_.clear();
  charged_bytes_ = 0;
}

}  // namespace headrace::feed
