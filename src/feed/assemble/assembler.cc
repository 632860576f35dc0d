// The head goes through three gates: its single reads have come (await_runs), every slot has its
// source (resolve), every value is found (cut_all). Each of them may send it back to an earlier
// one, by giving a window up for memory or by planning reads of stand-ins; Work::resolved and
// Work::is_cut say how far it is. Nothing that a slot points to may be given up in between without
// resetting them: only ReadAhead::starve() takes what the head itself uses, and resets.
#include "feed/assemble/assembler.h"

#include <algorithm>

#include "base/check.h"

namespace headrace::feed {

Assembler::Assembler(const FeedParts& parts, const Run& run, ReadAhead& read_ahead)
    : parts_(parts),
      dataset_(*parts.dataset),
      fetcher_(*parts.fetcher),
      run_(run),
      read_ahead_(read_ahead) {}

Result<Step> Assembler::assemble(CutBatch& cut) {
  if (head().resolved == 0) begin_head(cut);
  HEADRACE_TRY_ASSIGN(Step step, await_runs());
  if (step == Step::kDone) {
    HEADRACE_TRY_ASSIGN(step, resolve(cut));
  }
  if (step == Step::kDone && !head().is_cut) {
    HEADRACE_TRY_ASSIGN(step, cut_all(cut));
  }
  if (step == Step::kDone) cut.replaced = replaced(cut);
  return step;
}

void Assembler::begin_head(CutBatch& cut) {
  const std::uint32_t count = head().count();
  cut.count = count;
  cut.cuts.stride = parts_.selection->column_count;
  cut.ids.resize(count);
  cut.mask.resize(count);
  sources_.assign(count, {});
  cut.planned.resize(count);
  cut.places.resize(count);
  places_.resize(count);
}

std::span<const LanePosition> Assembler::places() noexcept {
  std::uint32_t real = 0;
  while (real < head().count() && head().is_real(real)) ++real;
  return std::span(places_).first(real);
}

void Assembler::pass() noexcept {
  looks_.clear();
  is_size_wrong_ = false;
}

bool Assembler::check_again() {
  if (checks_sizes()) return false;
  is_size_wrong_ = true;
  head().is_cut = false;
  return true;
}

// --- single reads ---

Result<Step> Assembler::begin_runs() {
  Work& head = this->head();
  while (head.begun_runs < head.runs.size()) {
    if (read_ahead_.begin_run()) continue;
    if (read_ahead_.make_room()) continue;
    const bool is_any_under_way = std::any_of(
        head.runs.begin(), head.runs.begin() + static_cast<std::ptrdiff_t>(head.begun_runs),
        [&](const SparseRun& r) {
          return r.fetch->is_under_way() || r.fetch->state == Fetch::State::kPlanned ||
                 (dataset_.is_compressed(r.fetch->piece.block) && !r.is_kept);
        });
    if (is_any_under_way) break;  // Its end gives back what decompression took.
    return read_ahead_.starve("single reads");
  }
  return Step::kDone;
}

Result<Step> Assembler::await_runs() {
  HEADRACE_TRY_ASSIGN(const Step begun, begin_runs());
  if (begun != Step::kDone) return begun;
  Work& head = this->head();
  bool are_all_ready = head.begun_runs == head.runs.size();
  for (std::size_t i = 0; i < head.begun_runs; ++i) {
    SparseRun& run = head.runs[i];
    if (run.fetch->state == Fetch::State::kFailed) {
      head.note(run.fetch->timeline);
      HEADRACE_TRY(replace_run(i));
      return Step::kAgain;
    }
    if (run.fetch->state == Fetch::State::kPlanned) {
      // Its block needs more than was expected. What others of this batch hold may be enough.
      read_ahead_.put_last(i);
      return Step::kAgain;
    }
    if (run.fetch->state != Fetch::State::kReady) {
      are_all_ready = false;
    } else if (dataset_.is_compressed(run.fetch->piece.block) && !run.is_kept) {
      HEADRACE_TRY_ASSIGN(const Step kept, keep_run(i));
      if (kept != Step::kDone) return kept;
      if (head.begun_runs < head.runs.size()) return Step::kAgain;
    }
  }
  if (!are_all_ready) return Step::kWait;
  for (const SparseRun& run : head.runs) head.note(run.fetch->timeline);
  return Step::kDone;
}

Result<Step> Assembler::keep_run(std::size_t index) {
  Work& head = this->head();
  if (parts_.stand_ins->is_active()) HEADRACE_TRY(settle_run(index));
  if (head.runs[index].slots.empty()) {  // Keeping nothing would take a slab all the same.
    fetcher_.abandon(*head.runs[index].fetch);
    read_ahead_.forget_run(index);
    return Step::kAgain;
  }
  SlabPool& pool = parts_.waker->pool();
  Status kept = keep_samples(dataset_, pool, head.runs[index]);
  if (kept.code() == Code::kCorrupt) {
    HEADRACE_TRY(settle_run(index));
    return Step::kAgain;
  }
  if (kept.code() == Code::kExhausted) {
    if (read_ahead_.make_room()) return Step::kAgain;
    // Later runs of this batch hold inflated blocks that will be wanted only after this one: read
    // them again then.
    for (std::size_t j = index + 1; j < head.begun_runs; ++j) {
      if (head.runs[j].fetch->is_under_way()) return Step::kWait;
    }
    while (kept.code() == Code::kExhausted && read_ahead_.retract_run(index)) {
      kept = keep_samples(dataset_, pool, head.runs[index]);
    }
    if (kept.code() == Code::kExhausted) return read_ahead_.starve("samples of a compressed block");
  }
  HEADRACE_TRY(std::move(kept));
  return Step::kDone;
}

// --- windows ---

Result<Step> Assembler::resolve(CutBatch& cut) {
  std::vector<std::uint32_t> apart;
  HEADRACE_TRY_ASSIGN(const Step step, resolve_slots(cut, apart));
  if (apart.empty()) return step;
  HEADRACE_TRY(read_apart(cut, apart));
  return Step::kAgain;
}

Result<Step> Assembler::resolve_slots(CutBatch& cut, std::vector<std::uint32_t>& apart) {
  Work& head = this->head();
  for (std::uint32_t i = head.resolved; i < head.count(); ++i) {
    const bool is_real = head.is_real(i);
    cut.mask[i] = is_real ? 1 : 0;
    if (!is_real) {
      // Only the samples of other ranks are read for a repeat; those have their source from a run.
      const std::uint64_t own = head.slot_of(head.sample(i));
      if (own < i) sources_[i] = sources_[own];
      head.resolved = i + 1;
      continue;
    }
    const LanePosition place = read_ahead_.planner().place_of(head, i);
    places_[i] = place;
    while (head.is_sparse.empty() || head.is_sparse[i] == 0) {
      LaneWindow& window = read_ahead_.window_of(place);
      if (!window.is_ready) {
        HEADRACE_TRY_ASSIGN(const Step step, await_window(window));
        if (step != Step::kDone) return step;
        continue;  // It is ready now, or this batch reads the lane singly.
      }
      if (!find_source(cut, i, window, place)) apart.push_back(i);
      break;
    }
    head.resolved = i + 1;
  }
  return Step::kDone;
}

bool Assembler::find_source(CutBatch& cut, std::uint32_t slot, const LaneWindow& window,
                            const LanePosition& place) {
  const WindowSample sample = window.sample_at(place.position);
  SamplePlace chosen{window.window.pieces[sample.piece].block, sample.sample_in_block};
  cut.planned[slot] = chosen;
  std::size_t piece = sample.piece;
  if (parts_.stand_ins->is_active()) {
    chosen = parts_.stand_ins->find_or_same(chosen);
    piece = window.piece_of(chosen);
    if (piece == window.bytes.size()) {
      sources_[slot] = {};
      return false;
    }
  }
  sources_[slot] = {.bytes = &window.bytes[piece],
                    .index = chosen.index,
                    .fetch = window.fetches[piece].get(),
                    .is_single = false};
  return true;
}

Result<Step> Assembler::await_window(LaneWindow& window) {
  window.rewind();
  while (!read_ahead_.begin_pieces(window)) {
    if (read_ahead_.make_room()) continue;
    if (fetcher_.abandoned_count() > 0) return Step::kWait;
    read_ahead_.planner().read_lane_singly(head(), window.lane);
    return Step::kAgain;
  }
  if (const std::size_t failed = window.failed(); failed < window.fetches.size()) {
    head().note(window.fetches[failed]->timeline);
    HEADRACE_TRY(replace_piece(window, failed));
    return Step::kAgain;
  }
  if (!window.refresh()) return Step::kWait;
  for (const auto& fetch : window.fetches) {
    if (fetch) head().note(fetch->timeline);
  }
  return Step::kDone;
}

// --- cutting ---

void Assembler::take_runs(CutBatch& cut) {
  const std::size_t stride = cut.cuts.stride;
  for (const SparseRun& run : head().runs) {
    for (std::size_t i = 0; i < run.slots.size(); ++i) {
      const SparseSlot& slot = run.slots[i];
      cut.planned[slot.slot] = slot.planned;
      if (run.is_kept) {
        cut.ids[slot.slot] = id_of(slot.place());
        cut.places[slot.slot] = slot.place();
        sources_[slot.slot] = {};
        std::copy_n(run.cells.begin() + static_cast<std::ptrdiff_t>(i * stride), stride,
                    cut.cuts.row(slot.slot).begin());
      } else {
        sources_[slot.slot] = {.bytes = &run.fetch->bytes,
                               .index = slot.index,
                               .fetch = run.fetch.get(),
                               .is_single = true};
      }
    }
  }
}

Result<Step> Assembler::cut_all(CutBatch& cut) {
  Work& head = this->head();
  const std::uint32_t count = head.count();
  cut.cuts.cells.resize(count * cut.cuts.stride);
  take_runs(cut);
  std::vector<std::uint32_t> apart;
  std::vector<std::uint32_t> doubtful;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t own = head.is_real(i) ? count : head.slot_of(head.sample(i));
    if (own < i) {
      cut.ids[i] = cut.ids[own];
      cut.planned[i] = cut.planned[own];
      cut.places[i] = cut.places[own];
      std::copy_n(cut.cuts.row(own).begin(), cut.cuts.stride, cut.cuts.row(i).begin());
    } else if (sources_[i].bytes != nullptr) {
      HEADRACE_TRY_ASSIGN(const Cut how, cut_slot(cut, i));
      if (how == Cut::kElsewhere) apart.push_back(i);
      if (how == Cut::kReadAgain) doubtful.push_back(i);
    }
  }
  if (!doubtful.empty()) read_again(cut, doubtful);
  if (!apart.empty()) HEADRACE_TRY(read_apart(cut, apart));
  if (!doubtful.empty() || !apart.empty()) return Step::kAgain;
  head.is_cut = true;
  return Step::kDone;
}

Result<Assembler::Cut> Assembler::cut_slot(CutBatch& cut, std::uint32_t slot) {
  const Source& source = sources_[slot];
  SamplePlace place{source.bytes->block, source.index};
  const std::span<ColumnBytes> row = cut.cuts.row(slot);
  Cut result = Cut::kDone;
  if (checks_sizes() || !dataset_.cut(*source.bytes, source.index, row).ok()) {
    HEADRACE_TRY_ASSIGN(result, cut_stand_in(source, cut.planned[slot], place, row));
  }
  cut.ids[slot] = id_of(place);
  cut.places[slot] = place;
  return result;
}

void Assembler::pin(CutBatch& cut) {
  const std::uint64_t mark = fetcher_.new_pin_mark();
  Work& head = this->head();
  for (const Source& source : sources_) {
    if (source.fetch != nullptr) fetcher_.pin(*source.fetch, mark, cut.pins);
  }
  for (SparseRun& run : head.runs) {
    if (run.is_kept) cut.kept.push_back(std::move(run.kept));
  }
}

}  // namespace headrace::feed
