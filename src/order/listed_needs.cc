// Uses are appended while the list is scanned and dropped from the front as batches pass, both in
// O(1). Numbers of uses count on for ever; what is kept of them is short:
// - a use names the next one of its block by the distance, which is less than the number of known
//   uses (kMaxUses and one batch), so 32 bits hold it;
// - a block names its first and last use by marks: the number modulo 2^32 - 1, plus 1, so that 0 is
//   free for none. Known uses lie closer together than that, so a mark says which one is meant.
#include "order/listed_needs.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {
namespace {

/// Uses known at once: 16 MiB. Beyond them nothing is known, and a block that is not needed among
/// them goes first when memory is wanted.
constexpr std::size_t kMaxUses = std::size_t{1} << 20;
/// Uses taken in by one look, so that the first batch does not wait for the scan of a long list.
constexpr std::size_t kUsesPerLook = std::size_t{1} << 14;
constexpr std::uint64_t kMarks = 0xffff'ffffU;

}  // namespace

ListedNeeds::ListedNeeds(std::shared_ptr<const EpochOrder> order, std::uint32_t block_count,
                         const BatchPlan& plan, Ranks ranks, std::uint64_t first_number)
    : order_(std::move(order)),
      plan_(plan),
      ranks_(ranks),
      batch_count_(plan.batch_count()),
      passed_uses_(first_number),
      ends_(block_count) {
  HEADRACE_DCHECK(order_->lanes() == nullptr && ranks.first + ranks.count <= plan.world_size);
}

std::uint32_t ListedNeeds::mark_of(std::uint64_t number) noexcept {
  return static_cast<std::uint32_t>(number % kMarks) + 1;
}

std::uint64_t ListedNeeds::number_of(std::uint32_t mark) const noexcept {
  if (mark == 0) return kNever;
  return passed_uses_ + (mark - 1 + kMarks - passed_uses_ % kMarks) % kMarks;
}

ListedNeeds::Use ListedNeeds::use(std::uint64_t number) const noexcept {
  HEADRACE_DCHECK(passed_uses_ <= number && number < known_uses());
  const Entry& entry = uses_[number - passed_uses_];
  const std::uint32_t ago = static_cast<std::uint32_t>(scanned_) - entry.batch;
  return {.batch = scanned_ - ago,
          .next = entry.distance == 0 ? kNever : number + entry.distance,
          .block = entry.block,
          .sample_count = entry.sample_count};
}

std::uint64_t ListedNeeds::first_use(std::uint32_t block) const noexcept {
  return number_of(ends_[block].first);
}

std::uint64_t ListedNeeds::next_need(std::uint32_t block, std::uint64_t from) const noexcept {
  for (std::uint64_t number = first_use(block); number != kNever;) {
    const Use found = use(number);
    if (found.batch >= from) return found.batch;
    number = found.next;
  }
  return kNever;
}

// --- learning ---

bool ListedNeeds::may_learn() const noexcept { return !is_complete() && uses_.size() < kMaxUses; }

void ListedNeeds::look_ahead(std::uint64_t batch) {
  const std::size_t enough = std::min(uses_.size() + kUsesPerLook, kMaxUses);
  while (!is_complete() && (scanned_ <= batch || uses_.size() < enough)) scan_batch();
}

void ListedNeeds::scan_batch() {
  BatchPlan plan = plan_;
  for (plan.rank = ranks_.first; plan.rank < ranks_.first + ranks_.count; ++plan.rank) {
    const BatchPlan::Slots slots = plan.slots(scanned_);
    const std::uint64_t end = std::min(slots.first + slots.count, slots.end);
    places_.resize(end > slots.first ? end - slots.first : 0);
    if (!places_.empty()) order_->locate_run(slots.first, plan.segment, places_);
    for (const LanePosition& place : places_) {
      if (place.lane != kNoLane) add_use(place.lane);
    }
  }
  ++scanned_;
}

void ListedNeeds::add_use(std::uint32_t block) {
  Ends& ends = ends_[block];
  const std::uint64_t number = known_uses();
  const std::uint64_t last = number_of(ends.last);
  if (last != kNever) {
    Entry& before = uses_[last - passed_uses_];
    if (before.batch == static_cast<std::uint32_t>(scanned_)) {
      ++before.sample_count;
      return;
    }
    before.distance = static_cast<std::uint32_t>(number - last);
  }
  uses_.push_back({.batch = static_cast<std::uint32_t>(scanned_),
                   .distance = 0,
                   .block = block,
                   .sample_count = 1});
  ends.last = mark_of(number);
  if (ends.first == 0) ends.first = ends.last;
}

// --- forgetting ---

bool ListedNeeds::pass_use(std::uint64_t batch, Use& out) {
  if (uses_.empty()) return false;
  const Use first = use(passed_uses_);
  if (first.batch > batch) return false;
  out = first;
  Ends& ends = ends_[first.block];
  ends.first = first.next == kNever ? 0 : mark_of(first.next);
  if (first.next == kNever) ends.last = 0;
  uses_.pop_front();
  ++passed_uses_;
  return true;
}

void ListedNeeds::pass(std::uint64_t batch) {
  for (Use passed; pass_use(batch, passed);) continue;
}

}  // namespace headrace
