// What the assembler does about samples whose bytes make no sense: they are read again, and if the
// data is at fault, others stand in for them (stand_ins.cc says which).
#include <algorithm>

#include "feed/assemble/assembler.h"

namespace headrace::feed {
namespace {

std::vector<SparseSlot> wanted_of(const CutBatch& cut, const std::vector<std::uint32_t>& slots) {
  std::vector<SparseSlot> wanted;
  for (const std::uint32_t i : slots)
    wanted.push_back({.slot = i, .block = 0, .index = 0, .planned = cut.planned[i]});
  return wanted;
}

}  // namespace

Result<Assembler::Cut> Assembler::cut_stand_in(const Source& source, const SamplePlace& planned,
                                               SamplePlace& place, std::span<ColumnBytes> row) {
  StandIns& stand_ins = *parts_.stand_ins;
  const BlockBytes& bytes = *source.bytes;
  while (true) {
    HEADRACE_TRY_ASSIGN(place, stand_ins.find(planned));
    if (place.block != bytes.block || place.index < bytes.begin || place.index >= bytes.end)
      return Cut::kElsewhere;
    Status status = dataset_.cut(bytes, place.index, row);
    if (status.ok() && checks_sizes()) status = check_sizes_of(place, row);
    if (status.ok()) return Cut::kDone;
    HEADRACE_TRY_ASSIGN(const bool again, wants_second_look(place, status, source));
    if (again) return Cut::kReadAgain;
    HEADRACE_TRY(stand_ins.take_bad_sample(place, std::move(status)));
    if (dataset_.is_compressed(bytes.block)) HEADRACE_TRY(take_bad_neighbours(bytes, row));
  }
}

Status Assembler::check_sizes_of(const SamplePlace& place, std::span<const ColumnBytes> row) const {
  Status status = check_sizes(*parts_.selection, row);
  return status.ok() ? Status() : std::move(status).annotate(name_of(place));
}

Status Assembler::take_bad_neighbours(const BlockBytes& bytes, std::span<ColumnBytes> row) {
  for (std::uint32_t i = bytes.begin; i < bytes.end; ++i) {
    const SamplePlace place{bytes.block, i};
    Status status = dataset_.cut(bytes, i, row);
    if (status.ok()) status = check_sizes_of(place, row);
    if (status.code() == Code::kCorrupt)
      HEADRACE_TRY(parts_.stand_ins->take_bad_sample(place, std::move(status)));
  }
  return {};
}

Result<bool> Assembler::wants_second_look(const SamplePlace& place, const Status& status,
                                          const Source& source) {
  if (status.code() != Code::kCorrupt) return false;
  SecondLook& look = looks_[{place.block, place.index}];
  // Only bytes read for it alone, past caches, can be compared with those of another such look.
  if (!source.is_single || !source.fetch->is_fresh) return true;
  switch (look.take(source.fetch->digest)) {
    case SecondLook::Verdict::kReadAgain:
      return true;
    case SecondLook::Verdict::kNeverSame:
      return SecondLook::never_same(status);
    case SecondLook::Verdict::kData:
      break;
  }
  return false;
}

void Assembler::read_again(const CutBatch& cut, const std::vector<std::uint32_t>& slots) {
  release_slots(slots);
  read_ahead_.planner().add_second_looks(head(), wanted_of(cut, slots));
}

Status Assembler::read_apart(const CutBatch& cut, const std::vector<std::uint32_t>& slots) {
  for (const std::uint32_t i : slots) {
    auto place = parts_.stand_ins->find(cut.planned[i]);
    if (!place) return std::move(place).error();
  }
  release_slots(slots);
  read_ahead_.planner().add_runs(head(), wanted_of(cut, slots));
  return {};
}

void Assembler::release_slots(const std::vector<std::uint32_t>& slots) {
  Work& head = this->head();
  // From the back: forget_run() takes a run out of the list.
  for (std::size_t i = head.begun_runs; i-- > 0;) {
    SparseRun& run = head.runs[i];
    if (run.is_kept) continue;
    std::erase_if(run.slots, [&](const SparseSlot& slot) {
      return std::binary_search(slots.begin(), slots.end(), slot.slot);
    });
    if (!run.slots.empty()) continue;
    fetcher_.abandon(*run.fetch);
    read_ahead_.forget_run(i);
  }
}

Status Assembler::replace_run(std::size_t index) {
  SparseRun& run = head().runs[index];
  Status error = std::move(run.fetch->error);
  if (run.fetch->is_block_bad)
    error = parts_.stand_ins->take_bad_block(run.fetch->piece.block, std::move(error));
  HEADRACE_TRY(std::move(error));
  std::vector<SparseSlot> slots = std::move(run.slots);
  read_ahead_.forget_run(index);
  for (const SparseSlot& slot : slots) {
    auto place = parts_.stand_ins->find(slot.planned);
    if (!place) return std::move(place).error();
  }
  read_ahead_.planner().add_runs(head(), std::move(slots));
  return {};
}

Status Assembler::settle_run(std::size_t index) {
  std::vector<SparseSlot> stay;
  std::vector<SparseSlot> leave;
  std::vector<SparseSlot> doubtful;
  std::vector<ColumnBytes> row(parts_.selection->column_count);
  SparseRun& run = head().runs[index];
  const auto source_of = [&](const SparseSlot& slot) {
    return Source{.bytes = &run.fetch->bytes,
                  .index = slot.index,
                  .fetch = run.fetch.get(),
                  .is_single = true};
  };
  for (SparseSlot slot : run.slots) {
    SamplePlace place = slot.place();
    HEADRACE_TRY_ASSIGN(const Cut how, cut_stand_in(source_of(slot), slot.planned, place, row));
    slot.block = place.block;
    slot.index = place.index;
    (how == Cut::kDone ? stay : how == Cut::kElsewhere ? leave : doubtful).push_back(slot);
  }
  run.slots = std::move(stay);
  const Planner& planner = read_ahead_.planner();
  if (!leave.empty()) planner.add_runs(head(), std::move(leave));
  if (!doubtful.empty()) planner.add_second_looks(head(), std::move(doubtful));
  return {};
}

Status Assembler::replace_piece(LaneWindow& window, std::size_t index) {
  const Fetch& fetch = *window.fetches[index];
  Status error = fetch.error.clone();  // Another window may have the same read.
  if (fetch.is_block_bad)
    error = parts_.stand_ins->take_bad_block(fetch.piece.block, std::move(error));
  HEADRACE_TRY(std::move(error));
  const Piece& piece = window.window.pieces[index];
  auto place = parts_.stand_ins->find({piece.block, piece.begin});
  if (!place) return std::move(place).error();
  window.replace_fetch(index, dataset_, (*place).block, parts_.clock->now());
  return {};
}

std::vector<ReplacedSample> Assembler::replaced(const CutBatch& cut) const {
  std::vector<ReplacedSample> out;
  if (!parts_.stand_ins->is_active()) return out;
  for (std::uint32_t i = 0; i < cut.count; ++i) {
    const std::int64_t planned_id = id_of(cut.planned[i]);
    if (planned_id != cut.ids[i]) out.push_back({i, planned_id});
  }
  return out;
}

}  // namespace headrace::feed
