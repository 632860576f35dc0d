#include "decode/image/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "decode/image/image_testing.h"
#include "decode/image/resize_simd.h"

namespace headrace::detail {
namespace {

AxisRequest plain(std::uint32_t from, std::uint32_t to, Interpolation interpolation) {
  AxisRequest request{.begin = 0, .end = static_cast<double>(from)};
  request.clip_end = from;
  request.out_size = request.out_count = to;
  request.interpolation = interpolation;
  return request;
}

ResizeTable table_of(const AxisRequest& request) {
  ResizeTable table;
  make_resize_table(request, table);
  return table;
}

constexpr Interpolation kAll[] = {Interpolation::kNearest, Interpolation::kBilinear,
                                  Interpolation::kBicubic};

/// One row of one channel, resized.
std::vector<std::uint8_t> across(const AxisRequest& request, std::vector<std::uint8_t> row) {
  const ResizeTable table = table_of(request);
  row.resize(row.size() + kRowPadding);
  std::vector<std::uint8_t> out(table.first.size() + kRowSpill);
  kScalarResize.across(table, 1, {row.data() + table.in_begin, row.size(), 1}, out.data(), 0);
  out.resize(table.first.size());
  return out;
}

TEST(ResizeTable, KeepsItsInvariants) {
  for (const Interpolation interpolation : kAll) {
    for (const auto& [from, to] : {std::pair{1U, 1U},
                                   {1U, 7U},
                                   {7U, 1U},
                                   {500U, 224U},
                                   {5U, 500U},
                                   {100'000U, 3U},
                                   {3U, 2U},
                                   {224U, 224U},
                                   {11U, 209U}}) {
      const ResizeTable table = table_of(plain(from, to, interpolation));
      EXPECT_EQ(table.taps % 2, 0U);
      for (std::uint32_t i = 0; i < to; ++i) {
        const auto* weights = table.weights_of(i);
        EXPECT_EQ(std::accumulate(weights, weights + table.taps, 0), 1 << table.precision_bits);
        EXPECT_LE(table.first[i] + table.taps, std::max(table.in_count, table.taps));
        EXPECT_GE(table.first[i], table.first[i > 0 ? i - 1 : 0]);
      }
      EXPECT_TRUE(table.is_copy || from != to) << from << " " << to;
    }
  }
}

TEST(Resize, AveragesWhatItShrinks) {
  using Bytes = std::vector<std::uint8_t>;
  const auto half = plain(8, 4, Interpolation::kBilinear);
  // Weights 1 3 3 1 of 8; at the edges the outer one is missing: 3 3 1 of 7.
  EXPECT_EQ(across(half, {0, 0, 0, 80, 80, 0, 0, 70}), (Bytes{0, 40, 40, 30}));
  EXPECT_EQ(across(plain(4, 4, Interpolation::kBicubic), {1, 2, 3, 255}), (Bytes{1, 2, 3, 255}));
  EXPECT_EQ(across(plain(2, 4, Interpolation::kBilinear), {0, 100}), (Bytes{0, 25, 75, 100}));
  EXPECT_EQ(across(plain(4, 2, Interpolation::kNearest), {1, 2, 3, 4}), (Bytes{2, 4}));
}

TEST(Resize, FlipsWithoutAPass) {
  for (const Interpolation interpolation : kAll) {
    AxisRequest request = plain(50, 21, interpolation);
    const auto row = testing::noise(50);
    auto there = across(request, row);
    request.is_flipped = true;
    std::reverse(there.begin(), there.end());
    EXPECT_EQ(across(request, row), there);
  }
}

TEST(Resize, GivesAWindowAsTheWholeHasIt) {
  for (const Interpolation interpolation : kAll) {
    AxisRequest request = plain(50, 80, interpolation);
    const auto row = testing::noise(50);
    const auto whole = across(request, row);
    request.out_begin = 13;
    request.out_count = 20;
    EXPECT_EQ(across(request, row),
              std::vector<std::uint8_t>(whole.begin() + 13, whole.begin() + 33));
    EXPECT_LT(table_of(request).in_count, 20U);
  }
}

TEST(Resize, IsPlainWhereTheImageIs) {
  for (const Interpolation interpolation : kAll) {
    for (const std::uint32_t to : {1U, 3U, 17U, 300U, 1000U}) {
      const auto out = across(plain(301, to, interpolation), std::vector<std::uint8_t>(301, 255));
      EXPECT_EQ(out, std::vector<std::uint8_t>(to, 255));
    }
  }
}

struct Passes {
  std::vector<std::uint8_t> across;
  std::vector<std::uint8_t> down;
};

/// Both passes over an image of `in` pixels, their spills left out.
Passes run(const ResizePasses& passes, const ResizeTable& table, std::uint32_t channels,
           const std::vector<std::uint8_t>& pixels, std::uint32_t width, std::uint32_t height) {
  Passes out;
  const std::size_t out_row = table.first.size() * channels;
  std::vector<std::uint8_t> rows((out_row + kRowSpill) * height);
  const std::size_t stride = std::size_t{width} * channels;
  passes.across(table, channels, {pixels.data(), stride, height}, rows.data(), out_row + kRowSpill);
  for (std::size_t y = 0; y < height; ++y) {
    const auto* row = rows.data() + y * (out_row + kRowSpill);
    out.across.insert(out.across.end(), row, row + out_row);
  }
  // The same pixels as rows of one sample each: a column.
  const std::size_t count = stride * height / table.in_count;
  out.down.resize(count * table.first.size());
  for (std::uint32_t i = 0; i < table.first.size(); ++i) {
    passes.down(table, i, {pixels.data() + table.first[i] * count, count, table.taps}, count,
                out.down.data() + i * count);
  }
  return out;
}

TEST(Resize, GivesTheSameBytesWithVectors) {
  if (simd_resize() == nullptr) GTEST_SKIP() << "no vectors here";
  for (const std::uint32_t channels : {1U, 3U, 4U}) {
    for (const Interpolation interpolation : kAll) {
      for (const auto& [from, to] :
           {std::pair{61U, 17U}, {16U, 33U}, {2U, 5U}, {500U, 3U}, {9U, 9U}}) {
        const ResizeTable table = table_of(plain(from, to, interpolation));
        for (const std::uint32_t height : {1U, 4U, 7U}) {
          auto pixels = testing::noise(std::size_t{from} * channels * height);
          pixels.resize(pixels.size() * 2 + kRowPadding);
          const Passes scalar = run(kScalarResize, table, channels, pixels, from, height);
          const Passes simd = run(*simd_resize(), table, channels, pixels, from, height);
          EXPECT_EQ(scalar.across, simd.across) << channels << " " << from << " " << to;
          EXPECT_EQ(scalar.down, simd.down) << channels << " " << from << " " << to;
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace::detail
