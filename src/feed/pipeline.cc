#include "feed/pipeline.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace headrace::feed {

Pipeline::Outcome Pipeline::assemble() {
  Work& head = works_.front();
  if (head.resolved == 0) {
    sources_.assign(head.count(), {});
    planned_.resize(head.count());
    ids_.resize(head.count());
    mask_.resize(head.count());
    places_.resize(head.count());
  }
  // Each stage may send the head back to an earlier one by taking a window from it.
  Outcome outcome = await_runs(head);
  if (outcome == Outcome::kDone) outcome = resolve(head);
  if (outcome == Outcome::kDone && !head.is_cut) outcome = cut(head);
  if (outcome == Outcome::kDone && head.count() == 0) {
    deliver_nothing(head);
  } else if (outcome == Outcome::kDone) {
    outcome = deliver(head);
  }
  if (outcome != Outcome::kDone) return outcome;
  close_passed(head);
  looks_.clear();
  is_size_wrong_ = false;
  drop_runs(head);
  works_.pop_front();
  ++head_;
  window_limit_bytes_ = std::min(window_cap_bytes_, window_limit_bytes_ + window_step_bytes_);
  return Outcome::kDone;
}

Pipeline::Outcome Pipeline::await_runs(Work& head) {
  while (head.begun_runs < head.runs.size()) {
    SparseRun& run = head.runs[head.begun_runs];
    if (fetcher_.begin(run.fetch) != Fetcher::Begin::kNoMemory) {
      ++head.begun_runs;
      sparse_bytes_ += run.charged_bytes;
      continue;
    }
    if (make_room()) continue;
    const bool is_any_under_way = std::any_of(
        head.runs.begin(), head.runs.begin() + static_cast<std::ptrdiff_t>(head.begun_runs),
        [&](const SparseRun& r) {
          return r.fetch->state < Fetch::State::kReady ||
                 (dataset_.is_compressed(r.fetch->piece.block) && !r.is_kept);
        });
    if (is_any_under_way) break;  // Its end gives back what decompression took.
    return starve(head, "single reads");
  }
  bool are_all_ready = head.begun_runs == head.runs.size();
  for (std::size_t i = 0; i < head.begun_runs; ++i) {
    SparseRun& run = head.runs[i];
    if (run.fetch->state == Fetch::State::kFailed) {
      note(head, run.fetch->timeline);
      return replace_run(head, i);
    }
    if (run.fetch->state != Fetch::State::kReady) {
      are_all_ready = false;
    } else if (dataset_.is_compressed(run.fetch->piece.block) && !run.is_kept) {
      const Outcome outcome = keep_run(head, i);
      if (outcome != Outcome::kDone) return outcome;
      if (head.begun_runs < head.runs.size()) return Outcome::kAgain;
    }
  }
  if (!are_all_ready) return Outcome::kWait;
  for (const SparseRun& run : head.runs) note(head, run.fetch->timeline);
  return Outcome::kDone;
}

Pipeline::Outcome Pipeline::keep_run(Work& head, std::size_t index) {
  if (parts_.stand_ins->is_active()) {
    const Outcome outcome = settle_run(head, index);
    if (outcome != Outcome::kDone) return outcome;
  }
  Status kept = keep_samples(dataset_, parts_.waker->pool(), head.runs[index]);
  if (kept.code() == Code::kCorrupt) {
    const Outcome outcome = settle_run(head, index);
    return outcome == Outcome::kDone ? Outcome::kAgain : outcome;
  }
  SparseRun& run = head.runs[index];
  if (kept.code() == Code::kExhausted) {
    if (make_room()) return Outcome::kAgain;
    // Later runs of this batch hold inflated blocks that will be wanted only after this one: read
    // them again then.
    for (std::size_t j = index + 1; j < head.begun_runs; ++j) {
      if (head.runs[j].fetch->state < Fetch::State::kReady) return Outcome::kWait;
    }
    while (kept.code() == Code::kExhausted && retract_run(head, index)) {
      kept = keep_samples(dataset_, parts_.waker->pool(), run);
    }
    if (kept.code() == Code::kExhausted) return starve(head, "samples of a compressed block");
  }
  return kept.ok() ? Outcome::kDone : fail(head, std::move(kept));
}

