#pragma once
/// \file
/// ListedNeeds: the NeedIndex of a list. It reads the list ahead and keeps each batch's use of a
/// block, linked to the next use of the same block.
///
/// Threads: one owner.
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "order/need_index.h"

namespace headrace {

class ListedNeeds final : public NeedIndex {
 public:
  /// `first_number`: of the first use; tests begin high. \pre order->lanes() == nullptr; ranks lie
  /// in the world.
  ListedNeeds(std::shared_ptr<const EpochOrder> order, std::uint32_t block_count,
              const BatchPlan& plan, Ranks ranks, std::uint64_t first_number = 0);

  std::uint64_t next_need(std::uint32_t block, std::uint64_t from) const noexcept override;
  std::uint64_t known_end() const noexcept override { return scanned_; }
  void look_ahead(std::uint64_t batch) override;
  void pass(std::uint64_t batch) override;

  /// That a batch needs samples of a block.
  struct Use {
    std::uint64_t batch = 0;
    std::uint64_t next = kNever;  ///< Number of the block's next use, as far as is known.
    std::uint32_t block = 0;
    std::uint32_t sample_count = 0;
  };
  // Uses are named by their number since the beginning, in order of batches. Known are those of
  // [passed_uses(), known_uses()).
  std::uint64_t passed_uses() const noexcept { return passed_uses_; }
  std::uint64_t known_uses() const noexcept { return passed_uses_ + uses_.size(); }
  Use use(std::uint64_t number) const noexcept;
  std::uint64_t batch_of_use(std::uint64_t number) const noexcept {
    return number == kNever ? kNever : use(number).batch;
  }
  /// Number of a block's first use to come; kNever: none is known.
  std::uint64_t first_use(std::uint32_t block) const noexcept;
  /// The first use there is, which is forgotten, when it is one of a batch up to `batch`.
  bool pass_use(std::uint64_t batch, Use& out);
  /// The whole list was read.
  bool is_complete() const noexcept { return scanned_ == batch_count_; }
  /// look_ahead() would learn more for the asking.
  bool may_learn() const noexcept;

 private:
  struct Entry {
    std::uint32_t batch = 0;     ///< Its low half: uses lie within 2^32 batches of each other.
    std::uint32_t distance = 0;  ///< To the number of the block's next use; 0: none is known.
    std::uint32_t block = 0;
    std::uint32_t sample_count = 0;
  };
  /// First and last known use of a block, as marks; 0: none.
  struct Ends {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };

  void scan_batch();
  void add_use(std::uint32_t block);
  static std::uint32_t mark_of(std::uint64_t number) noexcept;
  std::uint64_t number_of(std::uint32_t mark) const noexcept;

  const std::shared_ptr<const EpochOrder> order_;
  const BatchPlan plan_;
  const Ranks ranks_;
  const std::uint64_t batch_count_;
  std::uint64_t scanned_ = 0;  ///< Batches before it were read.
  std::uint64_t passed_uses_;
  std::deque<Entry> uses_;  ///< From number passed_uses_ on.
  std::vector<Ends> ends_;  ///< By block.
  std::vector<LanePosition> places_;
};

}  // namespace headrace
