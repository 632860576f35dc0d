#pragma once
/// \file
/// Blocks of memory for the buckets of py1e's window: chained, given back and taken again.
///
/// Place: src/order/mosaic. One owner, one thread at a time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "order/mosaic/huge_array.h"

namespace headrace::mosaic {

/// A part of a bucket. Aligned to its size: an address behind the last item is a multiple of it.
struct alignas(2048) Block {
  static constexpr std::size_t kItems = 254;

  Block* after;               ///< The next one of the same chain.
  std::uint64_t first_index;  ///< Sample that the first item stands for.
  std::uint64_t items[kItems];
};
static_assert(sizeof(Block) == 2048);

class BlockPool {
 public:
  /// A block of undefined content.
  Block* take() {
    if (free_ == nullptr) return take_new();
    Block* const block = free_;
    free_ = block->after;
    return block;
  }
  /// Takes back a chain. What was given last is taken first: it is still in a cache.
  void give(Block* first, Block* last) noexcept {
    last->after = free_;
    free_ = first;
  }
  /// Makes room for `blocks` altogether, at once.
  void reserve(std::size_t blocks) {
    if (blocks > count_) add_slab(blocks - count_);
  }

 private:
  Block* take_new() {
    if (used_ == slabs_.size()) add_slab(std::max(kLeastSlab, count_ / 4));
    HugeArray<Block>& slab = slabs_[used_];
    Block* const block = &slab[next_++];
    if (next_ == slab.size()) {
      ++used_;
      next_ = 0;
    }
    return block;
  }
  void add_slab(std::size_t blocks) {
    slabs_.emplace_back(blocks);
    count_ += blocks;
  }

  static constexpr std::size_t kLeastSlab = 64;
  std::vector<HugeArray<Block>> slabs_;
  std::size_t count_ = 0;
  std::size_t used_ = 0;  // slabs of which each block was taken at least once
  std::size_t next_ = 0;  // block of the next one that was not
  Block* free_ = nullptr;
};

}  // namespace headrace::mosaic
