#pragma once
/// \file
/// first_needs(): when the batches of a plan need each block first.
///
/// Threads: a function; any.
#include <cstdint>
#include <memory>
#include <vector>

#include "order/need_index.h"

namespace headrace::feed {

/// The first batch of `plan` that `ranks` of its world need each block for; kNever for those that
/// none needs.
inline std::vector<std::uint64_t> first_needs(const std::shared_ptr<const EpochOrder>& order,
                                              std::uint32_t block_count, const BatchPlan& plan,
                                              NeedIndex::Ranks ranks) {
  const auto index = NeedIndex::create(order, block_count, plan, ranks);
  index->look_ahead(plan.batch_count());
  std::vector<std::uint64_t> needs(block_count);
  for (std::uint32_t block = 0; block < block_count; ++block)
    needs[block] = index->next_need(block, 0);
  return needs;
}

}  // namespace headrace::feed
