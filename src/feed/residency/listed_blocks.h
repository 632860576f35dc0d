#pragma once
/// \file
/// ListedBlocks: residency under a listed order. It reads the list ahead, so it knows which batches
/// need a block, keeps the blocks that will be needed soonest, and leaves to single reads what is
/// not worth a block's room.
///
/// Threads: the feed thread.
#include <set>
#include <unordered_map>
#include <utility>

#include "feed/residency/kept_blocks.h"
#include "feed/residency/residency.h"
#include "order/listed_needs.h"

namespace headrace::feed {

class ListedBlocks final : public Residency {
 public:
  /// \pre order->lanes() == nullptr.
  ListedBlocks(std::shared_ptr<const EpochOrder> order, const Dataset& dataset,
               const BatchPlan& plan, SlabSizes sizes, const StandIns& stand_ins,
               const KeptBlocks& kept);

  void look_ahead(std::uint64_t batch) override;
  void look_far() override;
  bool picks_windows() const noexcept override { return true; }
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
  std::uint64_t held_bytes() const noexcept override;

 private:
  /// A block that is to be opened, or open. Uses are those of needs_, by number.
  struct State {
    std::uint64_t queued = kNever;  ///< The use that its place in queue_ is for.
    std::unique_ptr<LaneWindow> window;
  };
  using Key = std::pair<std::uint64_t, std::uint32_t>;  ///< (batch, block)

  /// Takes in the uses that needs_ has found since.
  void learn_uses();
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
  const SlabSizes sizes_;
  const StandIns& stand_ins_;
  const KeptBlocks& kept_;
  ListedNeeds needs_;
  std::uint64_t learned_ = 0;  ///< Uses before it were taken in.
  std::unordered_map<std::uint32_t, State> blocks_;
  std::set<Key> queue_;  ///< Blocks to be opened, by the batch that needs them.
  std::set<Key> open_;   ///< Open blocks, by the batch that needs them next.
  std::uint64_t charged_bytes_ = 0;
};

}  // namespace headrace::feed
