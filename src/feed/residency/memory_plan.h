#pragma once
/// \file
/// Divides the memory limit between batches, windows that stay resident, and single reads. Pure.
#include <cstdint>

#include "headrace/status.h"

namespace headrace::feed {

/// Batches wait assembled in at most this part of the limit: windows make throughput, batches only
/// smooth it. Lanes are chosen for the rest, whatever the batch size of a rank.
constexpr std::uint64_t kBatchShare = 4;

/// What one rank needs; all sizes as charged by the pool.
struct MemoryNeeds {
  std::uint64_t limit_bytes = 0;
  std::uint64_t batch_bytes = 0;   ///< One batch, the mean where samples vary in size.
  std::uint64_t sparse_bytes = 0;  ///< The samples of one batch, read one by one.
  std::uint64_t block_bytes =
      0;  ///< The largest read: a block as stored, and inflated if it is compressed.
  std::uint64_t workspace_bytes = 0;  ///< For unpacking a block, besides what it makes.
  std::uint32_t prefetch_batches = 1;
};

/// The parts that do not depend on the order. Invariant: their sum is at most the limit.
struct MemoryShares {
  std::uint32_t ready_batches = 1;    ///< Batches assembled ahead.
  std::uint64_t window_bytes = 0;     ///< For windows: resident and read ahead.
  std::uint64_t workspace_bytes = 0;  ///< For unpacking.
  MemoryNeeds needs;                  ///< What they were made of.
};

/// Bytes without which not even one batch can be made: the one being made, the one that the
/// training loop still holds, the samples of one batch read singly, the largest block, and what
/// unpacking it takes besides.
std::uint64_t least_memory_bytes(const MemoryNeeds& needs) noexcept;

/// Errors: kExhausted when the limit is below least_memory_bytes(); names the numbers and what to
/// do.
Result<MemoryShares> share_memory(const MemoryNeeds& needs);

/// How batches' share is used when the caller holds some for longer than it works on them.
struct BatchRoom {
  std::uint32_t held = 0;   ///< So many, at most what was wanted.
  std::uint32_t ready = 1;  ///< Assembled ahead beside them.
};
BatchRoom room_for_held(const MemoryShares& shares, std::uint32_t wanted) noexcept;

/// How the windows' share is used under one order.
struct WindowShares {
  std::uint32_t dense_lanes =
      0;  ///< Lanes whose windows stay resident; the others are read sample by sample.
  std::uint64_t resident_bytes = 0;  ///< Of the dense lanes' windows.
  /// For windows, resident and read ahead, to begin with (ReadAheadRoom).
  std::uint64_t first_bytes = 0;
  std::uint64_t window_bytes = 0;  ///< Cap for them.
};

/// `largest_window_bytes`: charged size of the largest window. `own_lanes`: lanes that this rank
/// reads.
WindowShares share_windows(std::uint64_t window_bytes, std::uint64_t largest_window_bytes,
                           std::uint32_t own_lanes) noexcept;

/// The least limit with which share_memory() leaves windows enough for all `own_lanes` to be dense.
std::uint64_t enough_memory_bytes(const MemoryNeeds& needs, std::uint64_t largest_window_bytes,
                                  std::uint32_t own_lanes) noexcept;

}  // namespace headrace::feed
