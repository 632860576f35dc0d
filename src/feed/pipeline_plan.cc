// Planning, reading ahead and memory of the pipeline; assembly is in pipeline.cc.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "feed/block_table.h"
#include "feed/lanes.h"
#include "feed/pipeline.h"

namespace headrace::feed {
namespace {

/// The first batch of a run is read sample by sample, so that it need not wait for whole windows of
/// every lane, where that costs less than this part of the run's bytes.
constexpr std::uint64_t kBootstrapPart = 200;
/// Under a listed order this part of the windows' memory is for single reads ahead.
constexpr std::uint64_t kSinglesShare = 4;
/// Batches over which the room for read-ahead recovers after the head had to take it.
constexpr std::uint64_t kRecoveryBatches = 64;

}  // namespace

Pipeline::Pipeline(Parts parts)
    : parts_(std::move(parts)),
      dataset_(*parts_.dataset),
      has_compressed_(has_compressed_blocks(dataset_)),
      fetcher_(*parts_.fetcher) {
  cuts_.stride = parts_.selection.column_count;
}

Pipeline::~Pipeline() { begin(std::nullopt, generation_); }

std::uint64_t Pipeline::largest_window_bytes(const Dataset& dataset, const EpochOrder& order,
                                             const SlabSizes& sizes) {
  std::vector<std::uint64_t> charged(dataset.block_count());
  for (std::uint32_t i = 0; i < charged.size(); ++i) {
    charged[i] = sizes.charged_bytes(dataset, i, dataset.block(i).stored_bytes);
  }
  return order.largest_window_weight(charged);
}

void Pipeline::begin(std::optional<Run> run, std::uint64_t generation) {
  for (Work& work : works_) drop_runs(work);
  works_.clear();
  if (residency_) {
    residency_->close_all(closed_);
    for (auto& window : closed_) drop(std::move(window));
    closed_.clear();
  }
  residency_.reset();
  admitting_ = nullptr;
  sparse_bytes_ = 0;
  head_ = 0;
  is_failed_ = false;
  is_starved_ = false;
  looks_.clear();
  is_size_wrong_ = false;
  generation_ = generation;
  run_ = std::move(run);
  if (!run_) return;
  WindowShares shares{.dense_lanes = 0, .window_bytes = parts_.shares.window_bytes};
  if (run_->order->is_listed()) {
    residency_ = std::make_unique<BlockTable>(run_->order, dataset_, run_->plan, run_->batch_count,
                                              parts_.sizes, *parts_.stand_ins);
  } else {
    const auto own = static_cast<std::uint32_t>(run_->order->own_lanes(run_->plan).size());
    const std::uint64_t window = largest_window_bytes(dataset_, *run_->order, parts_.sizes);
    shares = share_windows(parts_.shares.window_bytes, window, own);
    const bool is_slow = shares.dense_lanes < own && has_compressed_blocks(dataset_);
    wanted_memory_bytes_.store(is_slow ? enough_memory_bytes(parts_.shares.needs, window, own) : 0,
                               std::memory_order_relaxed);
    residency_ = std::make_unique<LaneTable>(run_->order, dataset_, run_->plan, shares.dense_lanes,
                                             parts_.sizes, *parts_.stand_ins);
  }
  window_cap_bytes_ = shares.window_bytes;
  window_limit_bytes_ = shares.window_bytes;
  window_step_bytes_ = shares.window_bytes / kRecoveryBatches;
}

TimePoint Pipeline::step() {
  constexpr auto kStarvedRetry = std::chrono::milliseconds(5);
  if (!run_ || is_failed_) return TimePoint::max();
  is_starved_ = false;
  // Reading ahead must not take what giving up has just won for the head.
  bool is_again = false;
  while (head_ < run_->batch_count && !is_failed_) {
    if (!is_again) {
      plan_ahead();
      admit();
    }
    if (!parts_.channel->has_room(generation_)) break;
    Outcome outcome = assemble();
    if (outcome == Outcome::kWait && fetcher_.lacks_memory()) {
      outcome = make_room() ? Outcome::kAgain : starve(works_.front(), "objects of a block");
    }
    if (outcome == Outcome::kWait || outcome == Outcome::kFailed) break;
    is_again = outcome == Outcome::kAgain;
  }
  // Memory that other owners of the pool hold comes back without a word.
  return is_starved_ ? parts_.clock->now() + kStarvedRetry : TimePoint::max();
}

// --- planning ---

void Pipeline::plan_ahead() {
  const std::uint64_t horizon = residency_->has_singles() ? parts_.shares.ready_batches : 1;
  const bool is_listed = run_->order->is_listed();
  if (is_listed) residency_->look_ahead(std::min(head_ + horizon, run_->batch_count) - 1);
  while (works_.size() < horizon && head_ + works_.size() < run_->batch_count) {
    const std::uint64_t k = head_ + works_.size();
    // What is read singly depends on which blocks are there: those come in step with the plan.
    while (is_listed && !is_bootstrap(k) && residency_->next_need() <= k && admit_window())
      continue;
    works_.push_back(plan_work(k));
    if (is_listed) admit_runs();
  }
}

Pipeline::Work Pipeline::plan_work(std::uint64_t k) {
  const BatchPlan& plan = run_->plan;
  Work work;
  work.k = k;
  work.slots = plan.slots(k);
  if (run_->order->is_listed()) list_places(work);
  const bool is_first = is_bootstrap(k);
  if (!is_first && !residency_->has_singles() && !is_tail(work)) return work;
  std::vector<std::uint32_t> slots;
  for (std::uint32_t i = 0; i < work.count(); ++i) {
    const bool is_own_repeat = !work.is_real(i) && work.slot_of(work.sample(i)) < i;
    if (is_own_repeat) continue;
    const bool is_single = is_first || !work.is_real(i) || !residency_->is_dense(place_of(work, i));
    if (is_single) slots.push_back(i);
  }
  read_singly(work, slots);
  return work;
}

bool Pipeline::is_bootstrap(std::uint64_t k) const noexcept {
  const BatchPlan& plan = run_->plan;
  const std::uint64_t run_samples = plan.sample_count - plan.segment.start;
  return k == 0 && plan.segment.global_batch <= run_samples / kBootstrapPart && !has_compressed_;
}

void Pipeline::list_places(Work& work) const {
  const EpochOrder& order = *run_->order;
  const Segment& segment = run_->plan.segment;
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

LanePosition Pipeline::place_of(const Work& work, std::uint32_t slot) const {
  return slot < work.places.size() ? work.places[slot]
                                   : run_->order->locate(work.sample(slot), run_->plan.segment);
}

std::uint64_t Pipeline::Work::slot_of(std::uint64_t t) const noexcept {
  const std::uint64_t slot = t - slots.first;
  if (!has_empty || slot >= slots.count) return slot;
  const auto found = std::lower_bound(filled.begin(), filled.end(), slot);
  return static_cast<std::uint64_t>(found - filled.begin());
}

void Pipeline::read_singly(Work& work, const std::vector<std::uint32_t>& slots) {
  if (slots.empty()) return;
  std::vector<SparseSlot> wanted;
  wanted.reserve(slots.size());
  for (const std::uint32_t i : slots) {
    wanted.push_back({.slot = i, .block = 0, .index = 0, .planned = sample_of(place_of(work, i))});
  }
  add_runs(work, std::move(wanted));
}

SamplePlace Pipeline::sample_of(const LanePosition& place) const {
  const EpochOrder& order = *run_->order;
  if (order.is_listed())  // Lane and position are block and index.
    return {place.lane, static_cast<std::uint32_t>(place.position)};
  const Window window = order.window_at(place.lane, place.position);
  const WindowSample sample = order.sample_at(window, place.position);
  return {window.pieces[sample.piece].block, sample.sample_in_block};
}

void Pipeline::find_places(Work& work, std::vector<SparseSlot>& slots) const {
  work.is_sparse.resize(work.count(), 0);
  for (SparseSlot& slot : slots) {
    work.is_sparse[slot.slot] = 1;
    const SamplePlace place =
        parts_.stand_ins->is_active() ? parts_.stand_ins->find_or_same(slot.planned) : slot.planned;
    slot.block = place.block;
    slot.index = place.index;
  }
}

void Pipeline::add_runs(Work& work, std::vector<SparseSlot> slots) {
  find_places(work, slots);
  const TimePoint now = parts_.clock->now();
  for (SparseRun& run : plan_runs(dataset_, std::move(slots), parts_.sizes)) {
    run.fetch->timeline.wanted = now;
    work.runs.push_back(std::move(run));
  }
}

void Pipeline::read_lane_singly(Work& work, std::uint32_t lane) {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t i = 0; i < work.count() && work.is_real(i); ++i) {
    if (!work.is_sparse.empty() && work.is_sparse[i] != 0) continue;
    if (place_of(work, i).lane == lane) slots.push_back(i);
  }
  read_singly(work, slots);
}

// --- reading ahead ---

void Pipeline::admit() {
  bool has_window = true;
  while (true) {
    const auto work = std::find_if(works_.begin(), works_.end(),
                                   [](const Work& w) { return w.begun_runs < w.runs.size(); });
    std::uint64_t window_need = kNever;
    if (has_window)
      window_need = admitting_ != nullptr ? admitting_->need_batch : residency_->next_need();
    if (work != works_.end() && work->k <= window_need) {
      if (!admit_run(*work)) return;
    } else if (window_need == kNever) {
      return;
    } else if (!admit_window()) {
      // Blocks wait for memory that singles do not: those have a share of their own.
      if (!run_->order->is_listed()) return;
      has_window = false;
    }
  }
}

void Pipeline::admit_runs() {
  for (Work& work : works_) {
    while (work.begun_runs < work.runs.size()) {
      if (!admit_run(work)) return;
    }
  }
}

std::uint64_t Pipeline::window_room() const noexcept {
  return run_->order->is_listed() ? window_limit_bytes_ - window_limit_bytes_ / kSinglesShare
                                  : window_limit_bytes_;
}

bool Pipeline::admit_run(Work& work) {
  SparseRun& run = work.runs[work.begun_runs];
  if (work.k != head_ && charged_bytes() + run.charged_bytes > window_limit_bytes_) return false;
  if (fetcher_.begin(run.fetch) == Fetcher::Begin::kNoMemory) return false;
  ++work.begun_runs;
  sparse_bytes_ += run.charged_bytes;
  return true;
}

bool Pipeline::admit_window() {
  if (admitting_ == nullptr) {
    admitting_ = residency_->open_next(
        {.batch = head_, .planned_end = head_ + works_.size(), .limit_bytes = window_room()},
        closed_);
    for (auto& window : closed_) drop(std::move(window));
    closed_.clear();
    if (admitting_ == nullptr) return false;
    mark_wanted(*admitting_);
  }
  if (charged_bytes() > window_limit_bytes_) return false;
  return begin_pieces(*admitting_);
}

void Pipeline::mark_wanted(LaneWindow& window) const {
  const TimePoint now = parts_.clock->now();
  for (const auto& fetch : window.fetches) {
    if (fetch) fetch->timeline.wanted = now;
  }
}

bool Pipeline::begin_pieces(LaneWindow& window) {
  for (; window.begun_count < window.fetches.size(); ++window.begun_count) {
    const auto& fetch = window.fetches[window.begun_count];
    if (fetch && fetch->state == Fetch::State::kPlanned &&
        fetcher_.begin(fetch) == Fetcher::Begin::kNoMemory)
      return false;
  }
  if (admitting_ == &window) admitting_ = nullptr;
  return true;
}

// --- memory for the head ---

bool Pipeline::make_room() {
  if (fetcher_.abandoned_count() > 0) return false;  // Some is on its way back.
  const auto later =
      std::find_if(works_.rbegin(), works_.rend(), [](const Work& w) { return w.begun_runs > 0; });
  if (later != works_.rend() && later->k != head_) {
    const std::uint64_t last = later->k;
    while (works_.back().k >= last) {
      drop_runs(works_.back());
      works_.pop_back();
    }
  } else if (auto window = residency_->evict_last(head_ + 1)) {
    drop(std::move(window));
    // Later batches may count on the block: plan them again when their turn comes.
    if (run_->order->is_listed()) works_.resize(1);
  } else {
    return false;
  }
  window_limit_bytes_ = std::min(window_limit_bytes_, charged_bytes());
  return fetcher_.abandoned_count() == 0;
}

bool Pipeline::sacrifice_current(Work& head) {
  if (fetcher_.abandoned_count() > 0) return false;
  auto window = residency_->evict_last(0);
  if (!window) return false;
  const std::uint32_t lane = window->lane;
  drop(std::move(window));
  window_limit_bytes_ = std::min(window_limit_bytes_, charged_bytes());
  read_lane_singly(head, lane);
  head.resolved = 0;
  head.is_cut = false;
  return true;
}

Pipeline::Outcome Pipeline::starve(Work& head, std::string_view what) {
  if (sacrifice_current(head)) return Outcome::kAgain;
  is_starved_ = true;
  const SlabPool& pool = parts_.waker->pool();
  const bool is_all_ours = fetcher_.is_idle() && parts_.waker->batch_count() == 0 &&
                           parts_.channel->is_empty() &&
                           pool.used_bytes() <= charged_bytes() + fetcher_.workspace_bytes();
  if (!is_all_ours) return Outcome::kWait;
  return fail(head,
              Status(Code::kExhausted,
                     "no memory for " + std::string(what) + ": batch " + std::to_string(head.k) +
                         " holds " + std::to_string(pool.used_bytes()) + " of " +
                         std::to_string(pool.limit_bytes()) +
                         " bytes; raise memory, or lower batch_size or block_bytes"));
}

void Pipeline::drop(std::unique_ptr<LaneWindow> window) {
  if (admitting_ == window.get()) admitting_ = nullptr;
  for (const auto& fetch : window->fetches) {
    if (fetch) fetcher_.abandon(*fetch);
  }
}

void Pipeline::drop_runs(Work& work) {
  for (std::size_t i = 0; i < work.begun_runs; ++i) {
    sparse_bytes_ -= work.runs[i].charged_bytes;
    fetcher_.abandon(*work.runs[i].fetch);
  }
  work.runs.clear();
  work.begun_runs = 0;
}

}  // namespace headrace::feed
