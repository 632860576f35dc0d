// What is known of a list is its uses: (batch, block, how many samples), in order of batches, each
// linked to the next use of the same block. add_use() appends while the list is scanned ahead,
// pass() drops from the front, both in O(log open blocks).
//
// Invariants:
// - State::first and last are the block's first and last known use; queued is the use at which the
// block
//   is to be opened, none while it is open.
// - A block is in queue_ or in open_ or in neither (all its known uses were left to single reads).
// - Memory goes by Belady's rule: the block needed last gives way, if what comes serves enough
// before
//   that one is needed again. What is not known yet counts as needed last.
#include "feed/residency/listed_blocks.h"

#include <algorithm>

#include "base/check.h"

namespace headrace::feed {
namespace {

/// Uses known at once, at most: 32 MiB of memory outside of the pool. Beyond them nothing is known,
/// and a block that is not needed among them goes first when memory is wanted.
constexpr std::size_t kMaxUses = std::size_t{1} << 20;
/// Uses taken in by one look, so that the first batch does not wait for the scan of a long list.
constexpr std::size_t kUsesPerLook = std::size_t{1} << 14;
/// A request of its own costs about as much as this many bytes more in another: at the 5,500
/// requests/s that S3 grants a prefix, 64 KiB each are 360 MB/s.
constexpr std::uint64_t kRequestBytes = std::uint64_t{64} << 10;

}  // namespace

ListedBlocks::ListedBlocks(std::shared_ptr<const EpochOrder> order, const Dataset& dataset,
                           const BatchPlan& plan, std::uint64_t batch_count, SlabSizes sizes,
                           const StandIns& stand_ins)
    : order_(std::move(order)),
      dataset_(dataset),
      plan_(plan),
      batch_count_(batch_count),
      sizes_(sizes),
      stand_ins_(stand_ins) {
  HEADRACE_DCHECK(order_->is_listed());
}

// --- what batches need ---

void ListedBlocks::look_ahead(std::uint64_t batch) {
  const std::size_t enough = std::min(uses_.size() + kUsesPerLook, kMaxUses);
  while (!is_scanned() && (scanned_ <= batch || uses_.size() < enough)) scan_batch();
}

bool ListedBlocks::may_scan() const noexcept { return !is_scanned() && uses_.size() < kMaxUses; }

void ListedBlocks::scan_batch() {
  const BatchPlan::Slots slots = plan_.slots(scanned_);
  const std::uint64_t end = std::min(slots.first + slots.count, slots.end);
  places_.resize(end > slots.first ? end - slots.first : 0);
  if (!places_.empty()) order_->locate_run(slots.first, plan_.segment, places_);
  for (const LanePosition& place : places_) {
    if (place.lane != kNoLane) add_use(place.lane);
  }
  ++scanned_;
}

void ListedBlocks::add_use(std::uint32_t block) {
  State& state = blocks_[block];
  if (state.last != kNever && use(state.last).batch == scanned_) {
    ++uses_[state.last - passed_uses_].sample_count;
    return;
  }
  const std::uint64_t number = passed_uses_ + uses_.size();
  uses_.push_back({.batch = scanned_, .next = kNever, .block = block, .sample_count = 1});
  if (state.last != kNever) uses_[state.last - passed_uses_].next = number;
  state.last = number;
  const bool is_first = state.first == kNever;
  if (is_first) state.first = number;
  if (state.window != nullptr) {
    if (is_first) set_need(block, state, scanned_);
  } else if (state.queued == kNever) {
    set_queued(block, state, number);
  }
}

void ListedBlocks::set_queued(std::uint32_t block, State& state, std::uint64_t number) {
  if (state.queued != kNever) queue_.erase({batch_of_use(state.queued), block});
  state.queued = number;
  if (number != kNever) queue_.emplace(batch_of_use(number), block);
}

void ListedBlocks::set_need(std::uint32_t block, State& state, std::uint64_t need) {
  open_.erase({state.window->need_batch, block});
  state.window->need_batch = need;
  open_.emplace(need, block);
}

std::uint64_t ListedBlocks::next_need() const noexcept {
  return queue_.empty() ? kNever : queue_.begin()->first;
}

// --- opening ---

bool ListedBlocks::is_dense(const LanePosition& place) const {
  const auto found = blocks_.find(place.lane);
  return found != blocks_.end() && found->second.window != nullptr;
}

LaneWindow* ListedBlocks::find(const LanePosition& place) noexcept {
  const auto found = blocks_.find(place.lane);
  return found == blocks_.end() ? nullptr : found->second.window.get();
}

LaneWindow& ListedBlocks::open(const LanePosition& place, std::uint64_t batch) {
  const std::uint32_t block = place.lane;
  State& state = blocks_[block];
  set_queued(block, state, kNever);
  state.window = std::make_unique<LaneWindow>(order_->window_at(block, place.position));
  state.window->lane = block;
  state.window->need_batch = state.first == kNever ? batch : use(state.first).batch;
  state.window->plan_fetches(dataset_, sizes_, stand_ins_, 0);
  charged_bytes_ += state.window->charged_bytes;
  open_.emplace(state.window->need_batch, block);
  return *state.window;
}

std::uint64_t ListedBlocks::whole_bytes(std::uint32_t block) const {
  return sizes_.charged_bytes(dataset_, block, dataset_.block(block).stored_bytes);
}

bool ListedBlocks::is_worth(std::uint32_t block, const State& state, std::uint64_t until) const {
  // A single read of a compressed block reads all of it.
  if (dataset_.is_compressed(block)) return true;
  const Block b = dataset_.block(block);
  const std::uint64_t single_bytes = b.stored_bytes / b.sample_count + kRequestBytes;
  std::uint64_t spared = 0;
  for (std::uint64_t number = state.queued; number != kNever && use(number).batch < until;
       number = use(number).next) {
    spared += use(number).sample_count * single_bytes;
    if (spared >= b.stored_bytes) return true;
  }
  return false;
}

LaneWindow* ListedBlocks::open_next(const Bounds& bounds, Windows& closed) {
  while (!queue_.empty()) {
    const auto [need, block] = *queue_.begin();
    State& state = blocks_.at(block);
    const std::uint64_t bytes = whole_bytes(block);
    bool is_wanted = bytes <= bounds.limit_bytes && is_worth(block, state, kNever);
    // What is not worth it yet may be once more of the list is known.
    if (!is_wanted && bytes <= bounds.limit_bytes && may_scan()) return nullptr;
    while (is_wanted && charged_bytes_ + bytes > bounds.limit_bytes) {
      // Belady's rule: the block that is needed last gives way, if this one serves enough before
      // that one is needed again.
      const auto [last_need, last] = *open_.rbegin();
      if (last_need <= need || last_need < bounds.planned_end) return nullptr;
      is_wanted = is_worth(block, state, last_need);
      if (is_wanted) closed.push_back(close(last, blocks_.at(last)));
    }
    if (is_wanted) return &open({.lane = block, .position = 0}, need);
    set_queued(block, state, use(state.queued).next);  // This use is left to single reads.
  }
  return nullptr;
}

// --- closing ---

std::unique_ptr<LaneWindow> ListedBlocks::close(std::uint32_t block, State& state) {
  open_.erase({state.window->need_batch, block});
  charged_bytes_ -= state.window->charged_bytes;
  std::unique_ptr<LaneWindow> window = std::move(state.window);
  set_queued(block, state, state.first);
  forget_if_unused(block);
  return window;
}

void ListedBlocks::forget_if_unused(std::uint32_t block) {
  const auto found = blocks_.find(block);
  if (found->second.first == kNever && found->second.window == nullptr) blocks_.erase(found);
}

void ListedBlocks::pass(std::uint64_t batch, std::span<const LanePosition>, Windows& closed) {
  while (!uses_.empty() && uses_.front().batch <= batch) {
    const Use passed = uses_.front();
    State& state = blocks_.at(passed.block);
    state.first = passed.next;
    if (passed.next == kNever) state.last = kNever;
    if (state.queued == passed_uses_) set_queued(passed.block, state, passed.next);
    ++passed_uses_;
    uses_.pop_front();
    if (state.window == nullptr) {
      forget_if_unused(passed.block);
      continue;
    }
    set_need(passed.block, state, batch_of_use(passed.next));
    // While the list goes on, a block may be needed again: it goes when memory is wanted.
    if (passed.next == kNever && is_scanned()) closed.push_back(close(passed.block, state));
  }
}

std::unique_ptr<LaneWindow> ListedBlocks::evict_last(std::uint64_t batch) {
  if (open_.empty() || open_.rbegin()->first < batch) return nullptr;
  const std::uint32_t block = open_.rbegin()->second;
  return close(block, blocks_.at(block));
}

void ListedBlocks::close_all(Windows& closed) {
  for (auto& [block, state] : blocks_) {
    if (state.window != nullptr) closed.push_back(std::move(state.window));
  }
  blocks_.clear();
  queue_.clear();
  open_.clear();
  uses_.clear();
  charged_bytes_ = 0;
}

}  // namespace headrace::feed
