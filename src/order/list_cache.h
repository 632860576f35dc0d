#pragma once
/// \file
/// What the sources of listed orders share: the last order they made, parts of lists, block counts,
/// worlds.
///
/// Threads: any.
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "headrace/order_source.h"

namespace headrace::order_detail {

/// What a list depends on of a dataset.
struct DatasetShape {
  struct Shard {
    std::uint64_t sample_count = 0;
    std::uint64_t size_bytes = 0;
  };
  std::vector<std::uint32_t> block_samples;  ///< Of each block.
  std::vector<Shard> shards;
};

/// Digest of names and numbers that an order depends on.
std::uint64_t digest_of(std::string_view text) noexcept;
/// Errors: kInvalidArgument (a world without ranks, batches without samples).
Status check_world(const RunWorld& world);
/// Nodes of a world. Errors: kInvalidArgument (ranks_per_node does not divide the ranks).
Result<std::uint32_t> node_count(std::uint32_t world_size, std::uint32_t ranks_per_node);

/// A list from a slot on.
class ListTail final : public SampleList {
 public:
  /// \pre begin <= list->size().
  ListTail(std::shared_ptr<const SampleList> list, std::uint64_t begin)
      : list_(std::move(list)), begin_(begin) {}
  std::uint64_t size() const noexcept override { return list_->size() - begin_; }
  void read(std::uint64_t t, std::span<std::int64_t> out) const override {
    list_->read(begin_ + t, out);
  }

 private:
  std::shared_ptr<const SampleList> list_;
  std::uint64_t begin_;
};

/// Remembers the plan made last: a list may take seconds to make.
class PlanCache {
 public:
  Result<OrderPlan> get(const OrderQuery& query,
                        const std::function<Result<OrderPlan>()>& make) const;

 private:
  mutable Mutex mutex_;
  mutable std::optional<OrderQuery> query_ HEADRACE_GUARDED_BY(mutex_);
  mutable OrderPlan plan_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::order_detail
