#pragma once
/// \file
/// Second half of py1e: every sample of a canonical node moves by a random shift of bounded reach,
/// and the samples are sorted by where they land.
///
/// Since no sample moves further than `reach`, the sort needs to see only a window of 2 * reach
/// samples: they fall into buckets of neighbouring positions, and a bucket is sorted and written
/// when nothing further can land in it. That is linear in time, and in place: what is written lags
/// behind what is read.
///
/// Buckets hold truncated positions. Where two of a bucket are equal (N pairs in 2^23 when ids take
/// 27 bits), the draws of both are made again and their positions compared in full.
///
/// Place: src/order/mosaic; pure. One sorter a thread.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "order/mosaic/block_pool.h"
#include "order/mosaic/bucket_sorter.h"
#include "order/mosaic/shifted_span.h"

namespace headrace::mosaic {

/// A canonical node whose samples [0, count) are sorted in stretches, each by one thread.
template <class T>
struct ShiftedNode {
  std::span<T> samples;
  std::vector<ShiftedSpan> spans;  ///< Ascending, all of the node.
  std::uint64_t reach = 0;         ///< No sample moves this far or further.
  std::uint64_t largest_id = 0;    ///< Of `samples`; below 2^42.
  /// Borders of stretches: 0, ..., count; multiples of kBucketWidth between them, 2 * reach apart
  /// or more.
  std::vector<std::uint64_t> borders;
  /// For each inner border b: the samples [b - reach, b + reach) (clipped to the node), copied
  /// before any stretch is sorted, as the stretches on both sides overwrite them.
  std::vector<std::vector<T>> halos;

  std::uint64_t halo_begin(std::size_t border) const noexcept {
    return borders[border] - std::min(borders[border], reach);
  }
  /// Fills `halos`.
  void copy_halos() {
    halos.assign(borders.size(), {});
    for (std::size_t b = 1; b + 1 < borders.size(); ++b) {
      const std::uint64_t end = std::min<std::uint64_t>(borders[b] + reach, samples.size());
      const auto part = samples.subspan(halo_begin(b), end - halo_begin(b));
      halos[b].assign(part.begin(), part.end());
    }
  }
};

/// What a sorter works in. Made once, used for many stretches one after another.
struct SorterMemory {
  BlockPool blocks;
  BucketSorter buckets;
  PlacedSamples placed;
  std::vector<std::uint64_t> uneven;  ///< A bucket that BucketSorter refuses.
};

/// Sorts the `stretch`-th stretch of `node` in place.
template <class T>
class PositionSorter {
 public:
  PositionSorter(const ShiftedNode<T>& node, std::size_t stretch, SorterMemory& memory);
  void run();

 private:
  static constexpr std::size_t kLineItems = 8;

  struct Chain {
    Block* first = nullptr;
    Block* last = nullptr;
    std::size_t full_blocks = 0;  ///< Those before the last.
  };
  /// A sample of a run of equal truncated positions.
  struct Tied {
    double position = 0;
    std::uint64_t index = 0;
    std::uint64_t item = 0;
  };

  void shift_span(ShiftedSpan span, std::uint64_t begin, std::uint64_t end);
  const T* samples_at(std::uint64_t index, std::uint64_t& count) const noexcept;
  void push_run(std::uint64_t begin, std::size_t count);
  void push_border_run(std::uint64_t begin, std::size_t count);
  void push(std::uint32_t bucket, std::uint64_t item, std::uint64_t index) {
    std::uint64_t* to = ends_[bucket & ring_mask_];
    if (is_full(to)) to = add_block(bucket, index);
    // The next cache line: it comes from far, and a store that misses holds up those behind it.
    __builtin_prefetch(to + kLineItems, 1);
    *to = item;
    ends_[bucket & ring_mask_] = to + 1;
  }
  /// True at the end of a block, and for null.
  static bool is_full(const std::uint64_t* end) noexcept {
    return reinterpret_cast<std::uintptr_t>(end) % sizeof(Block) == 0;
  }
  std::uint64_t* add_block(std::uint32_t bucket, std::uint64_t index);

  void flush_before(std::uint64_t position);
  void write_bucket(std::uint32_t bucket);
  bool deal_bucket(std::uint32_t bucket);
  void sort_uneven(std::uint32_t bucket);
  void write(std::span<const std::uint64_t> items);
  void order_ties(std::uint32_t bucket, std::span<std::uint64_t> items) const;
  Tied trace(std::uint32_t bucket, std::uint64_t item) const;
  template <class Visit>
  void for_each_block(std::uint32_t bucket, const Visit& visit) const;

  const ShiftedNode<T>& node_;
  SorterMemory& memory_;
  std::size_t stretch_;
  std::uint64_t begin_;  // positions of this stretch
  std::uint64_t end_;
  ItemLayout layout_;
  std::uint64_t next_out_;  // rank of the next sample to write; exact once the left border is past
  std::uint64_t next_bucket_;
  // Buckets that are open, by number modulo their count.
  std::uint32_t ring_mask_ = 0;
  std::vector<std::uint64_t*> ends_;  // where the next item goes
  std::vector<Chain> chains_;
};

}  // namespace headrace::mosaic
