#include "decode/image/pixel_writer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "decode/image/image_testing.h"
#include "decode/image/rows.h"

namespace headrace::detail {
namespace {

std::vector<std::byte> write(const ImageOptions& options, ImageSize size,
                             const std::vector<std::uint8_t>& pixels) {
  const std::size_t row = std::size_t{size.width} * channel_count(options.mode);
  std::vector<std::byte> out(row * size.height * sample_bytes(options.type));
  PixelWriter writer(options, size, out.data());
  EXPECT_TRUE(writer.is_ready());
  for (std::uint32_t y = 0; y < size.height; ++y) {
    std::memcpy(writer.begin_row(y), pixels.data() + y * row, row);
    writer.finish_row(y);
  }
  return out;
}

template <class T>
T value_at(const std::vector<std::byte>& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

TEST(PixelWriter, PutsChannelsFirst) {
  constexpr ImageSize kSize{3, 37};
  for (const PixelMode mode : {PixelMode::kGrey, PixelMode::kColor, PixelMode::kColorAlpha}) {
    ImageOptions options;
    options.mode = mode;
    options.layout = PixelLayout::kChw;
    const std::size_t channels = channel_count(mode), pixels = 3 * 37;
    const auto in = testing::noise(pixels * channels);
    const auto out = write(options, kSize, in);
    for (std::size_t i = 0; i < pixels; ++i) {
      for (std::size_t c = 0; c < channels; ++c)
        ASSERT_EQ(std::to_integer<std::uint8_t>(out[c * pixels + i]), in[i * channels + c]);
    }
  }
}

TEST(PixelWriter, Normalises) {
  ImageOptions options;
  options.type = PixelType::kFloat32;
  options.mean = {0.485F, 0.456F, 0.406F};
  options.stddev = {0.229F, 0.224F, 0.225F};
  const auto in = testing::noise(std::size_t{5} * 19 * 3);
  for (const PixelLayout layout : {PixelLayout::kHwc, PixelLayout::kChw}) {
    options.layout = layout;
    const auto out = write(options, {5, 19}, in);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::size_t c = i % 3;
      const std::size_t at = layout == PixelLayout::kHwc ? i : c * 95 + i / 3;
      const float expected =
          (static_cast<float>(in[i]) / 255.0F - (*options.mean)[c]) / (*options.stddev)[c];
      ASSERT_NEAR(value_at<float>(out, at), expected, 2e-6F);
    }
  }
}

TEST(PixelWriter, ScalesToOneWithoutAMean) {
  ImageOptions options;
  options.type = PixelType::kBfloat16;
  const auto out = write(options, {1, 2}, {0, 255, 51, 1, 2, 3});
  EXPECT_EQ(value_at<std::uint16_t>(out, 0), 0);
  EXPECT_EQ(value_at<std::uint16_t>(out, 1), 0x3F80);
  EXPECT_EQ(value_at<std::uint16_t>(out, 2), 0x3E4D);  // 0.2 is 0x3E4CCCCD.
  options.type = PixelType::kFloat16;
  EXPECT_EQ(value_at<std::uint16_t>(write(options, {1, 1}, {255, 0, 51}), 0), 0x3C00);
}

TEST(PixelConversions, GiveTheSameBytesWithVectors) {
  if (simd_conversions() == nullptr) GTEST_SKIP() << "no vectors here";
  SampleScale scale;
  for (std::size_t i = 0; i < SampleScale::kPeriod; ++i) {
    scale.factor[i] = 0.0171F * static_cast<float>(i % 3 + 1);
    scale.offset[i] = -2.1F + static_cast<float>(i % 3);
  }
  // Halves that are below the least normal one, and beyond the largest.
  SampleScale extreme = scale;
  extreme.factor = {1e-7F, 300.0F, 1e5F};
  const auto in = testing::noise(211);
  for (const SampleScale& s : {scale, extreme}) {
    for (const PixelType type : {PixelType::kFloat16, PixelType::kBfloat16, PixelType::kFloat32}) {
      std::vector<std::byte> scalar(in.size() * 4), simd(in.size() * 4);
      kScalarConversions.convert(s, type, in.data(), in.size(), scalar.data());
      simd_conversions()->convert(s, type, in.data(), in.size(), simd.data());
      EXPECT_EQ(scalar, simd) << static_cast<int>(type);
    }
  }
  std::vector<std::uint8_t> scalar(210), simd(210);
  std::uint8_t* const to[] = {scalar.data(), scalar.data() + 70, scalar.data() + 140};
  std::uint8_t* const simd_to[] = {simd.data(), simd.data() + 70, simd.data() + 140};
  kScalarConversions.split(in.data(), 70, to);
  simd_conversions()->split(in.data(), 70, simd_to);
  EXPECT_EQ(scalar, simd);
}

}  // namespace
}  // namespace headrace::detail
