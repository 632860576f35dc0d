#pragma once
/// \file
/// LaneTable: the lanes that this rank reads, their windows in memory, and which window is needed
/// next. No I/O.
///
/// Words: a *dense* lane keeps its windows resident; the samples of any other lane are read singly.
///
/// Threads: the feed thread.
#include <set>
#include <unordered_map>
#include <utility>

#include "feed/residency/residency.h"

namespace headrace::feed {

class LaneTable final : public Residency {
 public:
  /// Plans the lanes of `plan`'s rank; the first `dense_lanes` (in the order in which batches touch
  /// them) are dense. `reads_wholes`: blocks that lanes share are read once, as a whole.
  LaneTable(std::shared_ptr<const LaneOrder> order, const Dataset& dataset, const BatchPlan& plan,
            std::uint32_t dense_lanes, SlabSizes sizes, const StandIns& stand_ins,
            bool reads_wholes);

  bool picks_windows() const noexcept override { return false; }
  bool is_dense(const LanePosition& place) const override;
  bool has_singles() const noexcept override { return sparse_lane_count_ > 0; }
  LaneWindow* find(const LanePosition& place) noexcept override;
  std::shared_ptr<Fetch> find_whole(std::uint32_t block) const override;
  LaneWindow& open(const LanePosition& place, std::uint64_t batch) override;
  LaneWindow* open_next(const Bounds& bounds, Windows& closed) override;
  std::uint64_t next_need() const noexcept override;
  void pass(std::uint64_t batch, std::span<const LanePosition> places, Windows& closed) override;
  std::unique_ptr<LaneWindow> evict_last(std::uint64_t batch) override;
  void close_all(Windows& closed) override;
  std::uint64_t charged_bytes() const noexcept override { return charged_bytes_; }
  std::uint64_t held_bytes() const noexcept override;

 private:
  struct Lane {
    bool is_dense = false;
    std::uint64_t next_position = 0;  ///< First position of the next window to open.
    std::uint64_t read_ahead_end =
        0;  ///< Windows that begin here or later hold only samples of the incomplete batch.
    std::vector<std::unique_ptr<LaneWindow>> windows;  ///< By position; few.
  };
  std::uint64_t need_of(std::uint32_t lane, std::uint64_t position) const;
  void enqueue(std::uint32_t lane);
  std::uint64_t consumed_by(std::uint32_t lane, std::uint64_t batch) const noexcept;
  LaneWindow& open_from(std::uint32_t lane, std::uint64_t position, std::uint64_t consumed);
  /// A window has been taken out: its blocks are not found in it any more.
  void forget(const LaneWindow& window);
  /// Closes the windows of a lane that lie before `position`.
  void close_before(std::uint32_t lane, std::uint64_t position, Windows& closed);

  const std::shared_ptr<const LaneOrder> order_;
  const Dataset& dataset_;
  const BatchPlan plan_;
  const SlabSizes sizes_;
  const StandIns& stand_ins_;
  const bool reads_wholes_;
  std::vector<Lane> lanes_;  ///< All lanes of the order, by number.
  std::set<std::pair<std::uint64_t, std::uint32_t>>
      queue_;  ///< (need, lane) of each lane's next window.
  /// Open windows by the blocks of their pieces: few a block.
  std::unordered_multimap<std::uint32_t, const LaneWindow*> by_block_;
  std::uint64_t charged_bytes_ = 0;
  std::uint32_t sparse_lane_count_ = 0;
};

}  // namespace headrace::feed
