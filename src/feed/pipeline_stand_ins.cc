// What the pipeline does about bad samples: which sample stands in is in stand_ins.cc.
#include <algorithm>

#include "feed/pipeline.h"

namespace headrace::feed {

Result<bool> Pipeline::cut_stand_in(const BlockBytes& bytes, const SamplePlace& planned,
                                    SamplePlace& place, std::span<ColumnBytes> row) {
  StandIns& stand_ins = *parts_.stand_ins;
  while (true) {
    HEADRACE_TRY_ASSIGN(place, stand_ins.find(planned));
    if (place.block != bytes.block || place.index < bytes.begin || place.index >= bytes.end)
      return false;
    Status status = dataset_.cut(bytes, place.index, row);
    if (status.ok()) status = check_sizes(parts_.selection, row);
    if (status.ok()) return true;
    HEADRACE_TRY(stand_ins.take_bad_sample(place, std::move(status)));
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
  std::vector<ColumnBytes> row(cuts_.stride);
  SparseRun& run = head.runs[index];
  for (SparseSlot slot : run.slots) {
    SamplePlace place = slot.place();
    auto is_here = cut_stand_in(run.fetch->bytes, slot.planned, place, row);
    if (!is_here) return fail(head, std::move(is_here).error());
    slot.block = place.block;
    slot.index = place.index;
    (*is_here ? stay : leave).push_back(slot);
  }
  run.slots = std::move(stay);
  if (!leave.empty()) add_runs(head, std::move(leave));
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
