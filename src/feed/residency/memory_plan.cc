#include "feed/residency/memory_plan.h"

#include <algorithm>
#include <string>

namespace headrace::feed {
namespace {

/// The training loop holds the batch it works on while it asks for the next one, and often one more
/// being copied to a device.
constexpr std::uint64_t kHeldBatches = 2;
/// Read-ahead beyond the resident windows, to begin with: what a fast link moves in one first-byte
/// time (64 MiB = 1.3 GB/s * 50 ms), or a quarter of the resident windows. More is touched only
/// where it brings more: first touch costs up to 1.9 CPU s/GB (docs/design/0009-feed.md).
constexpr std::uint64_t kFirstReadAheadBytes = std::uint64_t{64} << 20;

std::string mebibytes(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes * 10 + (1 << 20) - 1) >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

/// A quarter more than the resident windows, so that a batch that ends some and begins others finds
/// room for both.
std::uint64_t lane_bytes(std::uint64_t window_bytes) noexcept {
  return window_bytes + window_bytes / 4;
}

}  // namespace

std::uint64_t least_memory_bytes(const MemoryNeeds& needs) noexcept {
  return 2 * needs.batch_bytes + needs.sparse_bytes + needs.block_bytes + needs.workspace_bytes;
}

Result<MemoryShares> share_memory(const MemoryNeeds& needs) {
  const std::uint64_t least = least_memory_bytes(needs);
  if (needs.limit_bytes < least) {
    return Status(Code::kExhausted, "the memory limit of " + mebibytes(needs.limit_bytes) +
                                        " is less than the " + mebibytes(least) +
                                        " that two batches (" + mebibytes(needs.batch_bytes) +
                                        " each), their samples and the largest block (" +
                                        mebibytes(needs.block_bytes + needs.workspace_bytes) +
                                        ") need: raise memory, or lower batch_size or block_bytes");
  }
  const std::uint64_t spare =
      needs.limit_bytes - needs.sparse_bytes - needs.block_bytes - needs.workspace_bytes;
  const std::uint64_t batches =
      needs.limit_bytes / kBatchShare / std::max<std::uint64_t>(needs.batch_bytes, 1);
  MemoryShares shares;
  shares.workspace_bytes = needs.workspace_bytes;
  shares.needs = needs;
  shares.ready_batches = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      batches > kHeldBatches ? batches - kHeldBatches : 1, 1, needs.prefetch_batches));
  const std::uint64_t for_batches = (shares.ready_batches + kHeldBatches) * needs.batch_bytes;
  shares.window_bytes = spare > for_batches ? spare - for_batches : 0;
  return shares;
}

BatchRoom room_for_held(const MemoryShares& shares, std::uint32_t wanted) noexcept {
  // Half of what would be ready stays so: reading goes on in steps of windows.
  const std::uint32_t all = shares.ready_batches + static_cast<std::uint32_t>(kHeldBatches);
  const std::uint32_t held = std::min(wanted, all - std::max(1U, shares.ready_batches / 2));
  return {.held = held, .ready = std::min(shares.ready_batches, all - held)};
}

WindowShares share_windows(std::uint64_t window_bytes, std::uint64_t largest_window_bytes,
                           std::uint32_t own_lanes) noexcept {
  const std::uint64_t window = std::max<std::uint64_t>(largest_window_bytes, 1);
  const std::uint64_t fitting = window_bytes / lane_bytes(window);
  WindowShares shares;
  shares.dense_lanes = static_cast<std::uint32_t>(std::min<std::uint64_t>(own_lanes, fitting));
  shares.resident_bytes = shares.dense_lanes * window;
  shares.window_bytes = window_bytes;
  shares.first_bytes =
      std::min(window_bytes,
               shares.resident_bytes + std::max(shares.resident_bytes / 4, kFirstReadAheadBytes));
  // Single reads ahead of the batch that needs them come out of the same share.
  if (shares.dense_lanes < own_lanes) shares.first_bytes = window_bytes;
  return shares;
}

std::uint64_t enough_memory_bytes(const MemoryNeeds& needs, std::uint64_t largest_window_bytes,
                                  std::uint32_t own_lanes) noexcept {
  const std::uint64_t rest =
      own_lanes * lane_bytes(std::max<std::uint64_t>(largest_window_bytes, 1)) +
      needs.sparse_bytes + needs.block_bytes + needs.workspace_bytes;
  // Batches take their share of the limit, at least three, at most what prefetch asks for.
  const std::uint64_t share = rest / (kBatchShare - 1) + 1;
  const std::uint64_t least = (1 + kHeldBatches) * needs.batch_bytes;
  const std::uint64_t most = (needs.prefetch_batches + kHeldBatches) * needs.batch_bytes;
  return rest + std::min(most, std::max(least, share));
}

}  // namespace headrace::feed