bool Pipeline::retract_run(Work& head, std::size_t but_not) {
  if (head.begun_runs == 0 || head.begun_runs - 1 == but_not) return false;
  SparseRun& run = head.runs[head.begun_runs - 1];
  if (run.is_kept) return false;
  fetcher_.abandon(*run.fetch);
  auto again = std::make_shared<Fetch>();
  again->piece = run.fetch->piece;
  again->is_fresh = run.fetch->is_fresh;
  again->timeline.wanted = run.fetch->timeline.wanted;
  run.fetch = std::move(again);
  sparse_bytes_ -= run.charged_bytes;
  --head.begun_runs;
  return fetcher_.abandoned_count() == 0;
}

Pipeline::Outcome Pipeline::resolve(Work& head) {
  std::vector<std::uint32_t> apart;
  const Outcome outcome = resolve_slots(head, apart);
  if (apart.empty() || outcome == Outcome::kFailed) return outcome;
  return read_apart(head, apart);
}

Pipeline::Outcome Pipeline::resolve_slots(Work& head, std::vector<std::uint32_t>& apart) {
  const StandIns& stand_ins = *parts_.stand_ins;
  for (std::uint32_t i = head.resolved; i < head.count(); ++i) {
    const bool is_real = head.is_real(i);
    mask_[i] = is_real ? 1 : 0;
    if (!is_real) {
      // Only the samples of other ranks are read for a repeat; those have their source from a run.
      const std::uint64_t own = head.slot_of(head.sample(i));
      if (own < i) sources_[i] = sources_[own];
      head.resolved = i + 1;
      continue;
    }
    const LanePosition place = place_of(head, i);
    places_[i] = place;
    while (head.is_sparse.empty() || head.is_sparse[i] == 0) {
      LaneWindow* window = residency_->find(place);
      if (window == nullptr) {
        window = &residency_->open(place, head.k);
        mark_wanted(*window);
      }
      if (!window->is_ready) {
        const Outcome outcome = await_window(head, *window);
        if (outcome != Outcome::kDone) return outcome;
        continue;  // It is ready now, or this batch reads the lane singly.
      }
      const WindowSample sample = window->sample_at(place.position);
      planned_[i] = {window->window.pieces[sample.piece].block, sample.sample_in_block};
      sources_[i] = {&window->bytes[sample.piece], sample.sample_in_block};
      if (stand_ins.is_active()) {
        const SamplePlace chosen = stand_ins.find_or_same(planned_[i]);
        sources_[i] = {window->find_bytes(chosen), chosen.index};
        if (sources_[i].bytes == nullptr) apart.push_back(i);
      }
      break;
    }
    head.resolved = i + 1;
  }
  return Outcome::kDone;
}

Pipeline::Outcome Pipeline::await_window(Work& head, LaneWindow& window) {
  while (!begin_pieces(window)) {
    if (make_room()) continue;
    if (fetcher_.abandoned_count() > 0) return Outcome::kWait;
    read_lane_singly(head, window.lane);
    return Outcome::kAgain;
  }
  if (const std::size_t failed = window.failed(); failed < window.fetches.size()) {
    note(head, window.fetches[failed]->timeline);
    return replace_piece(head, window, failed);
  }
  if (!window.refresh()) return Outcome::kWait;
  for (const auto& fetch : window.fetches) {
    if (fetch) note(head, fetch->timeline);
  }
  return Outcome::kDone;
}

