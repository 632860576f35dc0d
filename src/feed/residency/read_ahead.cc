// Why read-ahead cannot starve the head: everything begun for a later batch is reachable from here
// (runs of works_ behind the front, windows by evict_last), so make_room() can take it back piece
// by piece. What it takes back shrinks the room for reading ahead, which recovers over some
// batches; else the same memory would go back and forth.
#include "feed/residency/read_ahead.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "feed/finish/finisher.h"

namespace headrace::feed {
namespace {

/// Where windows are picked, this part of their memory is for single reads ahead.
constexpr std::uint64_t kSinglesShare = 4;
/// Batches over which the room for read-ahead recovers after the head had to take it.
constexpr std::uint64_t kRecoveryBatches = 64;
/// Where each sample is an object, so many are planned ahead: twice what may be asked for at once.
constexpr std::uint64_t kObjectsAhead = 1024;
/// Of a listed order, how many samples it is judged by: the first windows are still on their way
/// when the first of them are wanted.
constexpr std::uint64_t kJudgedSamples = 1 << 14;

}  // namespace

ReadAhead::ReadAhead(const FeedParts& parts, const Run& run, std::unique_ptr<Residency> residency,
                     io::ReadAheadRoom& room, std::uint64_t dataset_bytes)
    : parts_(parts),
      run_(run),
      fetcher_(*parts.fetcher),
      residency_(std::move(residency)),
      planner_(parts, run, *residency_),
      room_(room),
      window_limit_bytes_(room_.bytes()),
      keep_bytes_(run_.is_one_of_more && dataset_bytes <= parts_.shares.window_bytes
                      ? parts_.shares.window_bytes
                      : 0),
      has_room_for_all_(residency_->picks_windows() && dataset_bytes <= window_room()) {}

ReadAhead::~ReadAhead() {
  end_repair();
  for (Work& work : works_) drop_runs(work);
  residency_->close_all(closed_);
  drop_closed(true);
}

// --- planning ---

void ReadAhead::plan() {
  std::uint64_t horizon = residency_->has_singles() ? parts_.shares.ready_batches : 1;
  const bool picks = residency_->picks_windows();
  if (parts_.reads_objects_singly && !picks) {
    const std::uint64_t batch = std::max(run_.plan.slots(head_).count, 1U);
    horizon = std::max(horizon, kObjectsAhead / batch + 1);
  }
  residency_->look_ahead(std::min(head_ + horizon, run_.batch_count) - 1);
  while (works_.size() < horizon && head_ + works_.size() < run_.batch_count) {
    const std::uint64_t k = head_ + works_.size();
    // Where all has room, every block is read as a whole once: nothing else is worth a request but
    // the first batch, which is on its way now.
    if (picks && k > 0 && has_room_for_all_) residency_->look_far();
    // What is read singly depends on which blocks are there: those come in step with the plan.
    while (picks && !planner_.is_bootstrap(k) && residency_->next_need() <= k && admit_window())
      continue;
    works_.push_back(planner_.plan(k));
    if (picks) admit_runs();
  }
}

// --- reading ahead ---

void ReadAhead::admit() {
  const bool is_whole = window_limit_bytes_ >= room_.bytes();
  room_.look(fetcher_.arrivals(), parts_.clock->now());
  fetcher_.allow_out(room_.ahead_bytes());
  parts_.fill_memory_bytes->store(
      room_.is_short() ? parts_.shares.needs.limit_bytes + room_.ahead_bytes() : 0,
      std::memory_order_relaxed);
  window_limit_bytes_ = is_whole ? room_.bytes() : std::min(window_limit_bytes_, room_.bytes());
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
      if (!residency_->picks_windows()) return;
      has_window = false;
    }
  }
}

void ReadAhead::admit_runs() {
  for (Work& work : works_) {
    while (work.begun_runs < work.runs.size()) {
      if (!admit_run(work)) return;
    }
  }
}

bool ReadAhead::has_room(std::uint64_t more_bytes) noexcept {
  const std::uint64_t bytes = before_ != nullptr ? charged_together() : charged_bytes();
  if (bytes + more_bytes <= window_limit_bytes_) return true;
  // Not where memory was taken back: a larger room would not help.
  if (window_limit_bytes_ == room_.bytes()) room_.on_refused();
  return false;
}

