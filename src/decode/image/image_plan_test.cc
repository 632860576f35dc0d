#include "decode/image/image_plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "decode/image/exact_math.h"
#include "decode/image/image_random.h"

namespace headrace::detail {
namespace {

ImagePlan plan(const ImageOptions& options, ImageSize size, std::uint64_t key = 0) {
  return plan_image(options, size, key);
}

TEST(ExactMath, IsThatOfTheLibrary) {
  for (double x = 0.01; x < 20; x *= 1.37) {
    EXPECT_NEAR(exact_log(x), std::log(x), 1e-13);
    EXPECT_NEAR(exact_exp(x - 7) / std::exp(x - 7), 1, 1e-12);
    EXPECT_NEAR(exact_sin(x / 4), std::sin(x / 4), 1e-13);
    EXPECT_NEAR(exact_cos(x / 4), std::cos(x / 4), 1e-13);
  }
  EXPECT_EQ(round_even(2.5), 2);
  EXPECT_EQ(round_even(3.5), 4);
  EXPECT_EQ(round_even(-0.5), 0);
  EXPECT_EQ(round_even(0.4), 0);
}

// Numbers that runs have seen: they never change.
TEST(ImageRandom, IsFixedForEver) {
  ImageRandom random(1, RandomUse::kResizedCrop);
  EXPECT_EQ(random.below(1U << 31), 790680964U);
  EXPECT_EQ(random.below(1U << 31), 2026288756U);
  ImageRandom flips(1, RandomUse::kHorizontalFlip);
  EXPECT_EQ(flips.below(1U << 31), 1399032903U);
}

TEST(ImagePlan, KeepsTheAspectWithAShorterSide) {
  ImageOptions options;
  options.resize_shorter = 256;
  EXPECT_EQ(plan(options, {375, 500}).resized, (ImageSize{256, 341}));
  EXPECT_EQ(plan(options, {500, 375}).canvas, (ImageSize{341, 256}));
  EXPECT_EQ(plan(options, {7, 7}).resized, (ImageSize{256, 256}));
}

TEST(ImagePlan, CropsTheMiddleAsTorchvision) {
  ImageOptions options;
  options.crop = ImageSize{224, 224};
  // (375 - 224) / 2 = 75.5 is 76, (501 - 224) / 2 = 138.5 is 138: ties to even.
  EXPECT_EQ(plan(options, {375, 501}).window, (Rect{138, 76, 224, 224}));
  const ImagePlan small = plan(options, {101, 300});
  EXPECT_EQ(small.window, (Rect{38, 0, 224, 101}));
  EXPECT_EQ(small.y, 61U);
  EXPECT_EQ(small.x, 0U);
}

TEST(ImagePlan, CropsWithinThePadding) {
  ImageOptions options;
  options.pad = {4, 4, 4, 4};
  EXPECT_EQ(plan(options, {32, 32}).canvas, (ImageSize{40, 40}));
  options.crop = ImageSize{32, 32};
  options.is_crop_random = true;
  bool has_moved = false;
  for (std::uint64_t key = 0; key < 200; ++key) {
    const ImagePlan p = plan(options, {32, 32}, key);
    EXPECT_EQ(p.canvas, (ImageSize{32, 32}));
    EXPECT_LE(p.x + p.window.width, 32U);
    EXPECT_GE(p.window.width, 28U);
    EXPECT_TRUE(p.x == 0 || p.window.x == 0);
    has_moved = has_moved || p.x != 4;
  }
  EXPECT_TRUE(has_moved);
}

TEST(ImagePlan, DrawsAreasWithinTheirRange) {
  ImageOptions options;
  options.random_resized_crop = ImageSize{224, 224};
  double area = 0;
  for (std::uint64_t key = 0; key < 2000; ++key) {
    const Rect crop = plan(options, {375, 500}, key).source;
    ASSERT_LE(crop.x + crop.width, 500U);
    ASSERT_LE(crop.y + crop.height, 375U);
    const double part = crop.width * static_cast<double>(crop.height) / (500 * 375);
    ASSERT_GE(part, 0.078);
    ASSERT_NEAR(std::log(crop.width / static_cast<double>(crop.height)), 0,
                std::log(4.0 / 3) + 0.01);
    area += part;
  }
  // torchvision draws the same mean: large areas fit less often.
  EXPECT_NEAR(area / 2000, 0.43, 0.03);
}

TEST(ImagePlan, TakesTheMiddleOfWhatIsTooLong) {
  ImageOptions options;
  options.random_resized_crop = ImageSize{8, 8};
  options.scale = {1, 1};
  EXPECT_EQ(plan(options, {10, 1000}).source, (Rect{493, 0, 13, 10}));
  EXPECT_EQ(plan(options, {1000, 10}).source, (Rect{0, 493, 10, 13}));
}

TEST(ImagePlan, FlipsAsOftenAsAsked) {
  ImageOptions options;
  options.horizontal_flip = 0.25;
  options.vertical_flip = 1;
  int count = 0;
  for (std::uint64_t key = 0; key < 4000; ++key) {
    const ImagePlan p = plan(options, {4, 4}, key);
    count += p.is_mirrored ? 1 : 0;
    EXPECT_TRUE(p.is_upside_down);
  }
  EXPECT_NEAR(count, 1000, 120);
}

}  // namespace
}  // namespace headrace::detail
