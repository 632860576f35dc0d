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
#include "feed/finish/decoded_values.h"
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
  /// In Dataset::columns(), one a column of the schema; several may come from the same.
  std::vector<std::size_t> indices;
  std::size_t column_count = 0;  ///< Of the dataset: stride of a matrix of cuts.
  /// One a column of the schema, nullptr where values are copied; empty when all are.
  std::vector<std::shared_ptr<const ValueDecoder>> decoders;
  std::vector<double> growth = {};  ///< With decoders: DecodedColumn::growth of each.
  std::uint64_t seed = 0;           ///< Of what decoders draw at random.
  /// Makes the values of decoders; there from when batches are made.
  std::shared_ptr<DecodedValues> values = {};

  bool has_decoders() const noexcept { return !decoders.empty(); }
  /// All that is decoded has values of a fixed size, and so the same place in every batch.
  bool are_decoded_fixed() const noexcept {
    for (std::size_t c = 0; c < decoders.size(); ++c) {
      if (decoders[c] != nullptr && schema[c].is_ragged()) return false;
    }
    return true;
  }
  const ValueDecoder* decoder(std::size_t column) const noexcept {
    return decoders.empty() ? nullptr : decoders[column].get();
  }
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

/// What decoding the values of a batch takes. Empty without decoders.
struct ValueNeeds {
  std::vector<std::uint64_t> output_bytes;  ///< By slot and column of the schema.
  std::uint64_t workspace_bytes = 0;        ///< Of the value that takes most.
};

/// A value that could not be decoded.
struct BadValue {
  std::uint32_t slot = 0;
  std::size_t column = 0;    ///< Of the schema.
  std::uint64_t digest = 0;  ///< Of the stored bytes, as SecondLook takes it.
  Status status;
};

/// Values that are copied only. Errors: kCorrupt (a value of a fixed-size column has another size).
Status check_sizes(const Selection& selection, std::span<const ColumnBytes> row);

/// What decoding `count` slots takes, by the headers of their values; what cannot be decoded goes
/// to `bad`, and needs nothing.
ValueNeeds find_needs(const Selection& selection, const CutMatrix& cuts, std::uint32_t count,
                      std::vector<BadValue>& bad);

/// Computes the layout for `count` slots. `needs`: of find_needs(). Errors: kCorrupt (a value of a
/// fixed-size column has another size).
Result<BatchLayout> lay_out(const Selection& selection, const CutMatrix& cuts,
                            const ValueNeeds& needs, std::uint32_t count);

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

  /// Puts the arrays into place, and all but the values into them. `ids` and `mask` have one entry
  /// a slot. `cuts`, `needs`: as the layout was made of.
  void lay(const BatchLayout& layout, const CutMatrix& cuts, const ValueNeeds& needs,
           std::span<const std::int64_t> ids, std::span<const std::uint8_t> mask);
  /// Copies or decodes the values of slots [begin, end); those that cannot be decoded are added to
  /// `bad`. \pre lay(). Any thread, several at once for slots of their own.
  void fill(const CutMatrix& cuts, std::uint32_t begin, std::uint32_t end,
            std::vector<BadValue>& bad);
  /// Copies the values of all slots that need no decoder.
  void fill_copies(const CutMatrix& cuts);
  /// The batch's memory, to be filled again by another. Nothing of this one may be used any more.
  Slab take_slab() noexcept { return std::move(slab_); }

  std::uint32_t count() const noexcept override { return count_; }
  std::span<const BatchColumn> columns() const noexcept override { return columns_; }
  std::span<const std::int64_t> ids() const noexcept override { return ids_; }
  std::span<const std::uint8_t> mask() const noexcept override { return mask_; }
  std::span<const ReplacedSample> replaced() const noexcept override { return replaced_; }
  std::uint64_t epoch() const noexcept override { return identity_.epoch; }
  std::uint64_t index() const noexcept override { return identity_.index; }
  std::optional<BatchMemory> shared() const override;
  const Identity& identity() const noexcept { return identity_; }
  std::uint64_t byte_count() const noexcept { return byte_count_; }

 private:
  void write_value(const ColumnBytes& cell, std::uint32_t slot, std::size_t column,
                   std::vector<BadValue>& bad);
  std::span<std::byte> place_of(std::uint32_t slot, std::size_t column) const noexcept;

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
