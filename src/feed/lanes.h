#pragma once
/// \file
/// LaneTable: the lanes that this rank reads, their windows in memory, and which window is needed
/// next. No I/O.
///
/// Words: a *dense* lane keeps its windows resident; the samples of any other lane are read singly.
///
/// Threads: the feed thread.
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "feed/fetcher.h"
#include "headrace/order.h"
#include "order/order_math.h"

namespace headrace::feed {

/// A window of a lane and the reads that bring it.
struct LaneWindow {
  LaneWindow(Window w, bool is_shuffled);

  /// Piece and sample at a position of the lane. \pre the window holds it.
  WindowSample sample_at(std::uint64_t position) const noexcept {
    std::uint64_t index = position - window.first_position;
    if (is_shuffled) index = permutation(index);
    return order_math::sample_of_index(window, index);
  }
  std::uint64_t end_position() const noexcept {
    return window.first_position + window.sample_count;
  }
  /// Ready when all pieces are; caches the answer and the pieces' bytes.
  bool refresh();
  /// First failed piece, or nullptr.
  const Fetch* failed() const noexcept;

  Window window;
  order_math::Permutation permutation;
  bool is_shuffled = true;
  bool is_ready = false;
  std::uint32_t lane = 0;
  std::uint64_t need_batch = 0;     ///< About the batch that needs it first.
  std::uint64_t charged_bytes = 0;  ///< What its pieces take from the pool while being read.
  std::size_t begun_count = 0;      ///< Fetches begun, a prefix.
  std::vector<std::shared_ptr<Fetch>> fetches;  ///< One a piece; null where no sample is needed.
  std::vector<BlockBytes> bytes;                ///< By piece, once ready.
  std::vector<std::uint64_t> first_sample;      ///< Dataset position of each piece's block.
};

class LaneTable {
 public:
  /// Plans the lanes of `plan`'s rank; the first `dense_lanes` (in the order in which batches touch
  /// them) are dense.
  LaneTable(std::shared_ptr<const EpochOrder> order, const Dataset& dataset, const BatchPlan& plan,
            std::uint32_t dense_lanes, SlabSizes sizes);

  /// Lanes that batches of `plan` touch with full batches, in order of first touch.
  static std::vector<std::uint32_t> own_lanes(const EpochOrder& order, const BatchPlan& plan);

  /// True when the sample there is to be taken from a window.
  bool is_dense(const LanePosition& place) const;
  /// The open window that holds the place, or nullptr.
  LaneWindow* find(const LanePosition& place) noexcept;
  /// Opens the window of the lane that holds `position` (and forgets none); `consumed` is the lane
  /// position up to which all was delivered. \pre find() gave nullptr.
  LaneWindow& open(std::uint32_t lane, std::uint64_t position, std::uint64_t consumed);
  /// Opens the window needed next over all dense lanes; nullptr when there is none left to read
  /// ahead. `batch` is the one that is assembled next.
  LaneWindow* open_next(std::uint64_t batch);
  /// About the batch that needs the next unopened window; max when there is none.
  std::uint64_t next_need() const noexcept;

  /// Closes the window of a lane that lies before `position`, appending what it held to `closed`.
  void close_before(std::uint32_t lane, std::uint64_t position,
                    std::vector<std::unique_ptr<LaneWindow>>& closed);
  /// Takes out the open window that is needed last but not before `batch` (0: any); nullptr when
  /// there is none.
  std::unique_ptr<LaneWindow> evict_last(std::uint64_t batch);
  /// All windows, for the end.
  void close_all(std::vector<std::unique_ptr<LaneWindow>>& closed);

  std::uint64_t charged_bytes() const noexcept { return charged_bytes_; }
  bool has_sparse_lanes() const noexcept { return sparse_lane_count_ > 0; }

 private:
  struct Lane {
    bool is_dense = false;
    std::uint64_t next_position = 0;  ///< First position of the next window to open.
    std::uint64_t read_ahead_end =
        0;  ///< Windows that begin here or later hold only samples of the incomplete batch.
    std::vector<std::unique_ptr<LaneWindow>> windows;  ///< By position; few.
  };
  std::uint64_t need_of(std::uint64_t lane, std::uint64_t position) const noexcept;
  void enqueue(std::uint32_t lane);
  std::uint64_t consumed_by(std::uint32_t lane, std::uint64_t batch) const noexcept;
  void plan_fetches(LaneWindow& window, std::uint64_t from_position) const;

  const std::shared_ptr<const EpochOrder> order_;
  const Dataset& dataset_;
  const BatchPlan plan_;
  const bool is_shuffled_;
  const SlabSizes sizes_;
  std::vector<Lane> lanes_;  ///< All lanes of the order, by number.
  std::set<std::pair<std::uint64_t, std::uint32_t>>
      queue_;  ///< (need, lane) of each lane's next window.
  std::uint64_t charged_bytes_ = 0;
  std::uint32_t sparse_lane_count_ = 0;
};

}  // namespace headrace::feed
