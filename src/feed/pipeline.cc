// A run goes through stages that were made for it and are thrown away with it: a new position
// (seek, state, another epoch) makes new ones, and batches of the old run that are still being
// finished are told apart by their generation. The head is planned, read and cut in order;
// finishing may overtake nobody, since the finisher delivers in order.
#include "feed/pipeline.h"

#include <algorithm>
#include <string>

#include "feed/residency/lanes.h"
#include "feed/residency/listed_blocks.h"

namespace headrace::feed {

Pipeline::Pipeline(FeedParts parts, ThreadPool* workers, std::uint64_t hand_over_bytes)
    : parts_(std::move(parts)),
      finisher_({.waker = parts_.waker,
                 .selection = parts_.selection,
                 .channel = parts_.channel,
                 .workers = workers,
                 .wake = [fetcher = parts_.fetcher] { fetcher->wake(); },
                 .hand_over_bytes = hand_over_bytes}) {
  parts_.finisher = &finisher_;
}

Pipeline::~Pipeline() {
  begin(std::nullopt, generation_);
  while (!finisher_.is_idle()) {
    finisher_.wait();
    take_finished(false);
  }
}

std::uint64_t Pipeline::largest_window_bytes(const Dataset& dataset, const EpochOrder& order,
                                             const SlabSizes& sizes) {
  std::vector<std::uint64_t> charged(dataset.block_count());
  for (std::uint32_t i = 0; i < charged.size(); ++i) {
    charged[i] = sizes.charged_bytes(dataset, i, dataset.block(i).stored_bytes);
  }
  return order.largest_window_weight(charged);
}

void Pipeline::begin(std::optional<Run> run, std::uint64_t generation) {
  stages_.reset();
  generation_ = generation;
  if (run) stages_ = make_stages(*std::move(run));
}

std::unique_ptr<Pipeline::Stages> Pipeline::make_stages(Run run) {
  const Dataset& dataset = *parts_.dataset;
  std::unique_ptr<Residency> residency;
  const std::uint64_t window_bytes = parts_.shares.window_bytes;
  WindowShares shares{.first_bytes = window_bytes, .window_bytes = window_bytes};
  if (const LaneOrder* lanes = run.order->lanes()) {
    const auto own = static_cast<std::uint32_t>(lanes->own_lanes(run.plan).size());
    const std::uint64_t window = largest_window_bytes(dataset, *run.order, parts_.sizes);
    // Windows bring nothing where each sample is a request anyway: in the order of need, a first
    // batch waits for its own samples alone, and little memory is taken.
    const std::uint32_t dense = parts_.reads_objects_singly ? 0 : own;
    shares = share_windows(window_bytes, window, dense);
    const bool is_slow = shares.dense_lanes < dense && parts_.are_singles_dear;
    parts_.wanted_memory_bytes->store(
        is_slow ? enough_memory_bytes(parts_.shares.needs, window, own) : 0,
        std::memory_order_relaxed);
    residency =
        std::make_unique<LaneTable>(std::shared_ptr<const LaneOrder>(run.order, lanes), dataset,
                                    run.plan, shares.dense_lanes, parts_.sizes, *parts_.stand_ins);
  } else {
    residency = std::make_unique<ListedBlocks>(run.order, dataset, run.plan, parts_.sizes,
                                               *parts_.stand_ins);
  }
  room_.begin(shares.resident_bytes, shares.first_bytes, shares.window_bytes);
  return std::make_unique<Stages>(parts_, std::move(run), std::move(residency), room_);
}

TimePoint Pipeline::step() {
  constexpr auto kStarvedRetry = std::chrono::milliseconds(5);
  take_finished(false);
  if (!stages_ || stages_->is_failed) return TimePoint::max();
  ReadAhead& read_ahead = stages_->read_ahead;
  read_ahead.set_starved(false);
  // Reading ahead must not take what giving up has just won for the head.
  bool is_again = false;
  while (!read_ahead.is_over()) {
    if (!is_again) {
      read_ahead.plan();
      read_ahead.admit();
    }
    if (!parts_.channel->has_room(generation_, finisher_.undelivered_count())) break;
    auto step = advance();
    if (!step) {
      Delivery failure;
      failure.error = std::move(step).error();
      failure.timeline = read_ahead.head().timeline;
      finisher_.deliver(std::move(failure), generation_);
      stages_->is_failed = true;
      break;
    }
    if (*step == Step::kWait) {
      if (parts_.channel->is_empty()) read_ahead.note_wait();
      break;
    }
    is_again = *step == Step::kAgain;
  }
  // What workers keep alive may be what the head waits for: either it has just come back, or the
  // worker that ends next says so.
  if (take_finished(read_ahead.is_starved() || parts_.fetcher->abandoned_count() > 0))
    return parts_.clock->now();
  // Memory that other owners of the pool hold comes back without a word.
  return read_ahead.is_starved() ? parts_.clock->now() + kStarvedRetry : TimePoint::max();
}

Result<Step> Pipeline::advance() {
  if (!cut_) cut_ = finisher_.new_batch();
  HEADRACE_TRY_ASSIGN(Step step, stages_->assembler.assemble(*cut_));
  if (step == Step::kDone) {
    HEADRACE_TRY_ASSIGN(step, finish_head());
  }
  if (step == Step::kDone) pass_head();
  return step;
}

Result<Step> Pipeline::finish_head() {
  Work& head = stages_->read_ahead.head();
  Assembler& assembler = stages_->assembler;
  if (head.count() == 0) {
    Delivery nothing;
    nothing.timeline = head.timeline;
    finisher_.deliver(std::move(nothing), generation_);
    return Step::kDone;
  }
  auto layout = lay_out(*parts_.selection, cut_->cuts, head.count());
  if (!layout && assembler.check_again()) return Step::kAgain;
  HEADRACE_TRY_ASSIGN(cut_->layout, std::move(layout));
  HEADRACE_TRY_ASSIGN(const Step found, find_memory(cut_->layout.total_bytes));
  if (found != Step::kDone) return found;
  const Run& run = stages_->run;
  cut_->identity = {
      .epoch = run.order->epoch(), .index = run.batches_before + head.k, .plan_index = head.k};
  cut_->generation = generation_;
  cut_->timeline = head.timeline;
  if (finisher_.is_handed_over(cut_->layout.total_bytes)) assembler.pin(*cut_);
  finisher_.finish(std::move(cut_));
  return Step::kDone;
}

Result<Step> Pipeline::find_memory(std::size_t total_bytes) {
  ReadAhead& read_ahead = stages_->read_ahead;
  BatchTimeline& timeline = read_ahead.head().timeline;
  SlabPool& pool = parts_.waker->pool();
  auto slab = pool.try_acquire(total_bytes);
  while (!slab) {
    if (slab.error().code() != Code::kExhausted) {
      return Status(Code::kExhausted, "a batch of " + std::to_string(total_bytes) +
                                          " bytes: " + std::string(slab.error().message()) +
                                          "; raise memory or lower batch_size");
    }
    if (timeline.memory_from == TimePoint()) timeline.memory_from = parts_.clock->now();
    read_ahead.set_starved(true);
    parts_.waker->set_hungry(true);
    // The training loop has work, or gets it now, and gives memory back.
    if (!parts_.channel->is_empty() || !finisher_.is_idle()) return Step::kWait;
    if (!read_ahead.make_room()) return read_ahead.starve("a batch");
    slab = pool.try_acquire(total_bytes);
  }
  cut_->slab = *std::move(slab);
  read_ahead.set_starved(false);
  parts_.waker->set_hungry(false);
  if (timeline.memory_from != TimePoint()) timeline.memory_until = parts_.clock->now();
  return Step::kDone;
}

void Pipeline::pass_head() {
  stages_->read_ahead.pass(stages_->assembler.places());
  stages_->assembler.pass();
}

bool Pipeline::take_finished(bool must_wake) {
  bool has_any = false;
  while (auto cut = finisher_.take_finished(must_wake)) {
    has_any = true;
    for (const auto& fetch : cut->pins) parts_.fetcher->unpin(*fetch);
    cut->pins.clear();
    finisher_.reuse(std::move(cut));
  }
  return has_any;
}

}  // namespace headrace::feed
