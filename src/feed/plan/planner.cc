// Whether a sample comes from a window or is read singly is decided here, once a batch. Three
// kinds are read singly: those of a run's first batch (it need not wait for whole windows then),
// those of lanes that have no window in memory, and those beyond the batch's own samples that fill
// it up.
//
// A sample that a slot repeats from the same batch is not read again: it is taken from the slot
// that has it.
#include "feed/plan/planner.h"

#include <algorithm>

namespace headrace::feed {
namespace {

/// The first batch of a run is read sample by sample, so that it need not wait for whole windows of
/// every lane, where that costs less than this part of the run's bytes.
constexpr std::uint64_t kBootstrapPart = 200;

}  // namespace

std::uint64_t Work::slot_of(std::uint64_t t) const noexcept {
  const std::uint64_t slot = t - slots.first;
  if (!has_empty || slot >= slots.count) return slot;
  const auto found = std::lower_bound(filled.begin(), filled.end(), slot);
  return static_cast<std::uint64_t>(found - filled.begin());
}

Work Work::planned_singly() const {
  Work work;
  work.k = k;
  work.slots = slots;
  work.has_empty = has_empty;
  work.filled = filled;
  work.places = places;
  work.is_sparse.assign(count(), 1);
  return work;
}

void Work::note(const Timeline& read) noexcept {
  const auto end_of = [](const Timeline& t) { return std::max(t.finished, t.inflated); };
  if (end_of(read) >= end_of(timeline.slowest)) timeline.slowest = read;
}

Planner::Planner(const FeedParts& parts, const Run& run, const Residency& residency)
    : parts_(parts),
      dataset_(*parts.dataset),
      run_(run),
      residency_(residency),
      has_compressed_(has_compressed_blocks(dataset_)) {}

Work Planner::plan(std::uint64_t k) const {
  Work work;
  work.k = k;
  work.slots = run_.plan.slots(k);
  if (run_.order->lanes() == nullptr) list_places(work);
  const bool is_first = is_bootstrap(k);
  if (!is_first && !residency_.has_singles() && !is_tail(work)) return work;
  std::vector<std::uint32_t> slots;
  for (std::uint32_t i = 0; i < work.count(); ++i) {
    const bool is_own_repeat = !work.is_real(i) && work.slot_of(work.sample(i)) < i;
    if (is_own_repeat) continue;
    const bool is_single = is_first || !work.is_real(i) || !residency_.is_dense(place_of(work, i));
    if (is_single) slots.push_back(i);
  }
  read_singly(work, slots);
  return work;
}

bool Planner::is_bootstrap(std::uint64_t k) const noexcept {
  const BatchPlan& plan = run_.plan;
  const std::uint64_t run_samples = plan.sample_count - plan.segment.start;
  // Never with compressed blocks: there a single sample costs its whole block.
  return k == 0 && !run_.is_read_before &&
         plan.segment.global_batch <= run_samples / kBootstrapPart && !has_compressed_;
}

void Planner::list_places(Work& work) const {
  const EpochOrder& order = *run_.order;
  const Segment& segment = run_.plan.segment;
  std::vector<std::uint32_t> filled;
  for (std::uint32_t i = 0; i < work.slots.count; ++i) {
    const LanePosition place = order.locate(work.slots.sample(i), segment);
    if (place.lane == kNoLane) continue;
    filled.push_back(i);
    if (work.slots.is_real(i)) work.places.push_back(place);
  }
  work.has_empty = filled.size() != work.slots.count;
  if (work.has_empty) work.filled = std::move(filled);
}

LanePosition Planner::place_of(const Work& work, std::uint32_t slot) const {
  return slot < work.places.size() ? work.places[slot]
                                   : run_.order->locate(work.sample(slot), run_.plan.segment);
}

void Planner::read_singly(Work& work, const std::vector<std::uint32_t>& slots) const {
  if (slots.empty()) return;
  std::vector<SparseSlot> wanted;
  wanted.reserve(slots.size());
  for (const std::uint32_t i : slots) {
    wanted.push_back({.slot = i, .block = 0, .index = 0, .planned = sample_of(place_of(work, i))});
  }
  add_runs(work, std::move(wanted));
}

void Planner::read_lane_singly(Work& work, std::uint32_t lane) const {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t i = 0; i < work.count() && work.is_real(i); ++i) {
    if (!work.is_sparse.empty() && work.is_sparse[i] != 0) continue;
    if (place_of(work, i).lane == lane) slots.push_back(i);
  }
  read_singly(work, slots);
}

SamplePlace Planner::sample_of(const LanePosition& place) const {
  const BlockSample sample = run_.order->find(place);
  return {sample.block, sample.index};
}

void Planner::find_places(Work& work, std::vector<SparseSlot>& slots) const {
  work.is_sparse.resize(work.count(), 0);
  for (SparseSlot& slot : slots) {
    work.is_sparse[slot.slot] = 1;
    const SamplePlace place =
        parts_.stand_ins->is_active() ? parts_.stand_ins->find_or_same(slot.planned) : slot.planned;
    slot.block = place.block;
    slot.index = place.index;
  }
}

void Planner::add_runs(Work& work, std::vector<SparseSlot> slots) const {
  find_places(work, slots);
  const TimePoint now = parts_.clock->now();
  for (SparseRun& run : plan_runs(dataset_, std::move(slots), parts_.sizes)) {
    run.fetch->timeline.wanted = now;
    work.runs.push_back(std::move(run));
  }
}

void Planner::add_second_looks(Work& work, std::vector<SparseSlot> slots) const {
  find_places(work, slots);
  std::sort(slots.begin(), slots.end(), comes_before);
  const TimePoint now = parts_.clock->now();
  // One sample a read, so that the same bytes are compared: another set of them may follow.
  for (std::size_t begin = 0; begin < slots.size();) {
    const auto is_other = [&](const SparseSlot& slot) {
      return slot.block != slots[begin].block ||
             (slot.index != slots[begin].index && !dataset_.is_compressed(slot.block));
    };
    const auto first = slots.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto end = std::find_if(first, slots.end(), is_other);
    for (SparseRun& run : plan_runs(dataset_, {first, end}, parts_.sizes)) {
      run.fetch->timeline.wanted = now;
      run.fetch->is_fresh = true;
      work.runs.push_back(std::move(run));
    }
    begin = static_cast<std::size_t>(end - slots.begin());
  }
}

}  // namespace headrace::feed
