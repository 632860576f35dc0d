#pragma once
/// \file
/// NeedIndex: which batch needs a block next. One answer for every kind of order, for one rank or
/// for all ranks of a node: residency and caches ask it which block gives way (Belady's rule) and
/// which is fetched next. docs/design/0038.
///
/// A batch needs a block
/// - of a list when one of its samples lies in the block;
/// - of an order of lanes from the first batch that takes a sample of the window with the block up
///   to the last: samples of a window are permuted together, so that any of its blocks may be next.
///   A block of which nothing is left when the plan begins (in the middle of a window) is not
///   needed.
/// Repeats that fill up the last batch count for nothing.
///
/// Place: made of an order and a plan; knows no bytes and no stores.
///
/// Threads: one owner.
#include <cstdint>
#include <memory>

#include "headrace/order.h"

namespace headrace {

class NeedIndex {
 public:
  /// Ranks [first, first + count) of a world.
  struct Ranks {
    std::uint32_t first = 0;
    std::uint32_t count = 1;
  };

  /// Of the batches of `plan`, for `ranks` of its world (plan.rank is not looked at). Lanes: all is
  /// known at once, in O(B log B) time and at most 16 bytes a block (8 for each time more that a
  /// mixture repeats it). Lists: known as far as look_ahead() has read them, in 8 bytes a block and
  /// 16 a use. `block_count`: of the dataset. \pre ranks lie in the world.
  static std::unique_ptr<NeedIndex> create(std::shared_ptr<const EpochOrder> order,
                                           std::uint32_t block_count, const BatchPlan& plan,
                                           Ranks ranks);
  virtual ~NeedIndex() = default;

  /// The first batch from `from` on that needs `block`; kNever when none does, or none that is
  /// known. Not later than the truth where an epoch has more than 2^32 batches. O(1) amortised over
  /// rising `from`. \pre no batch from `from` on was passed.
  virtual std::uint64_t next_need(std::uint32_t block, std::uint64_t from) const noexcept = 0;
  /// What batches before this one need is known.
  virtual std::uint64_t known_end() const noexcept = 0;
  /// Learns what batches need, at least up to `batch`, and of a long list a little more.
  virtual void look_ahead(std::uint64_t batch) = 0;
  /// Forgets what batches up to `batch` need.
  virtual void pass(std::uint64_t batch) = 0;
};

}  // namespace headrace