Pipeline::Outcome Pipeline::cut(Work& head) {
  const std::uint32_t count = head.count();
  cuts_.cells.resize(count * cuts_.stride);
  for (const SparseRun& run : head.runs) {
    for (std::size_t i = 0; i < run.slots.size(); ++i) {
      const SparseSlot& slot = run.slots[i];
      planned_[slot.slot] = slot.planned;
      if (run.is_kept) {
        ids_[slot.slot] = id_of(slot.place());
        sources_[slot.slot] = {};
        std::copy_n(run.cells.begin() + static_cast<std::ptrdiff_t>(i * cuts_.stride), cuts_.stride,
                    cuts_.row(slot.slot).begin());
      } else {
        sources_[slot.slot] = {&run.fetch->bytes, slot.index, run.fetch.get()};
      }
    }
  }
  std::vector<std::uint32_t> apart;
  std::vector<std::uint32_t> doubtful;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t own = head.is_real(i) ? count : head.slot_of(head.sample(i));
    if (own < i) {
      ids_[i] = ids_[own];
      planned_[i] = planned_[own];
      std::copy_n(cuts_.row(own).begin(), cuts_.stride, cuts_.row(i).begin());
    } else if (sources_[i].bytes != nullptr) {
      auto is_cut = cut_slot(i);
      if (!is_cut) return fail(head, std::move(is_cut).error());
      if (*is_cut == Cut::kElsewhere) apart.push_back(i);
      if (*is_cut == Cut::kReadAgain) doubtful.push_back(i);
    }
  }
  if (!doubtful.empty() && read_again(head, doubtful) == Outcome::kFailed) return Outcome::kFailed;
  if (!apart.empty()) return read_apart(head, apart);
  if (!doubtful.empty()) return Outcome::kAgain;
  auto layout = lay_out(parts_.selection, cuts_, count);
  if (!layout && !checks_sizes()) {
    is_size_wrong_ = true;  // Of which sample, and is it the data's fault?
    return Outcome::kAgain;
  }
  if (!layout) return fail(head, std::move(layout).error());
  layout_ = *std::move(layout);
  head.is_cut = true;
  return Outcome::kDone;
}

Result<Pipeline::Cut> Pipeline::cut_slot(std::uint32_t slot) {
  const Source& source = sources_[slot];
  SamplePlace place{source.bytes->block, source.index};
  Cut result = Cut::kDone;
  if (checks_sizes() || !dataset_.cut(*source.bytes, source.index, cuts_.row(slot)).ok()) {
    HEADRACE_TRY_ASSIGN(result, cut_stand_in(source, planned_[slot], place, cuts_.row(slot)));
  }
  ids_[slot] = id_of(place);
  return result;
}

Pipeline::Outcome Pipeline::deliver(Work& head) {
  auto slab = parts_.waker->pool().try_acquire(layout_.total_bytes);
  while (!slab) {
    if (slab.error().code() != Code::kExhausted) {
      return fail(head,
                  Status(Code::kExhausted, "a batch of " + std::to_string(layout_.total_bytes) +
                                               " bytes: " + std::string(slab.error().message()) +
                                               "; raise memory or lower batch_size"));
    }
    if (head.timeline.memory_from == TimePoint()) head.timeline.memory_from = parts_.clock->now();
    is_starved_ = true;
    parts_.waker->set_hungry(true);
    if (!parts_.channel->is_empty())
      return Outcome::kWait;  // The training loop has work, and gives memory back.
    if (!make_room()) return starve(head, "a batch");
    slab = parts_.waker->pool().try_acquire(layout_.total_bytes);
  }
  is_starved_ = false;
  parts_.waker->set_hungry(false);
  if (head.timeline.memory_from != TimePoint()) head.timeline.memory_until = parts_.clock->now();
  const BatchImpl::Identity identity = {
      .epoch = run_->order->epoch(), .index = run_->batches_before + head.k, .plan_index = head.k};
  auto batch = std::make_unique<BatchImpl>(parts_.waker, parts_.dataset, *std::move(slab),
                                           head.count(), identity, replaced());
  batch->fill(parts_.selection, layout_, cuts_, ids_, mask_);
  parts_.channel->put({std::move(batch), Status(), head.timeline}, generation_);
  return Outcome::kDone;
}

Pipeline::Outcome Pipeline::fail(const Work& head, Status error) {
  is_failed_ = true;
  parts_.channel->put({nullptr, std::move(error), head.timeline}, generation_);
  return Outcome::kFailed;
}

void Pipeline::deliver_nothing(const Work& head) {
  Delivery delivery;
  delivery.timeline = head.timeline;
  parts_.channel->put(std::move(delivery), generation_);
}

void Pipeline::close_passed(const Work& head) {
  std::uint32_t real = 0;
  while (real < head.count() && head.is_real(real)) ++real;
  residency_->pass(head.k, std::span(places_).first(real), closed_);
  for (auto& window : closed_) drop(std::move(window));
  closed_.clear();
}

void Pipeline::note(Work& work, const Timeline& timeline) {
  const auto end_of = [](const Timeline& t) { return std::max(t.finished, t.inflated); };
  if (end_of(timeline) >= end_of(work.timeline.slowest)) work.timeline.slowest = timeline;
}

}  // namespace headrace::feed
