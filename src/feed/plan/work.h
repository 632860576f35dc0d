#pragma once
/// \file
/// What the stages of the feed share: their surroundings, and a batch on its way from one to the
/// next.
///
/// Way of a batch: Planner makes a Work of it (which samples are read singly), ReadAhead begins its
/// reads and finds memory, Assembler finds where each value lies (CutBatch), Finisher copies the
/// values into a batch and puts it into the Channel.
///
/// Threads: the feed thread only.
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "feed/finish/channel.h"
#include "feed/plan/sparse.h"
#include "feed/residency/fetcher.h"
#include "feed/residency/kept_blocks.h"
#include "feed/residency/memory_plan.h"

namespace headrace::feed {

class Finisher;

/// What all stages work with. The pointers live as long as the loader.
struct FeedParts {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<Waker> waker;
  Fetcher* fetcher = nullptr;
  KeptBlocks* kept = nullptr;
  /// Blocks stay in memory for later runs (LoaderOptions::keep_in_memory). Not where a cache below
  /// was told when they will be read again: it keeps the right ones only if they are.
  bool keeps_blocks = true;
  Counter* spared_reads = nullptr;  ///< Of blocks that were in memory.
  Finisher* finisher = nullptr;
  Channel* channel = nullptr;
  Clock* clock = nullptr;
  std::shared_ptr<const Selection> selection;
  MemoryShares shares;
  SlabSizes sizes;
  StandIns* stand_ins = nullptr;
  /// Each sample is an object of a remote store: no windows. (Files are read by blocks: one after
  /// the other they cost a fifth more CPU time.)
  bool reads_objects_singly = false;
  bool are_singles_dear = false;
  /// The limit with which nothing would be read sample by sample, where that is dear; 0: the limit
  /// is enough. A hint, so relaxed.
  std::atomic<std::uint64_t>* wanted_memory_bytes = nullptr;
  /// Likewise, the limit with which twice as much could be read ahead; 0: that would bring nothing.
  std::atomic<std::uint64_t>* fill_memory_bytes = nullptr;
  /// Batches are made in memory that other processes can map. Relaxed: from some batch on.
  const std::atomic<bool>* shares_batches = nullptr;
};

/// How far a stage came with the head. kAgain: something changed (memory was given up, reads were
/// added); try again at once, before anything new is read ahead. kWait: only an event can help, or
/// time where ReadAhead::is_starved().
enum class Step : std::uint8_t { kDone, kAgain, kWait };

/// A batch between plan and cut.
struct Work {
  std::uint64_t k = 0;
  BatchPlan::Slots slots;  ///< Of the plan; all below counts only those that hold a sample.
  bool has_empty = false;
  std::vector<std::uint32_t> filled;    ///< With has_empty: the plan's slots that hold a sample.
  std::vector<LanePosition> places;     ///< Of a listed order: of each real sample.
  std::vector<std::uint8_t> is_sparse;  ///< By slot; empty when none is.
  std::vector<SparseRun> runs;
  std::size_t begun_runs = 0;  ///< Runs [0, begun_runs) were begun, and count against memory.
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
  /// The same batch before anything of it was read, each slot to be read singly.
  Work planned_singly() const;
  /// Keeps the timeline of the read that ended last.
  void note(const Timeline& read) noexcept;
};

}  // namespace headrace::feed
