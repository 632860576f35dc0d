#pragma once
/// \file
/// Batches in one slab each: layout, filling, and the memory's way home.
///
/// Threads: built by the feed thread, then owned by whoever holds it.
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "feed/stall.h"
#include "headrace/loader.h"
#include "insight/counter.h"

namespace headrace::feed {

/// Lets a batch that dies tell the feeder that memory came back, also when the loader is gone.
/// Shared by both.
class Waker {
 public:
  explicit Waker(std::shared_ptr<SlabPool> pool) : pool_(std::move(pool)) {}
  void attach(Store* store) {
    MutexLock lock(mutex_);
    store_ = store;
  }
  void detach() { attach(nullptr); }
  /// Only a feeder that lacks memory wants to hear of it: a wake-up costs a system call.
  void set_hungry(bool is_hungry) noexcept {
    is_hungry_.store(is_hungry, std::memory_order_relaxed);
  }
  void memory_returned() noexcept {
    // Relaxed: the feeder looks again after some milliseconds all the same.
    if (!is_hungry_.load(std::memory_order_relaxed)) return;
    MutexLock lock(mutex_);
    if (store_ != nullptr) store_->wake();
  }
  void count_batch(std::int64_t n) noexcept { batches_.add(n); }
  /// Batches alive, delivered or not.
  std::int64_t batch_count() const noexcept { return batches_.value(); }
  SlabPool& pool() const noexcept { return *pool_; }

 private:
  const std::shared_ptr<SlabPool> pool_;  ///< Outlives every slab of every batch.
  Gauge batches_;
  std::atomic<bool> is_hungry_{false};
  Mutex mutex_;
  Store* store_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
};

/// Where the arrays of one batch lie in its slab. Every array starts at a multiple of 64 bytes.
struct BatchLayout {
  struct ColumnPlace {
    std::size_t values_offset = 0;
    std::size_t values_bytes = 0;
    std::size_t offsets_offset = 0;  ///< Columns of varying size only.
    std::size_t present_offset = 0;  ///< With `has_missing` only.
    bool has_missing = false;
  };
  std::size_t ids_offset = 0;
  std::size_t mask_offset = 0;
  std::size_t total_bytes = 0;
  std::vector<ColumnPlace> columns;
};

/// The columns a loader delivers: what they are in a batch, and which of the dataset's they come
/// from.
struct Selection {
  BatchSchema schema;
  std::vector<std::size_t> indices;  ///< In Dataset::columns(), one a column of the schema.
  std::size_t column_count = 0;      ///< Of the dataset: stride of a matrix of cuts.
};

/// One row of `column_count` cuts a slot.
struct CutMatrix {
  std::vector<ColumnBytes> cells;
  std::size_t stride = 0;
  std::span<ColumnBytes> row(std::size_t slot) noexcept {
    return {cells.data() + slot * stride, stride};
  }
  const ColumnBytes& at(std::size_t slot, std::size_t column) const noexcept {
    return cells[slot * stride + column];
  }
};

/// Errors: kCorrupt (a value of a fixed-size column has another size).
Status check_sizes(const Selection& selection, std::span<const ColumnBytes> row);

/// Computes the layout for `count` slots. Errors: kCorrupt (a value of a fixed-size column has
/// another size).
Result<BatchLayout> lay_out(const Selection& selection, const CutMatrix& cuts, std::uint32_t count);

class BatchImpl final : public Batch {
 public:
  struct Identity {
    std::uint64_t epoch = 0;
    std::uint64_t index = 0;
    std::uint64_t plan_index = 0;  ///< k in its plan.
  };
  BatchImpl(std::shared_ptr<Waker> waker, std::shared_ptr<const Selection> selection, Slab slab,
            std::uint32_t count, Identity identity, std::vector<ReplacedSample> replaced = {});
  ~BatchImpl() override;

  /// Copies the cut values into place. `ids` and `mask` have one entry a slot.
  void fill(const BatchLayout& layout, const CutMatrix& cuts, std::span<const std::int64_t> ids,
            std::span<const std::uint8_t> mask);

  std::uint32_t count() const noexcept override { return count_; }
  std::span<const BatchColumn> columns() const noexcept override { return columns_; }
  std::span<const std::int64_t> ids() const noexcept override { return ids_; }
  std::span<const std::uint8_t> mask() const noexcept override { return mask_; }
  std::span<const ReplacedSample> replaced() const noexcept override { return replaced_; }
  std::uint64_t epoch() const noexcept override { return identity_.epoch; }
  std::uint64_t index() const noexcept override { return identity_.index; }
  const Identity& identity() const noexcept { return identity_; }
  std::uint64_t byte_count() const noexcept { return byte_count_; }

 private:
  const std::shared_ptr<Waker> waker_;
  const std::shared_ptr<const Selection> selection_;  ///< Holds the schema.
  Slab slab_;
  const std::uint32_t count_;
  const Identity identity_;
  const std::vector<ReplacedSample> replaced_;
  std::uint64_t byte_count_ = 0;
  std::vector<BatchColumn> columns_;
  std::span<const std::int64_t> ids_;
  std::span<const std::uint8_t> mask_;
};

}  // namespace headrace::feed
