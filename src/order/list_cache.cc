#include "order/list_cache.h"

#include <string>

namespace headrace::order_detail {

std::uint64_t digest_of(std::string_view text) noexcept {
  std::vector<std::uint32_t> words(text.begin(), text.end());
  return block_table_digest(words);
}

Status check_world(const RunWorld& world) {
  if (world.world_size == 0) return Status(Code::kInvalidArgument, "world_size is 0");
  if (world.batch_size == 0) return Status(Code::kInvalidArgument, "batch_size is 0");
  return {};
}

Result<std::uint32_t> node_count(std::uint32_t world_size, std::uint32_t ranks_per_node) {
  if (ranks_per_node == 0) return std::uint32_t{1};
  if (world_size % ranks_per_node != 0) {
    return Status(Code::kInvalidArgument, "ranks_per_node " + std::to_string(ranks_per_node) +
                                              " does not divide world_size " +
                                              std::to_string(world_size));
  }
  return world_size / ranks_per_node;
}

Result<OrderPlan> PlanCache::get(const OrderQuery& query,
                                 const std::function<Result<OrderPlan>()>& make) const {
  {
    MutexLock lock(mutex_);
    const bool is_same = query_ && query_->epoch == query.epoch && query_->t == query.t &&
                         query_->global_batch == query.global_batch &&
                         query_->world_size == query.world_size;
    if (is_same) return plan_;
  }
  HEADRACE_TRY_ASSIGN(OrderPlan plan, make());
  MutexLock lock(mutex_);
  query_ = query;
  plan_ = plan;
  return plan;
}

}  // namespace headrace::order_detail
