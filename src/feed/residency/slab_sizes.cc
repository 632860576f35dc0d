#include "feed/residency/slab_sizes.h"

#include <vector>

namespace headrace::feed {

bool has_compressed_blocks(const Dataset& dataset) {
  for (std::uint32_t i = 0; i < dataset.block_count(); ++i) {
    if (dataset.is_compressed(i)) return true;
  }
  return false;
}

bool are_samples_objects(const Dataset& dataset, std::uint32_t block) {
  if (dataset.is_compressed(block) || dataset.block(block).sample_count == 1) return false;
  std::vector<Extent> extents;
  dataset.append_extents(block, 0, 1, extents);
  const std::size_t of_one = extents.size();
  extents.clear();
  dataset.append_extents(block, 0, 2, extents);
  return extents.size() > of_one;
}

bool are_samples_objects(const Dataset& dataset) {
  std::uint32_t block = 0;
  while (block < dataset.block_count() && dataset.block(block).sample_count == 1) ++block;
  return block < dataset.block_count() && are_samples_objects(dataset, block);
}

bool are_singles_dear(const Dataset& dataset, bool is_local) {
  // Below it a request of S3 (30 ms to the first byte) brings less than a tenth of what its
  // connection could.
  constexpr std::uint64_t kSmallBytes = std::uint64_t{256} << 10;
  if (has_compressed_blocks(dataset)) return true;
  if (are_samples_objects(dataset)) return false;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < dataset.block_count(); ++i) bytes += dataset.block(i).stored_bytes;
  return !is_local && bytes / std::max<std::uint64_t>(dataset.sample_count(), 1) < kSmallBytes;
}

SlabSizes SlabSizes::of(const Dataset& dataset) {
  SlabSizes sizes;
  for (std::uint32_t i = 0; i < dataset.block_count(); ++i) {
    const Block block = dataset.block(i);
    sizes.largest_stored_bytes = std::max(sizes.largest_stored_bytes, block.stored_bytes);
    if (dataset.is_compressed(i))
      sizes.largest_raw_bytes = std::max(sizes.largest_raw_bytes, block.raw_bytes);
  }
  return sizes;
}

std::uint64_t SlabSizes::raw_bytes(const Dataset& dataset, std::uint32_t block) const {
  return rounded(dataset.block(block).raw_bytes, largest_raw_bytes);
}

std::uint64_t SlabSizes::charged_bytes(const Dataset& dataset, std::uint32_t block,
                                       std::uint64_t stored_size) const {
  const std::uint64_t stored = SlabPool::charged_bytes(stored_bytes(stored_size));
  if (!dataset.is_compressed(block)) return stored;
  std::uint64_t raw = raw_bytes(dataset, block);
  if (dataset.is_unpacked(block) && learned_->expected_bytes > 0) {
    const double excess = static_cast<double>(learned_->actual_bytes - learned_->expected_bytes) /
                          static_cast<double>(learned_->expected_bytes);
    raw += static_cast<std::uint64_t>(static_cast<double>(raw) * excess);
  }
  return stored + SlabPool::charged_bytes(raw);
}

std::uint64_t SlabSizes::charged_bytes(const Dataset& dataset) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < dataset.block_count(); ++i)
    bytes += charged_bytes(dataset, i, dataset.block(i).stored_bytes);
  return bytes;
}

}  // namespace headrace::feed
