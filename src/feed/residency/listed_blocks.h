#pragma once
/// \file
/// ListedBlocks: residency under a listed order. It reads the list ahead, so it knows which batches
/// need a block, keeps the blocks that will be needed soonest, and leaves to single reads what is
/// not worth a block's room.
///
/// Threads: the feed thread.
#include <deque>
#include <set>
#include <unordered_map>
#include <utility>

#include "feed/residency/residency.h"

namespace headrace::feed {

class ListedBlocks final : public Residency {
 public:
  /// \pre order->is_listed().
  ListedBlocks(std::shared_ptr<const EpochOrder> order, const Dataset& dataset,
               const BatchPlan& plan, std::uint64_t batch_count, SlabSizes sizes,
               const StandIns& stand_ins);

  void look_ahead(std::uint64_t batch) override;
  bool is_dense(const LanePosition& place) const override;
  bool has_singles() const noexcept override { return true; }
  LaneWindow* find(const LanePosition& place) noexcept override;
  LaneWindow& open(const LanePosition& place, std::uint64_t batch) override;
  LaneWindow* open_next(const Bounds& bounds, Windows& closed) override;
  std::uint64_t next_need() const noexcept override;
  void pass(std::uint64_t batch, std::span<const LanePosition> places, Windows& closed) override;
  std::unique_ptr<LaneWindow> evict_last(std::uint64_t batch) override;
  void close_all(Windows& closed) override;
  std::uint64_t charged_bytes() const noexcept override { return charged_bytes_; }

 private:
  /// That a batch needs samples of a block. Chained in order of batches, one chain a block.
  struct Use {
    std::uint64_t batch = 0;
    std::uint64_t next = kNever;  ///< Number of the block's next use.
    std::uint32_t block = 0;
    std::uint32_t sample_count = 0;
  };
  /// A block that is needed within what was scanned, or open. Uses are named by their number since
  /// the start of the run.
  struct State {
    std::uint64_t first = kNever;   ///< Its first use to come.
    std::uint64_t last = kNever;    ///< Its last use, while there is one.
    std::uint64_t queued = kNever;  ///< The use that its place in queue_ is for.
    std::unique_ptr<LaneWindow> window;
  };
  using Key = std::pair<std::uint64_t, std::uint32_t>;  ///< (batch, block)

  const Use& use(std::uint64_t number) const noexcept { return uses_[number - passed_uses_]; }
  std::uint64_t batch_of_use(std::uint64_t number) const noexcept {
    return number == kNever ? kNever : use(number).batch;
  }
  bool is_scanned() const noexcept { return scanned_ == batch_count_; }
  bool may_scan() const noexcept;
  void scan_batch();
  void add_use(std::uint32_t block);
  /// Moves a block's place among those to be opened (`number` kNever: to none).
  void set_queued(std::uint32_t block, State& state, std::uint64_t number);
  void set_need(std::uint32_t block, State& state, std::uint64_t need);
  /// Whether reading the whole block, kept until batch `until`, costs less than single reads.
  bool is_worth(std::uint32_t block, const State& state, std::uint64_t until) const;
  std::unique_ptr<LaneWindow> close(std::uint32_t block, State& state);
  void forget_if_unused(std::uint32_t block);
  std::uint64_t whole_bytes(std::uint32_t block) const;

  const std::shared_ptr<const EpochOrder> order_;
  const Dataset& dataset_;
  const BatchPlan plan_;
  const std::uint64_t batch_count_;
  const SlabSizes sizes_;
  const StandIns& stand_ins_;
  std::uint64_t scanned_ = 0;  ///< Batches [0, scanned_) were read from the list.
  std::uint64_t passed_uses_ = 0;
  std::deque<Use> uses_;  ///< From number passed_uses_ on.
  std::unordered_map<std::uint32_t, State> blocks_;
  std::set<Key> queue_;  ///< Blocks to be opened, by the batch that needs them.
  std::set<Key> open_;   ///< Open blocks, by the batch that needs them next.
  std::uint64_t charged_bytes_ = 0;
  std::vector<LanePosition> places_;  ///< Of the batch being scanned.
};

}  // namespace headrace::feed
