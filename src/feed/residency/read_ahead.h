#pragma once
/// \file
/// ReadAhead: what is read next and within how much memory: admission of reads in the order of
/// need, residency of windows, and memory for the batch that is assembled next (the *head*).
///
/// Invariant that makes progress certain: the head may take any memory that later batches hold, and
/// if that is not enough gives up resident windows and reads its samples singly.
///
/// Threads: the feed thread only.
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "feed/plan/planner.h"
#include "feed/plan/work.h"
#include "feed/residency/residency.h"
#include "io/read_ahead_room.h"

namespace headrace::feed {

class ReadAhead {
 public:
  /// `parts`, `run` and `room` must outlive it. `room`: for windows and single reads together, of
  /// this run. `dataset_bytes`: what all blocks take.
  ReadAhead(const FeedParts& parts, const Run& run, std::unique_ptr<Residency> residency,
            io::ReadAheadRoom& room, std::uint64_t dataset_bytes);
  /// Gives up everything under way.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// Reads ahead of a run that has not begun, while the one `before` still holds memory: within
  /// what that leaves, and nothing of it has a right to memory. Blocks that both need are in memory
  /// once. Until take_over().
  void read_behind(const ReadAhead& before) noexcept { before_ = &before; }
  /// The run has begun. \pre The one before has given up its windows.
  void take_over() noexcept {
    before_ = nullptr;
    shared_.clear();
    shared_bytes_ = 0;
  }
  /// Who reads behind this one, and gives up all for its head. Null: nobody.
  void set_behind(ReadAhead* behind) noexcept { behind_ = behind; }
  /// All of it was given up: it is of no further use.
  bool is_given_up() const noexcept { return is_given_up_; }
  /// Nothing is left to begin of what can be read ahead.
  bool has_begun_all() const noexcept;
  bool holds_any() const noexcept { return charged_bytes() > 0; }

  /// All batches of the run were passed.
  bool is_over() const noexcept { return head_ == run_.batch_count; }
  /// Plans the head, and later batches as far as their single reads are wanted now.
  void plan();
  /// Begins planned reads in the order of need, as far as there is memory.
  void admit();
  /// \pre plan() was called, !is_over().
  Work& head() noexcept { return repair_ ? *repair_ : works_.front(); }
  /// Puts a batch that came back before the head, which is assembled anew after it. \pre none is
  /// being repaired.
  void begin_repair(Work work);
  /// It is assembled, or given up.
  void end_repair();
  /// The head is assembled: closes what no batch needs any more. `places`: of its real samples.
  void pass(std::span<const LanePosition> places);

  /// The training loop has no batch, and the head waits for reads.
  void note_wait() noexcept { room_.on_wait(); }

  // Memory for the head.
  /// Gives up what later batches hold, a piece at a time. True: try again. False: there is nothing,
  /// or some is on its way back.
  bool make_room();
  /// The head lacks memory and make_room() found nothing: takes a current window (kAgain), or waits
  /// for what is on its way back. `own_bytes`: what the head has besides its reads. Errors:
  /// kExhausted when nobody else holds memory.
  Result<Step> starve(std::string_view what, std::uint64_t own_bytes = 0);
  /// Whether the head waits for memory.
  bool is_starved() const noexcept { return is_starved_; }
  /// Whether nothing is under way that gives memory back by itself: only the holders of batches,
  /// and others that share the pool, can.
  bool is_still() const;
  void set_starved(bool is_starved) noexcept { is_starved_ = is_starved; }

  /// Gives up a block that is kept for a later run; false: there is none.
  bool give_up_kept() { return parts_.kept->give_up_one(); }

  // Reads of the head.
  const Planner& planner() const noexcept { return planner_; }
  /// The window that holds the place, opened if need be.
  LaneWindow& window_of(const LanePosition& place);
  /// Begins the pieces of a window not begun yet; false when memory lacks.
  bool begin_pieces(LaneWindow& window);
  /// Begins the head's next run; false when memory lacks.
  bool begin_run();
  /// Makes a run that was put back the last one, to be begun again. \pre index < begun_runs.
  void put_last(std::size_t index);
  /// Gives up the last run begun, to be read again, when another needs its memory to be done with.
  bool retract_run(std::size_t but_not);
  /// \pre index < begun_runs; its memory is given back or on its way.
  void forget_run(std::size_t index);

 private:
  /// Finds out whether the memory limit makes an order read sample by sample.
  void count_singles(const Work& work);
  void admit_runs();
  bool admit_run(Work& work);
  bool admit_window();
  /// Whether `more_bytes` besides what is charged are within the limit.
  bool has_room(std::uint64_t more_bytes) noexcept;
  bool begin(Work& work);
  /// Begins a read, in the place of blocks that are kept if need be.
  Fetcher::Begin begin_read(const std::shared_ptr<Fetch>& fetch);
  /// Whether the block is in memory; `fetch` is then that one.
  bool find_in_memory(std::shared_ptr<Fetch>& fetch);
  /// One of the two runs that share it has no window of it any more.
  void forget_shared(const std::shared_ptr<Fetch>& fetch);
  /// Of its run and the one before or after it: what is in memory twice counts once.
  std::uint64_t charged_together() const noexcept;
  /// Whether blocks that are not needed now may be wanted later.
  bool keeps_now() const noexcept;
  /// What may be kept for later.
  std::uint64_t room_to_keep() const noexcept;
  std::uint64_t window_room() const noexcept;
  void mark_wanted(LaneWindow& window) const;
  std::uint64_t charged_bytes() const noexcept {
    return residency_->charged_bytes() + sparse_bytes_;
  }
  bool sacrifice_current();
  /// Gives up all that was read; false when that was nothing.
  bool give_up_all();
  bool is_memory_all_ours(std::uint64_t own_bytes) const;
  /// `keeps`: blocks of it may stay for later.
  void drop(std::unique_ptr<LaneWindow> window, bool keeps);
  void drop_closed(bool keeps);
  void drop_runs(Work& work);

  const FeedParts& parts_;
  const Run& run_;
  Fetcher& fetcher_;
  const std::unique_ptr<Residency> residency_;
  const Planner planner_;
  std::optional<Work> repair_;       ///< The head while there is one.
  std::deque<Work> works_;           ///< From the head on.
  std::uint64_t head_ = 0;           ///< k of the batch assembled next.
  LaneWindow* admitting_ = nullptr;  ///< Opened, not all of its pieces begun.
  io::ReadAheadRoom& room_;
  /// At most the room; lowered when the head had to take memory back.
  std::uint64_t window_limit_bytes_;
  std::uint64_t sparse_bytes_ = 0;  ///< Charged for the runs begun.
  // Of a listed order:
  std::uint64_t samples_ = 0;
  std::uint64_t singles_ = 0;
  bool is_starved_ = false;
  ReadAhead* behind_ = nullptr;
  bool is_given_up_ = false;
  const ReadAhead* before_ = nullptr;  ///< Until take_over().
  /// That came from it, while both have windows of them, with what this run is charged for them.
  std::unordered_map<std::shared_ptr<Fetch>, std::uint64_t> shared_;
  std::uint64_t shared_bytes_ = 0;  ///< Of all these.
  /// For windows and kept blocks together, where that is more than the room: of epochs that are
  /// known to follow, all of a dataset is kept that fits, else what the way to the store needs
  /// anyway.
  const std::uint64_t keep_bytes_;
  const bool has_room_for_all_;  ///< Windows of all blocks, where these are picked.
  std::vector<std::unique_ptr<LaneWindow>> closed_;  ///< Empty between calls.
};

}  // namespace headrace::feed
