#pragma once
/// \file
/// Planner: which samples of a batch are taken from windows, and which are read singly, by which
/// reads. No I/O.
///
/// Threads: the feed thread.
#include <vector>

#include "feed/plan/work.h"
#include "feed/residency/residency.h"

namespace headrace::feed {

class Planner {
 public:
  /// All must outlive the planner. `residency` decides which lanes or blocks are dense.
  Planner(const FeedParts& parts, const Run& run, const Residency& residency);

  Work plan(std::uint64_t k) const;
  /// Whether the batch is read singly because it is the first of a long run.
  bool is_bootstrap(std::uint64_t k) const noexcept;
  LanePosition place_of(const Work& work, std::uint32_t slot) const;

  /// Plans the reads of slots that were to come from windows.
  void read_singly(Work& work, const std::vector<std::uint32_t>& slots) const;
  /// The same for all slots of a lane that are not read singly yet.
  void read_lane_singly(Work& work, std::uint32_t lane) const;
  /// Plans the reads of slots, or of what stands in for their samples.
  void add_runs(Work& work, std::vector<SparseSlot> slots) const;
  /// The same, one sample a read, on connections of their own.
  void add_second_looks(Work& work, std::vector<SparseSlot> slots) const;

 private:
  /// Leaves out the slots of a listed order that are empty, and finds the places of the others.
  void list_places(Work& work) const;
  bool is_tail(const Work& work) const noexcept {
    return work.slots.end - work.slots.batch_start != run_.plan.segment.global_batch;
  }
  SamplePlace sample_of(const LanePosition& place) const;
  /// Fills in the places of the samples that slots wait for now.
  void find_places(Work& work, std::vector<SparseSlot>& slots) const;

  const FeedParts& parts_;
  const Dataset& dataset_;
  const Run& run_;
  const Residency& residency_;
  const bool has_compressed_;
};

}  // namespace headrace::feed
