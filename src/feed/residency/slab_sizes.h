#pragma once
/// \file
/// SlabSizes: how large a slab is asked for when a piece of a block is read, and how much memory
/// the read is planned with.
///
/// Pieces of more than half the largest block all get slabs of that size: with one size class for
/// all of them, a slab that one piece leaves is warm for the next. Slabs of neighbouring classes
/// would take memory from each other, and each time the kernel would clear it again (a third of the
/// CPU time of a run near its limit).
///
/// What an unpacked block takes is known only once it is unpacked, and may be more than its file
/// tells. What blocks took on average is remembered (by all copies together) and planned with.
///
/// Threads: the feed thread, once the loader is made.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "headrace/dataset.h"

namespace headrace::feed {

/// Whether any block needs decompress() or unpack(). O(B).
bool has_compressed_blocks(const Dataset& dataset);

/// Whether each sample of a block is an object of its own: reading the block takes as many requests
/// as reading its samples one by one. False for a single sample.
bool are_samples_objects(const Dataset& dataset, std::uint32_t block);
/// Of the first block with several samples, and so of all.
bool are_samples_objects(const Dataset& dataset);
/// Whether a sample read by itself costs many times its part of a block: the block has to be made
/// ready for it, or a request over a network brings little. O(B).
bool are_singles_dear(const Dataset& dataset, bool is_local);

struct SlabSizes {
  std::uint64_t largest_stored_bytes = 0;
  std::uint64_t largest_raw_bytes = 0;  ///< Of blocks that are inflated or unpacked.

  /// O(B).
  static SlabSizes of(const Dataset& dataset);

  std::uint64_t stored_bytes(std::uint64_t size) const noexcept {
    return rounded(size, largest_stored_bytes);
  }
  /// Of a compressed block once ready; of an unpacked one what it is expected to take.
  std::uint64_t raw_bytes(const Dataset& dataset, std::uint32_t block) const;
  /// A block of `expected` bytes took `actual` ones once unpacked.
  void learn(std::uint64_t expected, std::uint64_t actual) const noexcept {
    learned_->expected_bytes += expected;
    learned_->actual_bytes += std::max(actual, expected);
  }
  /// About what reading `stored_size` bytes of a block takes from the pool, inflating included.
  std::uint64_t charged_bytes(const Dataset& dataset, std::uint32_t block,
                              std::uint64_t stored_size) const;
  /// The same of all blocks. O(B).
  std::uint64_t charged_bytes(const Dataset& dataset) const;

 private:
  struct Learned {
    std::uint64_t expected_bytes = 0;
    std::uint64_t actual_bytes = 0;
  };

  static std::uint64_t rounded(std::uint64_t size, std::uint64_t largest) noexcept {
    return size > largest / 2 ? std::max(largest, std::max<std::uint64_t>(size, 1))
                              : std::max<std::uint64_t>(size, 1);
  }

  std::shared_ptr<Learned> learned_ = std::make_shared<Learned>();
};

}  // namespace headrace::feed
