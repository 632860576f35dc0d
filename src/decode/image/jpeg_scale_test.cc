// JPEGs decoded at a fraction of their size lie where those of all pixels do, whichever way they
// are turned and however their sides divide by 8.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "decode/image/image_testing.h"

namespace headrace::detail {
namespace {

/// Smooth, so that a fraction is close to the whole; steep, so that a shift by a pixel shows.
std::string make_waves(ImageSize size, int orientation) {
  std::vector<std::uint8_t> pixels;
  for (std::uint32_t y = 0; y < size.height; ++y) {
    for (std::uint32_t x = 0; x < size.width; ++x)
      pixels.push_back(
          static_cast<std::uint8_t>(128 + 60 * std::sin(x / 19.0) + 60 * std::sin(y / 17.0)));
  }
  return testing::make_jpeg(pixels, size, {.channels = 1, .orientation = orientation});
}

/// Mean difference between what the options make at a fraction and of all pixels.
double loss_of_fraction(ImageOptions options, const std::string& file, std::uint64_t key = 1) {
  options.mode = PixelMode::kGrey;
  auto fraction = testing::decode_value(options, file, key);
  options.is_exact = true;
  auto exact = testing::decode_value(options, file, key);
  EXPECT_TRUE(fraction && exact);
  if (!fraction || !exact || fraction->size() != exact->size()) return 255;
  EXPECT_NE(*fraction, *exact) << "no fraction was decoded";
  double sum = 0;
  for (std::size_t i = 0; i < exact->size(); ++i)
    sum += std::abs(std::to_integer<int>((*fraction)[i]) - std::to_integer<int>((*exact)[i]));
  return sum / static_cast<double>(exact->size());
}

constexpr ImageSize kSizes[] = {{401, 601}, {403, 595}, {399, 608}, {400, 601}};

TEST(JpegScale, IsNotShiftedByAnyOrientation) {
  for (const ImageSize& size : kSizes) {
    for (int orientation = 1; orientation <= 8; ++orientation) {
      const std::string file = make_waves(size, orientation);
      // An eighth, a quarter, a half.
      for (const std::uint32_t side : {24U, 40U, 80U}) {
        ImageOptions options;
        options.resize = ImageSize{side, side};
        EXPECT_LT(loss_of_fraction(options, file), 1.5)
            << size.height << " x " << size.width << " to " << side << ", " << orientation;
      }
    }
  }
}

TEST(JpegScale, IsNotShiftedByCrops) {
  for (const ImageSize& size : kSizes) {
    for (int orientation = 1; orientation <= 8; ++orientation) {
      const std::string file = make_waves(size, orientation);
      ImageOptions middle;
      middle.resize_shorter = 48;
      middle.crop = ImageSize{31, 40};
      EXPECT_LT(loss_of_fraction(middle, file), 1.5) << size.width << ", " << orientation;
      ImageOptions part;
      part.random_resized_crop = ImageSize{20, 20};
      part.scale = {0.3, 0.9};
      for (std::uint64_t key = 0; key < 5; ++key)
        EXPECT_LT(loss_of_fraction(part, file, key), 1.5)
            << size.width << ", " << orientation << ", " << key;
    }
  }
}

}  // namespace
}  // namespace headrace::detail
