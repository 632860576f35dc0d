#pragma once
/// \file
/// Where the samples of a span land in py1e: each shifts by uniform(low, high) of the span.
///
/// Place: src/order/mosaic; pure.
#include <array>
#include <cstdint>
#include <span>

#include "order/mosaic/bucket_sorter.h"
#include "order/numpy_random/generator.h"

namespace headrace::mosaic {

/// Samples [offset, offset + size) of a node.
struct ShiftedSpan {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  double low = 0;
  double high = 0;
  numpy_random::Generator rng;  ///< Before the shift of the first sample.

  /// Where sample `index` of the node lands with this draw. Never below 0.
  double position(std::uint64_t index, std::uint64_t draw) const noexcept {
    const double shift = low + (high - low) * numpy_random::to_double(draw);
    // Signed: converting unsigned words takes a branch on x86-64.
    return static_cast<double>(static_cast<std::int64_t>(index)) + shift;
  }
};

/// How positions and ids share the 64 bits of an item: the position in its bucket, in units of
/// 2^-fraction_bits and truncated, above the id.
struct ItemLayout {
  explicit ItemLayout(unsigned id_width) noexcept
      : id_bits(id_width),
        fraction_bits(64 - kBucketBits - id_width),
        scale(static_cast<double>(std::uint64_t{1} << fraction_bits)) {}
  unsigned id_bits;
  unsigned fraction_bits;
  double scale;

  std::uint64_t fixed(double position) const noexcept {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(position * scale));
  }
  std::uint32_t bucket(std::uint64_t fixed_position) const noexcept {
    return static_cast<std::uint32_t>(fixed_position >> (fraction_bits + kBucketBits));
  }
  /// The number of the bucket falls off the top.
  std::uint64_t item(std::uint64_t fixed_position, std::uint64_t id) const noexcept {
    return fixed_position << id_bits | id;
  }
};

/// Samples that are placed at once.
inline constexpr std::size_t kPlaced = 512;

/// Items of samples, and the buckets they fall in.
struct PlacedSamples {
  alignas(64) std::array<std::uint64_t, kPlaced> draws;  ///< Given.
  alignas(64) std::array<std::uint64_t, kPlaced> items;
  alignas(64) std::array<std::uint32_t, kPlaced> buckets;
};

/// Fills `placed` for samples[0..] = samples [index, index + samples.size()) of the node, from the
/// draws in it. At most kPlaced. `is_wide`: with the registers of wide.h.
template <class T>
void place_samples(const ShiftedSpan& span, const ItemLayout& layout, std::uint64_t index,
                   std::span<const T> samples, PlacedSamples& placed,
                   bool is_wide = numpy_random::has_wide()) noexcept;

}  // namespace headrace::mosaic
