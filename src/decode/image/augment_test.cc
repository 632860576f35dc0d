#include "decode/image/augment.h"

#include <gtest/gtest.h>

#include "decode/image/affine.h"
#include "decode/image/color_shift.h"
#include "decode/image/image_testing.h"
#include "decode/image/tone.h"

namespace headrace::detail {
namespace {

using Bytes = std::vector<std::uint8_t>;

Canvas canvas_of(Bytes& pixels, ImageSize size, std::uint32_t channels) {
  return {.pixels = pixels.data(), .size = size, .channels = channels};
}

/// A row of grey pixels after `change`.
template <class Change>
Bytes row_after(Bytes pixels, Change change) {
  change(canvas_of(pixels, {1, static_cast<std::uint32_t>(pixels.size())}, 1));
  return pixels;
}

// Values of torchvision 0.29's functions for tensors of uint8.
TEST(Tone, IsThatOfTorchvision) {
  const Bytes row = {0, 10, 100, 200, 255};
  EXPECT_EQ(row_after(row, [](const Canvas& c) { adjust_brightness(c, 1.5); }),
            (Bytes{0, 15, 150, 255, 255}));
  EXPECT_EQ(row_after(row, [](const Canvas& c) { adjust_contrast(c, 0.5); }),
            (Bytes{56, 61, 106, 156, 184}));
  EXPECT_EQ(row_after(row, [](const Canvas& c) { posterize(c, 3); }), (Bytes{0, 0, 96, 192, 224}));
  EXPECT_EQ(row_after(row, [](const Canvas& c) { solarize(c, 100); }), (Bytes{0, 10, 155, 55, 0}));
  EXPECT_EQ(row_after({50, 60, 100}, [](const Canvas& c) { stretch_contrast(c); }),
            (Bytes{0, 50, 254}));
  EXPECT_EQ(row_after({7, 7, 7}, [](const Canvas& c) { stretch_contrast(c); }), (Bytes{7, 7, 7}));
  EXPECT_EQ(row_after(row, [](const Canvas& c) { equalize(c); }), row);
}

TEST(ColorShift, TurnsRedIntoGreen) {
  Bytes red = {255, 0, 0};
  adjust_hue(canvas_of(red, {1, 1}, 3), 1.0 / 3);
  EXPECT_NEAR(red[1], 255, 1);
  EXPECT_NEAR(red[0], 0, 1);
  adjust_saturation(canvas_of(red, {1, 1}, 3), 0);
  EXPECT_NEAR(red[0], 149, 1);
  EXPECT_EQ(red[0], red[1]);
  EXPECT_EQ(red[1], red[2]);
}

TEST(ColorShift, LeavesAlphaAlone) {
  Bytes pixels = testing::noise(std::size_t{8} * 8 * 4);
  const Bytes before = pixels;
  Bytes copy(pixels.size());
  const Canvas canvas = canvas_of(pixels, {8, 8}, 4);
  adjust_brightness(canvas, 0.3);
  adjust_hue(canvas, 0.2);
  adjust_saturation(canvas, 0.5);
  adjust_sharpness(canvas, 2, copy.data());
  equalize(canvas);
  for (std::size_t i = 3; i < pixels.size(); i += 4) EXPECT_EQ(pixels[i], before[i]);
}

Bytes moved(const Affine& from, bool is_bilinear) {
  Bytes pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9}, copy(9);
  transform(canvas_of(pixels, {3, 3}, 1), from, is_bilinear, copy.data());
  return pixels;
}

TEST(Affine, MovesPixels) {
  for (const bool is_bilinear : {false, true}) {
    EXPECT_EQ(moved({.c = -1}, is_bilinear), (Bytes{0, 1, 2, 0, 4, 5, 0, 7, 8}));
    EXPECT_EQ(moved({.f = 1}, is_bilinear), (Bytes{4, 5, 6, 7, 8, 9, 0, 0, 0}));
    EXPECT_EQ(moved(rotation(90), is_bilinear), (Bytes{3, 6, 9, 2, 5, 8, 1, 4, 7}));
    EXPECT_EQ(moved({}, is_bilinear), (Bytes{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
  EXPECT_EQ(moved({.c = 0.5}, true), (Bytes{2, 2, 2, 4, 6, 3, 8, 8, 4}));
}

TEST(Augment, FollowsFromTheKey) {
  ImageOptions options;
  options.jitter = {0.4, 0.4, 0.4, 0.1};
  options.rand_augment = {.operations = 2, .magnitude = 20};
  const Bytes before = testing::gradient(20, 30, 3);
  const auto after = [&](std::uint64_t key) {
    Bytes pixels = before;
    EXPECT_TRUE(augment(options, key, canvas_of(pixels, {20, 30}, 3)).ok());
    return pixels;
  };
  EXPECT_EQ(after(1), after(1));
  EXPECT_NE(after(1), after(2));
  EXPECT_NE(after(1), before);
}

TEST(Augment, SurvivesTheSmallestImages) {
  for (const ImageSize size : {ImageSize{1, 1}, {1, 5}, {2, 2}, {3, 1}}) {
    for (std::uint32_t channels : {1U, 3U, 4U}) {
      for (std::uint32_t i = 0; i < kOperationCount; ++i) {
        Bytes pixels = testing::noise(std::size_t{size.height} * size.width * channels);
        Bytes copy(pixels.size());
        apply_operation(static_cast<Operation>(i), 30, i % 2 == 0, true,
                        canvas_of(pixels, size, channels), copy.data());
      }
    }
  }
}

}  // namespace
}  // namespace headrace::detail