bool ReadAhead::admit_run(Work& work) {
  const bool has_right = &work == &head() && before_ == nullptr;
  if (!has_right && !has_room(work.runs[work.begun_runs].charged_bytes)) return false;
  return begin(work);
}

bool ReadAhead::begin(Work& work) {
  const SparseRun& run = work.runs[work.begun_runs];
  if (begin_read(run.fetch) == Fetcher::Begin::kNoMemory) return false;
  ++work.begun_runs;
  sparse_bytes_ += run.charged_bytes;
  parts_.kept->limit(room_to_keep());
  return true;
}

Fetcher::Begin ReadAhead::begin_read(const std::shared_ptr<Fetch>& fetch) {
  Fetcher::Begin begun = fetcher_.begin(fetch);
  while (begun == Fetcher::Begin::kNoMemory && give_up_kept()) begun = fetcher_.begin(fetch);
  return begun;
}

std::uint64_t ReadAhead::window_room() const noexcept {
  return residency_->picks_windows() ? window_limit_bytes_ - window_limit_bytes_ / kSinglesShare
                                     : window_limit_bytes_;
}

bool ReadAhead::admit_window() {
  if (admitting_ == nullptr) {
    admitting_ = residency_->open_next(
        {.batch = head_, .planned_end = head_ + works_.size(), .limit_bytes = window_room()},
        closed_);
    drop_closed(true);
    if (admitting_ == nullptr) return false;
    mark_wanted(*admitting_);
  }
  if (!has_room(0)) return false;
  return begin_pieces(*admitting_);
}

void ReadAhead::mark_wanted(LaneWindow& window) const {
  const TimePoint now = parts_.clock->now();
  for (const auto& fetch : window.fetches) {
    if (fetch) fetch->timeline.wanted = now;
  }
}

bool ReadAhead::begin_pieces(LaneWindow& window) {
  for (; window.begun_count < window.fetches.size(); ++window.begun_count) {
    auto& fetch = window.fetches[window.begun_count];
    if (!fetch || fetch->state != Fetch::State::kPlanned || find_in_memory(fetch)) continue;
    if (begin_read(fetch) == Fetcher::Begin::kNoMemory) return false;
  }
  if (admitting_ == &window) admitting_ = nullptr;
  parts_.kept->limit(room_to_keep());  // It has taken what it needs of it.
  return true;
}

// --- blocks of other runs ---

bool ReadAhead::find_in_memory(std::shared_ptr<Fetch>& fetch) {
  // Fresh: what is in memory made no sense.
  if (!parts_.keeps_blocks || fetch->is_fresh) return false;
  const std::uint32_t block = fetch->piece.block;
  auto found = parts_.kept->take(block);
  if (!found) {
    found = residency_->find_whole(block);
    if (!found && before_ != nullptr) {
      found = before_->residency_->find_whole(block);
      if (found && shared_.emplace(found, fetch->charged_bytes).second)
        shared_bytes_ += fetch->charged_bytes;
    }
    if (found) fetcher_.share(*found);
  }
  if (!found) return false;
  // One that was put back may have other owners.
  fetcher_.abandon(*fetch);
  fetch = std::move(found);
  parts_.spared_reads->add();
  return true;
}

void ReadAhead::forget_shared(const std::shared_ptr<Fetch>& fetch) {
  const auto entry = shared_.find(fetch);
  if (entry == shared_.end()) return;
  shared_bytes_ -= entry->second;
  shared_.erase(entry);
}

std::uint64_t ReadAhead::charged_together() const noexcept {
  const ReadAhead* other = before_ != nullptr ? before_ : behind_;
  if (other == nullptr) return charged_bytes();
  const std::uint64_t twice = before_ != nullptr ? shared_bytes_ : other->shared_bytes_;
  const std::uint64_t together = charged_bytes() + other->charged_bytes();
  return together - std::min(twice, together);  // Of one that is being dropped it is less already.
}

bool ReadAhead::keeps_now() const noexcept {
  // In the last of several epochs for the lane that has the rest of a block.
  const bool is_wanted = !run_.is_last || (run_.is_one_of_more && !is_over());
  return parts_.keeps_blocks && is_wanted;
}

