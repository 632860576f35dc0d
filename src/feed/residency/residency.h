#pragma once
/// \file
/// Residency: which windows of an order are in memory, and which is needed next. No I/O.
///
/// Two policies: LaneTable (lanes that are read from front to back) and ListedBlocks (listed
/// orders).
///
/// Threads: the feed thread.
#include <memory>
#include <vector>

#include "feed/plan/stand_ins.h"
#include "feed/residency/fetcher.h"
#include "headrace/order.h"
#include "order/order_math.h"

namespace headrace::feed {

/// A window of a lane and the reads that bring it.
struct LaneWindow {
  explicit LaneWindow(Window w);

  /// Piece and sample at a position of the lane. \pre the window holds it.
  WindowSample sample_at(std::uint64_t position) const noexcept {
    std::uint64_t index = position - window.first_position;
    if (window.is_shuffled) index = permutation(index);
    return order_math::sample_of_index(window, index);
  }
  std::uint64_t end_position() const noexcept {
    return window.first_position + window.sample_count;
  }
  /// Plans the reads of what lies from position `consumed` of the lane on. In the place of a block
  /// that is bad as a whole: what stands in for the first sample of its piece. `wholes`: of each
  /// block all, for another window has the rest of it, and both share the read.
  void plan_fetches(const Dataset& dataset, const SlabSizes& sizes, const StandIns& stand_ins,
                    std::uint64_t consumed, bool wholes);
  /// Plans to read a whole block in the place of what piece `index` needs.
  void replace_fetch(std::size_t index, const Dataset& dataset, std::uint32_t block,
                     TimePoint wanted);
  /// The piece whose bytes hold a sample; the number of pieces when none does. \pre is_ready.
  std::size_t piece_of(const SamplePlace& place) const noexcept;
  /// Pieces that were put back are to be begun again.
  void rewind() noexcept;
  /// Ready when all pieces are; caches the answer and the pieces' bytes.
  bool refresh();
  /// Index of the first failed piece; the number of pieces when there is none.
  std::size_t failed() const noexcept;
  /// The read of a piece that has_whole_block(); nullptr: none.
  std::shared_ptr<Fetch> find_whole(std::uint32_t block, const Dataset& dataset) const;
  /// What its pieces have of the pool now: other than charged_bytes, for only unpacking tells what
  /// a block takes. Of one that is shared, its part. \pre None is under way.
  std::uint64_t held_bytes() const noexcept;

  Window window;
  order_math::Permutation permutation;
  bool is_ready = false;
  std::uint32_t lane = 0;
  std::uint64_t need_batch = 0;     ///< About the batch that needs it first.
  std::uint64_t charged_bytes = 0;  ///< What its pieces take from the pool while being read.
  std::size_t begun_count = 0;      ///< No fetch before it waits to be begun.
  std::vector<std::shared_ptr<Fetch>> fetches;  ///< One a piece; null where no sample is needed.
  std::vector<BlockBytes> bytes;                ///< By piece, once ready.
};

class Residency {
 public:
  using Windows = std::vector<std::unique_ptr<LaneWindow>>;
  /// What reading ahead is bounded by.
  struct Bounds {
    std::uint64_t batch = 0;        ///< The one assembled next.
    std::uint64_t planned_end = 0;  ///< Batches before it are planned and count on their windows.
    std::uint64_t limit_bytes = 0;  ///< For windows.
  };
  virtual ~Residency() = default;

  /// Learns what batches need, at least up to `batch`.
  virtual void look_ahead(std::uint64_t batch) { static_cast<void>(batch); }
  /// The same of as many batches as it can.
  virtual void look_far() {}
  /// Whether it picks, batch after batch, the windows that are worth their room, and leaves the
  /// rest to single reads; else what is dense is fixed for the run.
  virtual bool picks_windows() const noexcept = 0;
  /// True when the sample there is to be taken from a window.
  virtual bool is_dense(const LanePosition& place) const = 0;
  /// Whether some samples of full batches are not.
  virtual bool has_singles() const noexcept = 0;
  /// The open window that holds the place, or nullptr.
  virtual LaneWindow* find(const LanePosition& place) noexcept = 0;
  /// A read of an open window that has_whole_block(), for another window or run to share; nullptr:
  /// none, or none is ever shared.
  virtual std::shared_ptr<Fetch> find_whole(std::uint32_t block) const {
    static_cast<void>(block);
    return nullptr;
  }
  /// Opens the window that holds the place (and forgets none) for `batch`. \pre find() gave
  /// nullptr.
  virtual LaneWindow& open(const LanePosition& place, std::uint64_t batch) = 0;
  /// Opens the window to be read next; nullptr when there is none now. What it takes the room of
  /// goes to `closed`.
  virtual LaneWindow* open_next(const Bounds& bounds, Windows& closed) = 0;
  /// About the batch that needs the next unopened window; kNever when there is none.
  virtual std::uint64_t next_need() const noexcept = 0;

  /// `batch` is assembled: closes what is not needed any more. `places`: of its real samples.
  virtual void pass(std::uint64_t batch, std::span<const LanePosition> places, Windows& closed) = 0;
  /// Takes out the open window that is needed last but not before `batch` (0: any); nullptr when
  /// there is none.
  virtual std::unique_ptr<LaneWindow> evict_last(std::uint64_t batch) = 0;
  /// All windows, for the end.
  virtual void close_all(Windows& closed) = 0;
  virtual std::uint64_t charged_bytes() const noexcept = 0;
  /// LaneWindow::held_bytes() of all open windows.
  virtual std::uint64_t held_bytes() const noexcept = 0;
};

}  // namespace headrace::feed
