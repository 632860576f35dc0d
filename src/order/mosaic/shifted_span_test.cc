#include "order/mosaic/shifted_span.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace headrace::mosaic {
namespace {

template <class T>
void expect_same_with_wide_registers(unsigned id_bits, std::uint64_t first_index) {
  ShiftedSpan span{0, kPlaced, -1234.5, 99'999.25, numpy_random::Generator(id_bits)};
  const ItemLayout layout(id_bits);
  std::vector<T> samples(kPlaced);
  std::iota(samples.begin(), samples.end(), static_cast<T>(first_index));
  PlacedSamples wide;
  PlacedSamples plain;
  for (const std::size_t count : {0U, 1U, 7U, 8U, 9U, 100U, 512U}) {
    span.rng.fill64(wide.draws);
    plain.draws = wide.draws;
    const auto some = std::span<const T>(samples).first(count);
    place_samples(span, layout, first_index, some, wide);
    place_samples(span, layout, first_index, some, plain, false);
    for (std::size_t i = 0; i < count; ++i) {
      const double position = span.position(first_index + i, plain.draws[i]);
      EXPECT_EQ(plain.buckets[i], static_cast<std::uint64_t>(position) >> kBucketBits);
      EXPECT_EQ(plain.items[i] & ((std::uint64_t{1} << id_bits) - 1), samples[i]);
      EXPECT_EQ(wide.buckets[i], plain.buckets[i]);
      EXPECT_EQ(wide.items[i], plain.items[i]);
    }
  }
}

TEST(ShiftedSpan, PlacesTheSameWithAndWithoutWideRegisters) {
  expect_same_with_wide_registers<std::uint32_t>(27, 100'000'000);
  expect_same_with_wide_registers<std::uint32_t>(32, 5000);
  expect_same_with_wide_registers<std::uint64_t>(40, std::uint64_t{1} << 38);
}

TEST(ShiftedSpan, KeepsPositionsAboveIds) {
  const ItemLayout layout(27);
  const std::uint64_t at = layout.fixed(3 * double{kBucketWidth} + 5.5);
  EXPECT_EQ(layout.bucket(at), 3U);
  EXPECT_EQ(layout.item(at, 77), (std::uint64_t{11} << (64 - kBucketBits - 1)) | 77);
}

}  // namespace
}  // namespace headrace::mosaic
