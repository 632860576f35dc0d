#pragma once
/// \file
/// Pipeline: turns a run into batches, one after the other: what to read next, within how much
/// memory, and gathering.
///
/// Invariant that makes progress certain: the batch to be assembled next (the *head*) may take any
/// memory that later batches hold, and if that is not enough gives up resident windows and reads
/// its samples singly.
///
/// Threads: the feed thread only.
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "feed/batch.h"
#include "feed/channel.h"
#include "feed/fetcher.h"
#include "feed/memory_plan.h"
#include "feed/residency.h"
#include "feed/sparse.h"

namespace headrace::feed {

class Pipeline {
 public:
  struct Parts {
    std::shared_ptr<const Dataset> dataset;
    std::shared_ptr<Waker> waker;
    Fetcher* fetcher = nullptr;
    Channel* channel = nullptr;
    Clock* clock = nullptr;
    Selection selection;
    MemoryShares shares;
    SlabSizes sizes;
    StandIns* stand_ins = nullptr;
  };
  explicit Pipeline(Parts parts);
  ~Pipeline();

  /// Drops everything under way and begins `run` (nullopt: idles).
  void begin(std::optional<Run> run, std::uint64_t generation);
  /// Starts what reads memory allows and delivers every batch that is complete. Returns until when
  /// to wait for events; max() when only an event can change anything.
  TimePoint step();

  /// Whether the last step() found that the head waits for memory that nobody but the holders of
  /// batches can give back.
  bool is_starved() const noexcept { return is_starved_; }

  /// Limit with which no lane would be read sample by sample, where that makes whole blocks ready
  /// for single samples; 0: the limit is enough. Any thread.
  std::uint64_t wanted_memory_bytes() const noexcept {
    return wanted_memory_bytes_.load(std::memory_order_relaxed);
  }

  /// Largest window of `order`, as charged by the pool.
  static std::uint64_t largest_window_bytes(const Dataset& dataset, const EpochOrder& order,
                                            const SlabSizes& sizes);

 private:
  /// A batch between plan and delivery.
  struct Work {
    std::uint64_t k = 0;
    BatchPlan::Slots slots;  ///< Of the plan; all below counts only those that hold a sample.
    bool has_empty = false;
    std::vector<std::uint32_t> filled;    ///< With has_empty: the plan's slots that hold a sample.
    std::vector<LanePosition> places;     ///< Of a listed order: of each real sample.
    std::vector<std::uint8_t> is_sparse;  ///< By slot; empty when none is.
    std::vector<SparseRun> runs;
    std::size_t begun_runs = 0;
    std::uint32_t resolved = 0;  ///< Slots [0, resolved) have their source.
    bool is_cut = false;
    BatchTimeline timeline;

    std::uint32_t count() const noexcept {
      return has_empty ? static_cast<std::uint32_t>(filled.size()) : slots.count;
    }
    std::uint32_t plan_slot(std::uint32_t i) const noexcept { return has_empty ? filled[i] : i; }
    std::uint64_t sample(std::uint32_t i) const noexcept { return slots.sample(plan_slot(i)); }
    bool is_real(std::uint32_t i) const noexcept { return slots.is_real(plan_slot(i)); }
    /// The slot of global sample t; of a sample of another rank something not below count().
    std::uint64_t slot_of(std::uint64_t t) const noexcept;
  };
  /// Where a slot's sample lies.
  struct Source {
    const BlockBytes* bytes = nullptr;
    std::uint32_t index = 0;
    const Fetch* single = nullptr;  ///< The read, when it is one of single samples.
  };
  /// kElsewhere: what stands in for the sample lies in other bytes. kReadAgain: what came makes no
  /// sense, which may be the wire's fault.
  enum class Cut : std::uint8_t { kDone, kElsewhere, kReadAgain };
  /// kAgain: memory was found by giving something up; try again at once. kWait: only an event
  /// (or, when is_starved_, time) can help.
  enum class Outcome : std::uint8_t { kDone, kAgain, kWait, kFailed };

  // Planning.
  Work plan_work(std::uint64_t k);
  void plan_ahead();
  /// Whether the batch is read singly because it is the first of a long run.
  bool is_bootstrap(std::uint64_t k) const noexcept;
  /// Leaves out the slots of a listed order that are empty, and finds the places of the others.
  void list_places(Work& work) const;
  LanePosition place_of(const Work& work, std::uint32_t slot) const;
  bool is_tail(const Work& work) const noexcept {
    return work.slots.end - work.slots.batch_start != run_->plan.segment.global_batch;
  }
  void read_singly(Work& work, const std::vector<std::uint32_t>& slots);
  /// Plans the reads of slots, or of what stands in for their samples.
  void add_runs(Work& work, std::vector<SparseSlot> slots);
  SamplePlace sample_of(const LanePosition& place) const;
  void read_lane_singly(Work& work, std::uint32_t lane);

  // Reading ahead.
  void admit();
  void admit_runs();
  bool admit_run(Work& work);
  bool admit_window();
  std::uint64_t window_room() const noexcept;
  void mark_wanted(LaneWindow& window) const;
  /// Begins the pieces of a window not begun yet; false when memory lacks.
  bool begin_pieces(LaneWindow& window);
  std::uint64_t charged_bytes() const noexcept {
    return residency_->charged_bytes() + sparse_bytes_;
  }

