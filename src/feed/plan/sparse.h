#pragma once
/// \file
/// Samples of one batch that are read singly: which ranges to read, and keeping what came. Planning
/// is pure.
///
/// Threads: the feed thread.
#include <memory>
#include <vector>

#include "feed/finish/batch.h"
#include "feed/plan/stand_ins.h"
#include "feed/residency/fetcher.h"

namespace headrace::feed {

/// A slot of a batch whose sample is read singly.
struct SparseSlot {
  std::uint32_t slot = 0;
  std::uint32_t block = 0;
  std::uint32_t index = 0;   ///< Of the sample in the block.
  SamplePlace planned = {};  ///< What the order says; another when that one is bad.

  SamplePlace place() const noexcept { return {block, index}; }
};

/// One read that serves some slots.
struct SparseRun {
  std::shared_ptr<Fetch> fetch;
  std::vector<SparseSlot> slots;  ///< In order of index; a sample may stand twice.
  std::uint64_t charged_bytes = 0;
  /// Of a compressed block only the samples needed are kept: their values, back to back, and where
  /// they are.
  bool is_kept = false;
  Slab kept;
  std::vector<ColumnBytes> cells;  ///< One row of columns a slot.
};

/// In order of block, index and slot.
bool comes_before(const SparseSlot& a, const SparseSlot& b) noexcept;

/// Groups slots into reads: one for each run of samples of a block that lie within a page of each
/// other (next to each other, where each is an object), one for each compressed block.
std::vector<SparseRun> plan_runs(const Dataset& dataset, std::vector<SparseSlot> slots,
                                 const SlabSizes& sizes);

/// Copies what the slots of a ready run need out of its inflated block and gives the block up.
/// Errors: kCorrupt (from the cut), kExhausted (no memory now; nothing changed).
Status keep_samples(const Dataset& dataset, SlabPool& pool, SparseRun& run);

}  // namespace headrace::feed
