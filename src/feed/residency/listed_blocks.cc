// What is known of a list are its uses, which ListedNeeds keeps: (batch, block, how many samples),
// linked from use to use of a block. Here is what follows from them: which block is opened next,
// and which gives way, both in O(log open blocks) a use.
//
// Invariants:
// - State::queued is the use at which a block is to be opened; none while it is open.
// - A block is in queue_, or in open_, or in neither (all its known uses were left to single
//   reads; then it has no State).
// - Memory goes by Belady's rule: the block needed last gives way, if what comes serves enough
//   before that one is needed again. What is not known yet counts as needed last.
#include "feed/residency/listed_blocks.h"

#include <algorithm>

#include "base/check.h"

namespace headrace::feed {
namespace {

/// A request of its own costs about as much as this many bytes more in another: at the 5,500
/// requests/s that S3 grants a prefix, 64 KiB each are 360 MB/s.
constexpr std::uint64_t kRequestBytes = std::uint64_t{64} << 10;

}  // namespace

ListedBlocks::ListedBlocks(std::shared_ptr<const EpochOrder> order, const Dataset& dataset,
                           const BatchPlan& plan, SlabSizes sizes, const StandIns& stand_ins,
                           const KeptBlocks& kept)
    : order_(std::move(order)),
      dataset_(dataset),
      sizes_(sizes),
      stand_ins_(stand_ins),
      kept_(kept),
      needs_(order_, dataset.block_count(), plan, {.first = plan.rank, .count = 1}) {}

// --- what batches need ---

void ListedBlocks::look_ahead(std::uint64_t batch) {
  needs_.look_ahead(batch);
  learn_uses();
}

void ListedBlocks::look_far() {
  while (needs_.may_learn()) needs_.look_ahead(0);
  learn_uses();
}

void ListedBlocks::learn_uses() {
  for (; learned_ < needs_.known_uses(); ++learned_) {
    const ListedNeeds::Use use = needs_.use(learned_);
    State& state = blocks_[use.block];
    if (state.window != nullptr) {
      if (needs_.first_use(use.block) == learned_) set_need(use.block, state, use.batch);
    } else if (state.queued == kNever) {
      set_queued(use.block, state, learned_);
    }
  }
}

void ListedBlocks::set_queued(std::uint32_t block, State& state, std::uint64_t number) {
  if (state.queued != kNever) queue_.erase({needs_.batch_of_use(state.queued), block});
  state.queued = number;
  if (number != kNever) queue_.emplace(needs_.batch_of_use(number), block);
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
  const std::uint64_t first = needs_.first_use(block);
  state.window->need_batch = first == kNever ? batch : needs_.use(first).batch;
  state.window->plan_fetches(dataset_, sizes_, stand_ins_, 0, false);
  charged_bytes_ += state.window->charged_bytes;
  open_.emplace(state.window->need_batch, block);
  return *state.window;
}

std::uint64_t ListedBlocks::whole_bytes(std::uint32_t block) const {
  return sizes_.charged_bytes(dataset_, block, dataset_.block(block).stored_bytes);
}

bool ListedBlocks::is_worth(std::uint32_t block, const State& state, std::uint64_t until) const {
  // A single read of a compressed block reads all of it.
  if (dataset_.is_compressed(block) || kept_.has(block)) return true;
  const Block b = dataset_.block(block);
  const std::uint64_t single_bytes = b.stored_bytes / b.sample_count + kRequestBytes;
  std::uint64_t spared = 0;
  for (std::uint64_t number = state.queued; number != kNever;) {
    const ListedNeeds::Use use = needs_.use(number);
    if (use.batch >= until) break;
    spared += use.sample_count * single_bytes;
    if (spared >= b.stored_bytes) return true;
    number = use.next;
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
    if (!is_wanted && bytes <= bounds.limit_bytes && needs_.may_learn()) return nullptr;
    while (is_wanted && charged_bytes_ + bytes > bounds.limit_bytes) {
      // Belady's rule: the block that is needed last gives way, if this one serves enough before
      // that one is needed again.
      const auto [last_need, last] = *open_.rbegin();
      if (last_need <= need || last_need < bounds.planned_end) return nullptr;
      is_wanted = is_worth(block, state, last_need);
      if (is_wanted) closed.push_back(close(last, blocks_.at(last)));
    }
    if (is_wanted) return &open({.lane = block, .position = 0}, need);
    set_queued(block, state, needs_.use(state.queued).next);  // This use is left to single reads.
    forget_if_unused(block);
  }
  return nullptr;
}

// --- closing ---

std::unique_ptr<LaneWindow> ListedBlocks::close(std::uint32_t block, State& state) {
  open_.erase({state.window->need_batch, block});
  charged_bytes_ -= state.window->charged_bytes;
  std::unique_ptr<LaneWindow> window = std::move(state.window);
  set_queued(block, state, needs_.first_use(block));
  forget_if_unused(block);
  return window;
}

void ListedBlocks::forget_if_unused(std::uint32_t block) {
  const auto found = blocks_.find(block);
  if (found->second.queued == kNever && found->second.window == nullptr) blocks_.erase(found);
}

void ListedBlocks::pass(std::uint64_t batch, std::span<const LanePosition>, Windows& closed) {
  ListedNeeds::Use passed;
  while (true) {
    const std::uint64_t number = needs_.passed_uses();
    if (!needs_.pass_use(batch, passed)) return;
    const auto found = blocks_.find(passed.block);
    if (found == blocks_.end()) continue;
    State& state = found->second;
    if (state.queued == number) {
      queue_.erase({passed.batch, passed.block});
      state.queued = kNever;
      set_queued(passed.block, state, passed.next);
    }
    if (state.window == nullptr) {
      forget_if_unused(passed.block);
      continue;
    }
    set_need(passed.block, state, needs_.batch_of_use(passed.next));
    // While the list goes on, a block may be needed again: it goes when memory is wanted.
    if (passed.next == kNever && needs_.is_complete()) closed.push_back(close(passed.block, state));
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
  charged_bytes_ = 0;
}

std::uint64_t ListedBlocks::held_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& [block, state] : blocks_)
    if (state.window != nullptr) bytes += state.window->held_bytes();
  return bytes;
}

}  // namespace headrace::feed