  // Memory for the head.
  bool make_room();
  void drop(std::unique_ptr<LaneWindow> window);
  void drop_runs(Work& work);
  bool sacrifice_current(Work& head);
  /// The head lacks `size_bytes` and make_room() found nothing: takes a current window, waits for
  /// what is on its way back, or fails when nobody else holds memory.
  Outcome starve(Work& head, std::string_view what);

  // Assembly.
  Outcome assemble();
  Outcome await_runs(Work& head);
  /// Keeps what ready run `index` of a compressed block has for the batch; kDone: go on with the
  /// next.
  Outcome keep_run(Work& head, std::size_t index);
  /// Gives up the last run begun, to be read again, when another needs its memory to be done with.
  bool retract_run(Work& head, std::size_t but_not);
  Outcome resolve(Work& head);
  /// Finds the sources of the slots; those whose stand-ins are not in memory go to `apart`.
  Outcome resolve_slots(Work& head, std::vector<std::uint32_t>& apart);
  Outcome await_window(Work& head, LaneWindow& window);
  Outcome cut(Work& head);
  /// Cuts the sample of a slot, or what stands in for it.
  Result<Cut> cut_slot(std::uint32_t slot);
  std::int64_t id_of(const SamplePlace& place) const {
    return static_cast<std::int64_t>(run_->order->block_first_sample(place.block) + place.index);
  }

  // Bad samples (pipeline_stand_ins.cc).
  /// Cuts what stands in for `planned` (itself while it is good) as far as the source's bytes hold
  /// it. `place` becomes what was cut, or has to be read.
  Result<Cut> cut_stand_in(const Source& source, const SamplePlace& planned, SamplePlace& place,
                           std::span<ColumnBytes> row);
  /// Whether each sample is compared with its columns as it is cut; else all are once they are laid
  /// out.
  bool checks_sizes() const { return is_size_wrong_ || parts_.stand_ins->is_active(); }
  /// Finds all bad samples of a block whose bytes are known to be the object's, so that it need not
  /// be read again for each of them.
  Status take_bad_neighbours(const BlockBytes& bytes, std::span<ColumnBytes> row);
  /// Whether a sample that could not be cut is to be read again before its data is blamed. Errors:
  /// kUnavailable (it never comes twice the same).
  Result<bool> wants_second_look(const SamplePlace& place, const Status& status,
                                 const Fetch* single);
  /// Reads the samples of slots again, each by itself, on other connections.
  Outcome read_again(Work& head, const std::vector<std::uint32_t>& slots);
  void add_second_looks(Work& head, std::vector<SparseSlot> slots);
  /// Fills in the places of the samples that slots wait for now.
  void find_places(Work& work, std::vector<SparseSlot>& slots) const;
  /// Reads the stand-ins of slots (ascending) singly.
  Outcome read_apart(Work& head, const std::vector<std::uint32_t>& slots);
  /// Takes slots out of the runs that have come, and gives up those that serve no other.
  void release_slots(Work& head, const std::vector<std::uint32_t>& slots);
  /// \pre index < head.begun_runs; its memory is given back or on its way.
  void forget_run(Work& head, std::size_t index);
  /// The fetch of a run failed: reads stand-ins if its block is bad.
  Outcome replace_run(Work& head, std::size_t index);
  /// Moves the slots of a run whose stand-ins lie elsewhere, or whose bytes make no sense, to runs
  /// of their own.
  Outcome settle_run(Work& head, std::size_t index);
  /// The same for a piece of a window, for which the block of its stand-in is read.
  Outcome replace_piece(const Work& head, LaneWindow& window, std::size_t index);
  std::vector<ReplacedSample> replaced() const;
  Outcome deliver(Work& head);
  void deliver_nothing(const Work& head);
  Outcome fail(const Work& head, Status error);
  void close_passed(const Work& head);
  static void note(Work& work, const Timeline& timeline);

  const Parts parts_;
  const Dataset& dataset_;
  const bool has_compressed_;
  Fetcher& fetcher_;
  std::optional<Run> run_;
  std::uint64_t generation_ = 0;
  std::unique_ptr<Residency> residency_;
  std::deque<Work> works_;                             ///< From the head on.
  std::uint64_t head_ = 0;                             ///< k of the batch assembled next.
  LaneWindow* admitting_ = nullptr;                    ///< Opened, not all of its pieces begun.
  std::atomic<std::uint64_t> wanted_memory_bytes_{0};  ///< A hint; read alone.
  std::uint64_t window_cap_bytes_ = 0;
  std::uint64_t window_limit_bytes_ =
      0;  ///< At most the cap; lowered when the head had to take memory back.
  std::uint64_t window_step_bytes_ = 0;  ///< By which the limit recovers with each batch.
  std::uint64_t sparse_bytes_ = 0;
  bool is_failed_ = false;
  bool is_starved_ = false;  ///< The head waits for memory that others hold.

  // Of the head; kept to save allocations.
  std::vector<Source> sources_;
  std::vector<SamplePlace> planned_;  ///< What the order says, by slot.
  /// By block and index: samples that could not be cut from what came, read again.
  std::map<std::pair<std::uint32_t, std::uint32_t>, SecondLook> looks_;
  std::vector<std::int64_t> ids_;
  std::vector<std::uint8_t> mask_;
  std::vector<LanePosition> places_;
  bool is_size_wrong_ = false;  ///< A value did not fit its column.
  CutMatrix cuts_;
  BatchLayout layout_;
  std::vector<std::unique_ptr<LaneWindow>> closed_;
};

}  // namespace headrace::feed