std::uint64_t ReadAhead::room_to_keep() const noexcept {
  const std::uint64_t limit = std::max(keep_bytes_, window_limit_bytes_);
  return limit - std::min(limit, charged_together());
}

// --- reads of the head ---

LaneWindow& ReadAhead::window_of(const LanePosition& place) {
  if (LaneWindow* window = residency_->find(place); window != nullptr) return *window;
  LaneWindow& window = residency_->open(place, head_);
  mark_wanted(window);
  return window;
}

bool ReadAhead::begin_run() { return begin(head()); }

void ReadAhead::put_last(std::size_t index) {
  Work& head = this->head();
  const auto run = head.runs.begin() + static_cast<std::ptrdiff_t>(index);
  sparse_bytes_ -= run->charged_bytes;
  --head.begun_runs;
  std::rotate(run, run + 1, head.runs.end());
}

bool ReadAhead::retract_run(std::size_t but_not) {
  Work& head = this->head();
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

void ReadAhead::forget_run(std::size_t index) {
  Work& head = this->head();
  sparse_bytes_ -= head.runs[index].charged_bytes;
  --head.begun_runs;
  head.runs.erase(head.runs.begin() + static_cast<std::ptrdiff_t>(index));
}

void ReadAhead::count_singles(const Work& work) {
  if (!residency_->picks_windows() || !parts_.are_singles_dear || samples_ >= kJudgedSamples)
    return;
  samples_ += work.count();
  singles_ += static_cast<std::uint64_t>(
      std::count(work.is_sparse.begin(), work.is_sparse.end(), std::uint8_t{1}));
  // Else the blocks are not worth reading as a whole, whatever the memory.
  const bool is_full = charged_bytes() > window_limit_bytes_ / 2;
  if (samples_ < kJudgedSamples || singles_ * 4 <= samples_ || !is_full) return;
  // All of it for sure; how much less would do, only the rest of the list could tell.
  const std::uint64_t enough =
      enough_memory_bytes(parts_.shares.needs, parts_.sizes.charged_bytes(*parts_.dataset), 1);
  // Of a small dataset that is no more than there is: then it is not memory that lacks.
  if (enough > parts_.waker->pool().limit_bytes())
    parts_.wanted_memory_bytes->store(enough, std::memory_order_relaxed);
}

void ReadAhead::begin_repair(Work work) {
  HEADRACE_DCHECK(!repair_);
  repair_ = std::move(work);
  if (works_.empty()) return;
  works_.front().resolved = 0;
  works_.front().is_cut = false;
}

void ReadAhead::end_repair() {
  if (repair_) drop_runs(*repair_);
  repair_.reset();
}

void ReadAhead::pass(std::span<const LanePosition> places) {
  count_singles(head());
  residency_->pass(head_, places, closed_);
  drop_closed(true);
  drop_runs(head());
  works_.pop_front();
  ++head_;
  if (run_.is_last && is_over()) parts_.kept->limit(0);
  window_limit_bytes_ =
      std::min(room_.bytes(), window_limit_bytes_ + room_.bytes() / kRecoveryBatches);
}

// --- memory for the head ---

bool ReadAhead::has_begun_all() const noexcept {
  if (admitting_ != nullptr || residency_->next_need() != kNever) return false;
  const bool is_planned = head_ + works_.size() == run_.batch_count;
  // Of windows alone, batches are planned one at a time.
  if (!is_planned && (residency_->has_singles() || parts_.reads_objects_singly)) return false;
  return std::all_of(works_.begin(), works_.end(),
                     [](const Work& work) { return work.begun_runs == work.runs.size(); });
}

bool ReadAhead::give_up_all() {
  const bool has_any = charged_bytes() > 0;
  for (Work& work : works_) drop_runs(work);
  works_.clear();
  residency_->close_all(closed_);
  drop_closed(false);
  admitting_ = nullptr;
  is_given_up_ = true;
  return has_any;
}

bool ReadAhead::make_room() {
  if (fetcher_.abandoned_count() > 0) return false;  // Some is on its way back.
  if (give_up_kept()) return fetcher_.abandoned_count() == 0;
  if (behind_ != nullptr && !behind_->is_given_up() && behind_->give_up_all())
    return fetcher_.abandoned_count() == 0;
  const auto later =
      std::find_if(works_.rbegin(), works_.rend(), [](const Work& w) { return w.begun_runs > 0; });
  if (later != works_.rend() && &*later != &head()) {
    const std::uint64_t last = later->k;
    while (!works_.empty() && works_.back().k >= last) {
      drop_runs(works_.back());
      works_.pop_back();
    }
  } else if (auto window = residency_->evict_last(head_ + 1)) {
    drop(std::move(window), false);
    // Later batches may count on the block: plan them again when their turn comes.
    if (residency_->picks_windows() && works_.size() > 1) works_.resize(1);
  } else {
    return false;
  }
  window_limit_bytes_ = std::min(window_limit_bytes_, charged_bytes());
  return fetcher_.abandoned_count() == 0;
}

bool ReadAhead::sacrifice_current() {
  if (fetcher_.abandoned_count() > 0) return false;
  auto window = residency_->evict_last(0);
  if (!window) return false;
  const std::uint32_t lane = window->lane;
  drop(std::move(window), false);
  window_limit_bytes_ = std::min(window_limit_bytes_, charged_bytes());
  if (works_.empty()) return true;
  Work& next = works_.front();  // The batch being repaired has nothing of windows.
  planner_.read_lane_singly(next, lane);
  next.resolved = 0;
  next.is_cut = false;
  return true;
}

bool ReadAhead::is_still() const {
  return fetcher_.is_idle() && fetcher_.abandoned_count() == 0 &&
         parts_.finisher->pending_count() <= (repair_ ? 1 : 0) && parts_.channel->is_empty();
}

bool ReadAhead::is_memory_all_ours(std::uint64_t own_bytes) const {
  if (!is_still() || parts_.waker->batch_count() > 0) return false;
  // Not what was charged: blocks may turn out to take more.
  std::uint64_t ours = own_bytes + fetcher_.workspace_bytes() + residency_->held_bytes();
  const auto add_runs = [&](const Work& work) {
    for (const SparseRun& run : std::span(work.runs).first(work.begun_runs))
      ours += charged_bytes_of(run.kept) + run.fetch->held_bytes();
  };
  if (repair_) add_runs(*repair_);
  for (const Work& work : works_) add_runs(work);
  return parts_.waker->pool().used_bytes() <= ours;
}

Result<Step> ReadAhead::starve(std::string_view what, std::uint64_t own_bytes) {
  if (sacrifice_current()) return Step::kAgain;
  is_starved_ = true;
  if (!is_memory_all_ours(own_bytes)) return Step::kWait;
  const SlabPool& pool = parts_.waker->pool();
  const std::uint64_t needed = fetcher_.most_needed_bytes();
  return Status(
      Code::kExhausted,
      "no memory for " + std::string(what) + ": batch " + std::to_string(head_) + " holds " +
          std::to_string(pool.used_bytes()) + " of " + std::to_string(pool.limit_bytes()) +
          " bytes" +
          (needed > 0 ? ", and a block takes " + std::to_string(needed) + " while it is unpacked"
                      : std::string()) +
          "; raise memory, or lower batch_size or block_bytes");
}

void ReadAhead::drop(std::unique_ptr<LaneWindow> window, bool keeps) {
  if (admitting_ == window.get()) admitting_ = nullptr;
  for (const auto& fetch : window->fetches) {
    if (!fetch) continue;
    forget_shared(fetch);
    if (behind_ != nullptr) behind_->forget_shared(fetch);
    const bool is_kept = keeps && keeps_now() && parts_.kept->keep(fetch, room_to_keep());
    if (!is_kept) fetcher_.abandon(*fetch);
  }
}

void ReadAhead::drop_closed(bool keeps) {
  for (auto& window : closed_) drop(std::move(window), keeps);
  closed_.clear();
}

void ReadAhead::drop_runs(Work& work) {
  for (std::size_t i = 0; i < work.begun_runs; ++i) {
    sparse_bytes_ -= work.runs[i].charged_bytes;
    fetcher_.abandon(*work.runs[i].fetch);
  }
  work.runs.clear();
  work.begun_runs = 0;
}

}  // namespace headrace::feed
