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
/// A sample in a bucket is one word: the fixed-point position in the bucket, truncated, and its id.
/// Where two truncated positions of a bucket are equal (N pairs in 2^25 when ids take 27 bits),
/// that bucket's positions are drawn again and compared in full.
///
/// Place: src/order/mosaic; pure. One sorter a thread.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "order/mosaic/huge_array.h"
#include "order/numpy_random/generator.h"

namespace headrace::mosaic {

/// Samples [offset, offset + size) of a node, which shift by uniform(low, high).
struct ShiftedSpan {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  double low = 0;
  double high = 0;
  numpy_random::Generator rng;  ///< Before the shift of the first sample.

  /// Where sample `index` of the node lands with this draw.
  double position(std::uint64_t index, std::uint64_t draw) const noexcept {
    const double shift = low + (high - low) * numpy_random::to_double(draw);
    // Signed: converting unsigned words takes a branch on x86-64.
    return static_cast<double>(static_cast<std::int64_t>(index)) + shift;
  }
};

/// A canonical node whose samples [0, count) are sorted in stretches, each by one thread.
template <class T>
struct ShiftedNode {
  std::span<T> samples;
  std::vector<ShiftedSpan> spans;
  std::uint64_t reach = 0;       ///< No sample moves this far or further.
  std::uint64_t largest_id = 0;  ///< Of `samples`; below 2^42.
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

/// Positions a bucket. Narrower: more buckets are open at a time (2 * reach / width) and their ends
/// fall out of the first-level cache; wider: the sort of one does. Measured at 2^11 .. 2^14.
inline constexpr std::uint64_t kBucketBits = 12;
inline constexpr std::uint64_t kBucketWidth = 1 << kBucketBits;

/// Sorts the `stretch`-th stretch of `node` in place.
template <class T>
class PositionSorter {
 public:
  PositionSorter(const ShiftedNode<T>& node, std::size_t stretch);
  void run();

 private:
  // Buckets hold chains of blocks of this many samples: a page each.
  static constexpr std::uint32_t kBlockSamples = 256;
  static constexpr std::uint32_t kNone = 0xffff'ffffU;
  // Samples whose shifts are drawn at once.
  static constexpr std::uint64_t kDrawn = 512;
  // Cells of the counting sort inside a bucket, per position: few samples share one.
  static constexpr std::uint32_t kCellsPerPosition = 2;
  static constexpr std::uint32_t kCells = kBucketWidth * kCellsPerPosition;

  struct Bucket {
    std::uint32_t next_slot = 0;  // where the next sample goes; 0 mod kBlockSamples: a new block
    std::uint32_t first_block = kNone;
    std::uint32_t last_block = kNone;
    std::uint32_t count = 0;
  };

  void shift_span(ShiftedSpan span, std::uint64_t begin, std::uint64_t end);
  void push_run(std::uint64_t begin, std::uint64_t count, const double* positions);
  void push_border_run(std::uint64_t begin, std::uint64_t count, const double* positions);
  void push(double position, T sample);
  /// Position in units of 2^-fraction_bits_, truncated.
  std::uint64_t fixed(double position) const noexcept {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(position * scale_));
  }
  std::uint64_t bucket_of(std::uint64_t fixed_position) const noexcept {
    return fixed_position >> (fraction_bits_ + kBucketBits);
  }
  const T* samples_at(std::uint64_t index, std::uint64_t& count) const noexcept;
  std::uint32_t add_block(Bucket& bucket);
  void flush_before(std::uint64_t position);
  void write_bucket(Bucket& bucket, std::uint64_t number);
  void sort_cells(const Bucket& bucket);
  bool finish_cells(std::uint32_t count);
  void sort_exactly(const Bucket& bucket, std::uint64_t number);
  void release_blocks(const Bucket& bucket);
  template <class Visit>
  void for_each_block(const Bucket& bucket, const Visit& visit) const;

  const ShiftedNode<T>& node_;
  std::size_t stretch_;
  std::uint64_t begin_;  // positions of this stretch
  std::uint64_t end_;
  std::uint64_t next_out_;  // rank of the next sample to write; exact once the left border is past
  std::uint64_t next_bucket_;
  std::uint64_t ring_mask_ = 0;
  std::vector<Bucket> ring_;
  unsigned id_bits_;                // of an item: its low bits
  unsigned fraction_bits_;          // of a position
  double scale_;                    // 2^fraction_bits_
  HugeArray<std::uint64_t> items_;  // block by block
  std::uint32_t first_blocks_ = 0;  // blocks made at first
  std::vector<std::uint32_t> block_after_;
  std::vector<std::uint32_t> free_blocks_;
  std::vector<std::uint64_t> sorted_;
  std::vector<std::uint32_t> cells_;
};

}  // namespace headrace::mosaic
