// A run goes through stages that were made for it and are thrown away with it: a new position
// (seek, state, another epoch) makes new ones, and batches of the old run that are still being
// finished are told apart by their generation. The head is planned, read and cut in order;
// finishing may overtake nobody, since the finisher delivers in order.
#include "feed/pipeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include "feed/residency/lanes.h"
#include "feed/residency/listed_blocks.h"

namespace headrace::feed {

Pipeline::Pipeline(FeedParts parts, ThreadPool* workers, std::uint64_t hand_over_bytes)
    : parts_(std::move(parts)),
      finisher_({.waker = parts_.waker,
                 .selection = parts_.selection,
                 .channel = parts_.channel,
                 .workers = workers,
                 .clock = parts_.clock,
                 .wake = [fetcher = parts_.fetcher] { fetcher->wake(); },
                 .hand_over_bytes = hand_over_bytes}) {
  parts_.finisher = &finisher_;
}

Pipeline::~Pipeline() {
  begin(std::nullopt, generation_);
  while (!finisher_.is_idle()) {
    finisher_.wait();
    drop_bad();
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
  if (repaired_) end_repair(Status(Code::kCancelled, "another run has begun"));
  drop_bad();
  std::unique_ptr<Stages> following = take_following(run);
  stages_.reset();
  generation_ = generation;
  if (following) {
    following->following = run->following;
    following->read_ahead.take_over();
    stages_ = std::move(following);
  } else if (run) {
    if (parts_.kept->has_all()) run->is_read_before = true;
    stages_ = make_stages(*std::move(run));
  }
}

std::unique_ptr<Pipeline::Stages> Pipeline::take_following(const std::optional<Run>& next) {
  if (stages_) stages_->read_ahead.set_behind(nullptr);
  std::unique_ptr<Stages> following = std::move(following_);
  const bool is_it = following && next && following->run.order == next->order &&
                     following->run.plan == next->plan && !following->read_ahead.is_given_up() &&
                     following->read_ahead.holds_any();
  if (!is_it) following.reset();
  return following;
}

void Pipeline::read_on() {
  if (!stages_ || !stages_->following || stages_->is_failed || repaired_) return;
  ReadAhead& current = stages_->read_ahead;
  if (current.is_starved() || !current.has_begun_all()) return;
  if (!following_) {
    Run run = *stages_->following;
    run.is_read_before = true;
    following_ = make_stages(std::move(run));
    current.set_behind(&following_->read_ahead);
  }
  if (following_->read_ahead.is_given_up()) {
    current.set_behind(nullptr);
    following_.reset();
    stages_->following.reset();  // There is not the memory for it.
    return;
  }
  following_->read_ahead.read_behind(current);
  following_->read_ahead.plan();
  following_->read_ahead.admit();
}

std::unique_ptr<Pipeline::Stages> Pipeline::make_stages(Run run) {
  const Dataset& dataset = *parts_.dataset;
  std::unique_ptr<Residency> residency;
  const std::uint64_t window_bytes = parts_.shares.window_bytes;
  WindowShares shares{.first_bytes = window_bytes, .window_bytes = window_bytes};
  const std::uint64_t dataset_bytes = parts_.sizes.charged_bytes(dataset);
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
    // A block that lanes share is kept only if one of them reads all of it.
    const bool is_all_ours = run.plan.world_size == 1 && run.plan.segment.start == 0;
    const bool reads_wholes =
        parts_.keeps_blocks && is_all_ours && !run.is_last &&
        dataset_bytes <= (run.is_one_of_more ? window_bytes : shares.first_bytes);
    residency = std::make_unique<LaneTable>(std::shared_ptr<const LaneOrder>(run.order, lanes),
                                            dataset, run.plan, shares.dense_lanes, parts_.sizes,
                                            *parts_.stand_ins, reads_wholes);
  } else {
    residency = std::make_unique<ListedBlocks>(run.order, dataset, run.plan, parts_.sizes,
                                               *parts_.stand_ins, *parts_.kept);
  }
  // An epoch that follows reads on in the room of the one before.
  if (!stages_) room_.begin(shares.resident_bytes, shares.first_bytes, shares.window_bytes);
  return std::make_unique<Stages>(parts_, std::move(run), std::move(residency), room_,
                                  dataset_bytes);
}

void Pipeline::drop_bad() {
  while (auto cut = finisher_.take_bad())
    finisher_.fail(std::move(cut), Status(Code::kCancelled, "another run has begun"));
}

TimePoint Pipeline::step() {
  constexpr auto kStarvedRetry = std::chrono::milliseconds(5);
  take_finished(false);
  if (!stages_) {
    drop_bad();
    return TimePoint::max();
  }
  ReadAhead& read_ahead = stages_->read_ahead;
  read_ahead.set_starved(false);
  // Reading ahead must not take what giving up has just won for the head.
  bool is_again = false;
  while (true) {
    if (!repaired_) begin_repair(finisher_.take_bad());
    const bool has_head = !stages_->is_failed && !read_ahead.is_over();
    if (!is_again && has_head) {
      read_ahead.plan();
      read_ahead.admit();
    }
    if (!repaired_ &&
        (!has_head || !parts_.channel->has_room(generation_, finisher_.undelivered_count())))
      break;
    const bool is_repair = repaired_ != nullptr;
    auto step = is_repair ? repair() : advance();
    if (!step && !is_repair) {
      Delivery failure;
      failure.error = std::move(step).error();
      failure.timeline = read_ahead.head().timeline;
      finisher_.deliver(std::move(failure), generation_);
      stages_->is_failed = true;
      break;
    }
    if (is_repair && lacks_memory(step) && strip_bad()) step = Step::kAgain;
    if (!step) {
      end_repair(std::move(step).error());
    } else if (*step == Step::kWait) {
      if (parts_.channel->is_empty()) read_ahead.note_wait();
      break;
    }
    is_again = step && *step == Step::kAgain;
  }
  // What workers keep alive may be what the head waits for: either it has just come back, or the
  // worker that ends next says so.
  if (take_finished(read_ahead.is_starved() || parts_.fetcher->abandoned_count() > 0))
    return parts_.clock->now();
  read_on();
  // Memory that other owners of the pool hold comes back without a word.
  return read_ahead.is_starved() ? parts_.clock->now() + kStarvedRetry : TimePoint::max();
}

Result<Step> Pipeline::advance() {
  if (!cut_) cut_ = finisher_.new_batch();
  Work& head = stages_->read_ahead.head();
  HEADRACE_TRY_ASSIGN(Step step, stages_->assembler.assemble(*cut_));
  if (step == Step::kDone && head.count() == 0) {
    Delivery nothing;
    nothing.timeline = head.timeline;
    finisher_.deliver(std::move(nothing), generation_);
  } else if (step == Step::kDone) {
    const Run& run = stages_->run;
    cut_->identity = {
        .epoch = run.order->epoch(), .index = run.batches_before + head.k, .plan_index = head.k};
    cut_->generation = generation_;
    if (parts_.selection->has_decoders()) cut_->work = head.planned_singly();
    HEADRACE_TRY_ASSIGN(step, finish(cut_));
  }
  if (step == Step::kDone) pass_head();
  return step;
}

void Pipeline::begin_repair(std::unique_ptr<CutBatch> cut) {
  if (cut == nullptr) return;
  if (cut->generation != generation_) {
    finisher_.fail(std::move(cut), Status(Code::kCancelled, "another run has begun"));
    return;
  }
  repaired_ = std::move(cut);
  repaired_->workspace = Slab();
  stages_->read_ahead.begin_repair(repaired_->work.planned_singly());
  repaired_->is_planned = false;
}

Result<Step> Pipeline::repair() {
  Assembler& assembler = stages_->assembler;
  if (!std::exchange(repaired_->is_planned, true)) {
    HEADRACE_TRY(assembler.judge_bad(*repaired_));
    assembler.plan_repair(*repaired_);
  }
  HEADRACE_TRY_ASSIGN(Step step, assembler.assemble(*repaired_));
  if (step == Step::kDone) {
    HEADRACE_TRY_ASSIGN(step, finish(repaired_));
  }
  if (step == Step::kDone) end_repair({});
  return step;
}

bool Pipeline::lacks_memory(const Result<Step>& step) const {
  return step ? *step == Step::kWait && stages_->read_ahead.is_starved()
              : step.error().code() == Code::kExhausted;
}

bool Pipeline::strip_bad() {
  bool has_any = false;
  std::vector<std::unique_ptr<CutBatch>> waiting;
  while (auto cut = finisher_.take_bad()) waiting.push_back(std::move(cut));
  for (auto& cut : waiting) {
    has_any = strip(*cut) || has_any;
    finisher_.put_bad(std::move(cut));
  }
  if (!strip(*repaired_)) return has_any;
  stages_->read_ahead.end_repair();
  stages_->read_ahead.begin_repair(repaired_->work.planned_singly());
  repaired_->is_planned = false;
  return true;
}

bool Pipeline::strip(CutBatch& cut) {
  if (std::exchange(cut.is_stripped, true)) return false;
  unpin(cut);
  cut.kept.clear();
  cut.slab = Slab();
  cut.workspace = Slab();
  cut.is_redone = false;
  return true;
}

void Pipeline::unpin(CutBatch& cut) {
  for (const auto& fetch : cut.pins) parts_.fetcher->unpin(*fetch);
  cut.pins.clear();
}

void Pipeline::end_repair(Status error) {
  if (repaired_) finisher_.fail(std::move(repaired_), std::move(error));
  if (!stages_) return;
  stages_->read_ahead.end_repair();
  stages_->assembler.pass();
}

Result<Step> Pipeline::lay_out_batch(CutBatch& cut) {
  std::vector<BadValue> bad;
  ValueNeeds needs = find_needs(*parts_.selection, cut.cuts, cut.count, bad);
  auto layout = lay_out(*parts_.selection, cut.cuts, needs, cut.count);
  if (!layout && stages_->assembler.check_again()) return Step::kAgain;
  if (!layout) return std::move(layout).error();
  cut.is_redone = cut.is_redone && parts_.selection->are_decoded_fixed();
  cut.needs = std::move(needs);
  cut.layout = *std::move(layout);
  cut.bad = std::move(bad);
  return Step::kDone;
}

Result<Step> Pipeline::finish(std::unique_ptr<CutBatch>& cut) {
  HEADRACE_TRY_ASSIGN(Step step, lay_out_batch(*cut));
  if (step != Step::kDone) return step;
  if (cut->bad.empty()) {
    HEADRACE_TRY_ASSIGN(step, find_memory(*cut));
    if (step != Step::kDone) return step;
  }
  cut->timeline = stages_->read_ahead.head().timeline;
  if (finisher_.is_handed_over(cut->layout.total_bytes)) stages_->assembler.pin(*cut);
  cut->is_stripped = false;
  finisher_.finish(std::move(cut));
  return Step::kDone;
}

Result<Slab> Pipeline::acquire_batch(std::uint64_t size_bytes) {
  SlabPool& pool = parts_.waker->pool();
  if (parts_.shares_batches->load(std::memory_order_relaxed)) {
    auto slab = pool.try_acquire_shared(size_bytes);
    if (slab) return slab;
  }
  // Also where the system has no such memory: whoever wanted it copies then.
  return pool.try_acquire(size_bytes);
}

Status Pipeline::acquire(CutBatch& cut) {
  SlabPool& pool = parts_.waker->pool();
  if (cut.slab.size_bytes() < cut.layout.total_bytes) {
    cut.is_redone = false;
    cut.slab = Slab();
    HEADRACE_TRY_ASSIGN(cut.slab, acquire_batch(cut.layout.total_bytes));
  }
  cut.thread_count = finisher_.thread_count();
  if (cut.needs.workspace_bytes == 0) return {};
  for (; cut.thread_count > 1; cut.thread_count /= 2) {
    auto workspace = pool.try_reserve(cut.thread_count * cut.needs.workspace_bytes);
    if (!workspace) continue;
    cut.workspace = *std::move(workspace);
    return {};
  }
  auto workspace = pool.try_reserve(cut.needs.workspace_bytes);
  if (workspace) {
    cut.workspace = *std::move(workspace);
    return {};
  }
  if (!cut.is_redone) cut.slab = Slab();  // A batch that waits for memory must not hold any.
  return std::move(workspace).error();
}

Result<Step> Pipeline::find_memory(CutBatch& cut) {
  ReadAhead& read_ahead = stages_->read_ahead;
  BatchTimeline& timeline = read_ahead.head().timeline;
  Status found = acquire(cut);
  while (!found.ok()) {
    if (found.code() != Code::kExhausted) {
      return Status(Code::kExhausted,
                    "a batch of " + std::to_string(cut.layout.total_bytes) + " bytes, and " +
                        std::to_string(cut.needs.workspace_bytes) + " to decode it: " +
                        std::string(found.message()) + "; raise memory or lower batch_size");
    }
    if (read_ahead.give_up_kept()) {
      found = acquire(cut);
      continue;
    }
    if (timeline.memory_from == TimePoint()) timeline.memory_from = parts_.clock->now();
    read_ahead.set_starved(true);
    parts_.waker->set_hungry(true);
    // The training loop has work, or gets it now, and gives memory back.
    const std::size_t own = cut.ticket != 0 ? 1 : 0;
    if (!parts_.channel->is_empty() || finisher_.pending_count() > own) return Step::kWait;
    if (!read_ahead.make_room()) {
      return read_ahead.starve("a batch",
                               charged_bytes_of(cut.slab) + charged_bytes_of(cut.workspace));
    }
    found = acquire(cut);
  }
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
    unpin(*cut);
    finisher_.reuse(std::move(cut));
  }
  return has_any;
}

}  // namespace headrace::feed
