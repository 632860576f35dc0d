// What the pipeline does about samples whose bytes make no sense: they are read again, and if the
// data is at fault, others stand in for them (stand_ins.cc says which).
#include <algorithm>

#include "feed/pipeline.h"

namespace headrace::feed {

Result<Pipeline::Cut> Pipeline::cut_stand_in(const Source& source, const SamplePlace& planned,
                                             SamplePlace& place, std::span<ColumnBytes> row) {
  StandIns& stand_ins = *parts_.stand_ins;
  const BlockBytes& bytes = *source.bytes;
  while (true) {
    HEADRACE_TRY_ASSIGN(place, stand_ins.find(planned));
    if (place.block != bytes.block || place.index < bytes.begin || place.index >= bytes.end)
      return Cut::kElsewhere;
    Status status = dataset_.cut(bytes, place.index, row);
    if (status.ok() && checks_sizes()) status = check_sizes(parts_.selection, row);
    if (status.ok()) return Cut::kDone;
    HEADRACE_TRY_ASSIGN(const bool again, wants_second_look(place, status, source.single));
    if (again) return Cut::kReadAgain;
    HEADRACE_TRY(stand_ins.take_bad_sample(place, std::move(status)));
    if (dataset_.is_compressed(bytes.block)) HEADRACE_TRY(take_bad_neighbours(bytes, row));
  }
}

Status Pipeline::take_bad_neighbours(const BlockBytes& bytes, std::span<ColumnBytes> row) {
  for (std::uint32_t i = bytes.begin; i < bytes.end; ++i) {
    const SamplePlace place{bytes.block, i};
    Status status = dataset_.cut(bytes, i, row);
    if (status.ok()) status = check_sizes(parts_.selection, row);
    if (status.code() == Code::kCorrupt)
      HEADRACE_TRY(parts_.stand_ins->take_bad_sample(place, std::move(status)));
  }
  return {};
}

Result<bool> Pipeline::wants_second_look(const SamplePlace& place, const Status& status,
                                         const Fetch* single) {
  if (status.code() != Code::kCorrupt) return false;
  SecondLook& look = looks_[{place.block, place.index}];
  if (single == nullptr || !single->is_fresh) return true;
  switch (look.take(single->digest)) {
    case SecondLook::Verdict::kReadAgain:
      return true;
    case SecondLook::Verdict::kNeverSame:
      return SecondLook::never_same(status);
    case SecondLook::Verdict::kData:
      break;
  }
  return false;
}

Pipeline::Outcome Pipeline::read_again(Work& head, const std::vector<std::uint32_t>& slots) {
  std::vector<SparseSlot> wanted;
  for (const std::uint32_t i : slots)
    wanted.push_back({.slot = i, .block = 0, .index = 0, .planned = planned_[i]});
  release_slots(head, slots);
  add_second_looks(head, std::move(wanted));
  return Outcome::kAgain;
}

void Pipeline::add_second_looks(Work& head, std::vector<SparseSlot> slots) {
  find_places(head, slots);
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
      head.runs.push_back(std::move(run));
    }
    begin = static_cast<std::size_t>(end - slots.begin());
  }
}

Pipeline::Outcome Pipeline::read_apart(Work& head, const std::vector<std::uint32_t>& slots) {
  std::vector<SparseSlot> wanted;
  for (const std::uint32_t i : slots) {
    auto place = parts_.stand_ins->find(planned_[i]);
    if (!place) return fail(head, std::move(place).error());
    wanted.push_back({.slot = i, .block = 0, .index = 0, .planned = planned_[i]});
  }
  release_slots(head, slots);
  add_runs(head, std::move(wanted));
  return Outcome::kAgain;
}

void Pipeline::release_slots(Work& head, const std::vector<std::uint32_t>& slots) {
  for (std::size_t i = head.begun_runs; i-- > 0;) {
    SparseRun& run = head.runs[i];
    if (run.is_kept) continue;
    std::erase_if(run.slots, [&](const SparseSlot& slot) {
      return std::binary_search(slots.begin(), slots.end(), slot.slot);
    });
    if (!run.slots.empty()) continue;
    fetcher_.abandon(*run.fetch);
    forget_run(head, i);
  }
}

void Pipeline::forget_run(Work& head, std::size_t index) {
  sparse_bytes_ -= head.runs[index].charged_bytes;
  --head.begun_runs;
  head.runs.erase(head.runs.begin() + static_cast<std::ptrdiff_t>(index));
}

Pipeline::Outcome Pipeline::replace_run(Work& head, std::size_t index) {
  SparseRun& run = head.runs[index];
  Status error = std::move(run.fetch->error);
  if (run.fetch->is_block_bad)
    error = parts_.stand_ins->take_bad_block(run.fetch->piece.block, std::move(error));
  if (!error.ok()) return fail(head, std::move(error));
  std::vector<SparseSlot> slots = std::move(run.slots);
  forget_run(head, index);
  for (const SparseSlot& slot : slots) {
    auto place = parts_.stand_ins->find(slot.planned);
    if (!place) return fail(head, std::move(place).error());
  }
  add_runs(head, std::move(slots));
  return Outcome::kAgain;
}

Pipeline::Outcome Pipeline::settle_run(Work& head, std::size_t index) {
  std::vector<SparseSlot> stay;
  std::vector<SparseSlot> leave;
  std::vector<SparseSlot> doubtful;
  std::vector<ColumnBytes> row(cuts_.stride);
  SparseRun& run = head.runs[index];
  for (SparseSlot slot : run.slots) {
    SamplePlace place = slot.place();
    auto is_cut =
        cut_stand_in({&run.fetch->bytes, slot.index, run.fetch.get()}, slot.planned, place, row);
    if (!is_cut) return fail(head, std::move(is_cut).error());
    slot.block = place.block;
    slot.index = place.index;
    (*is_cut == Cut::kDone ? stay : *is_cut == Cut::kElsewhere ? leave : doubtful).push_back(slot);
  }
  run.slots = std::move(stay);
  if (!leave.empty()) add_runs(head, std::move(leave));
  if (!doubtful.empty()) add_second_looks(head, std::move(doubtful));
  return Outcome::kDone;
}

Pipeline::Outcome Pipeline::replace_piece(const Work& head, LaneWindow& window, std::size_t index) {
  Fetch& fetch = *window.fetches[index];
  Status error = std::move(fetch.error);
  if (fetch.is_block_bad)
    error = parts_.stand_ins->take_bad_block(fetch.piece.block, std::move(error));
  if (!error.ok()) return fail(head, std::move(error));
  const Piece& piece = window.window.pieces[index];
  auto place = parts_.stand_ins->find({piece.block, piece.begin});
  if (!place) return fail(head, std::move(place).error());
  window.replace_fetch(index, dataset_, (*place).block, parts_.clock->now());
  return Outcome::kAgain;
}

std::vector<ReplacedSample> Pipeline::replaced() const {
  std::vector<ReplacedSample> out;
  if (!parts_.stand_ins->is_active()) return out;
  for (std::uint32_t i = 0; i < ids_.size(); ++i) {
    const std::int64_t planned_id = id_of(planned_[i]);
    if (planned_id != ids_[i]) out.push_back({i, planned_id});
  }
  return out;
}

}  // namespace headrace::feed
