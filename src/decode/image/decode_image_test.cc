#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "decode/image/image_testing.h"

namespace headrace::detail {
namespace {

using testing::bind_images;
using testing::decode_value;
using testing::JpegForm;
using testing::make_jpeg;

constexpr ImageSize kSize{40, 60};

std::string jpeg(const JpegForm& form = {}) {
  return make_jpeg(testing::gradient(kSize.height, kSize.width, form.channels), kSize, form);
}

ImageOptions resized(std::uint32_t height, std::uint32_t width) {
  ImageOptions options;
  options.resize = ImageSize{height, width};
  return options;
}

int sample(const std::vector<std::byte>& bytes, std::size_t at) {
  return std::to_integer<int>(bytes[at]);
}

TEST(DecodeImage, GivesAFixedSizeWhereTheOptionsDo) {
  auto column = bind_images(resized(20, 30));
  ASSERT_TRUE(column);
  EXPECT_EQ(column->output.name, "image");
  EXPECT_EQ(column->output.encoding, "ndarray:uint8:20,30,3");
  EXPECT_EQ(column->output.dtype, "uint8");
  EXPECT_EQ(column->output.shape, (std::vector<std::uint64_t>{20, 30, 3}));
  EXPECT_EQ(column->output.fixed_size_bytes, 1800U);
  auto pixels = decode_value(resized(20, 30), jpeg());
  ASSERT_TRUE(pixels) << pixels.error().message();
  ASSERT_EQ(pixels->size(), 1800U);
  // Red grows to the right, green to the bottom.
  EXPECT_NEAR(sample(*pixels, 0), 0, 12);
  EXPECT_NEAR(sample(*pixels, 29 * 3), 250, 12);
  EXPECT_NEAR(sample(*pixels, 19 * 90 + 1), 248, 12);
}

TEST(DecodeImage, GivesEachValueItsOwnShapeOtherwise) {
  auto column = bind_images({});
  ASSERT_TRUE(column);
  EXPECT_EQ(column->output.encoding, "ndarray:uint8");
  EXPECT_TRUE(column->output.is_ragged());
  EXPECT_TRUE(column->output.dtype.empty());
  auto value = decode_value({}, jpeg());
  ASSERT_TRUE(value);
  ASSERT_EQ(value->size(), 4U + 40 * 60 * 3);
  EXPECT_EQ(sample(*value, 0), 3 << 2);
  EXPECT_EQ(sample(*value, 1), 40);
  EXPECT_EQ(sample(*value, 2), 60);
  EXPECT_EQ(sample(*value, 3), 3);
}

TEST(DecodeImage, TurnsWhatExifSaysIsTurned) {
  ImageOptions as_stored;
  as_stored.applies_orientation = false;
  auto plain = decode_value(as_stored, jpeg({.has_full_color = true}));
  ASSERT_TRUE(plain);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string file = jpeg({.has_full_color = true, .orientation = orientation});
    auto kept = decode_value(as_stored, file);
    ASSERT_TRUE(kept);
    EXPECT_EQ(*kept, *plain);
    auto turned = decode_value({}, file);
    ASSERT_TRUE(turned);
    const bool is_turned = orientation >= 5;
    EXPECT_EQ(sample(*turned, 1), is_turned ? 60 : 40);
    // The corner that is seen at the top left, in (row, column) of what is stored.
    const bool is_right =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool is_bottom =
        orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const std::size_t corner = (is_bottom ? 39U * 60U : 0U) + (is_right ? 59U : 0U);
    for (std::size_t c = 0; c < 3; ++c)
      EXPECT_EQ(sample(*turned, 4 + c), sample(*plain, 4 + 3 * corner + c)) << orientation;
    // Its neighbour to the right.
    const std::size_t step = is_turned ? 60 : 1;
    const bool is_back = is_turned ? is_bottom : is_right;
    const std::size_t next = is_back ? corner - step : corner + step;
    for (std::size_t c = 0; c < 3; ++c)
      EXPECT_EQ(sample(*turned, 7 + c), sample(*plain, 4 + 3 * next + c)) << orientation;
  }
}

/// Whether `crop`, of 31 x 45 pixels, is somewhere in `whole`, of 203 x 301 behind a header.
bool is_part(const std::vector<std::byte>& crop, const std::vector<std::byte>& whole) {
  const auto row_fits = [&](std::size_t y, std::size_t x, std::size_t row) {
    const std::byte* from = whole.data() + 7 + ((y + row) * 301 + x) * 3;
    return std::equal(from, from + 135, crop.data() + row * 135);
  };
  constexpr std::size_t kPlaces = (203 - 30) * (301 - 44);
  for (std::size_t at = 0; at < kPlaces; ++at) {
    std::size_t rows = 0;
    while (rows < 31 && row_fits(at / 257, at % 257, rows)) ++rows;
    if (rows == 31) return true;
  }
  return false;
}

TEST(DecodeImage, DecodesOnlyWhatACropShows) {
  const ImageSize size{203, 301};
  ImageOptions options;
  options.crop = ImageSize{31, 45};
  options.is_crop_random = true;
  for (const JpegForm& form :
       {JpegForm{}, JpegForm{.is_progressive = true}, JpegForm{.has_full_color = true},
        JpegForm{.is_progressive = true, .has_full_color = true}, JpegForm{.lacks_scans = true},
        JpegForm{.channels = 1}, JpegForm{.channels = 4}}) {
    const std::string file =
        make_jpeg(testing::gradient(size.height, size.width, form.channels), size, form);
    auto whole = decode_value({}, file);
    ASSERT_TRUE(whole);
    for (std::uint64_t key = 0; key < 40; ++key) {
      auto crop = decode_value(options, file, key);
      ASSERT_TRUE(crop) << crop.error().message();
      EXPECT_TRUE(is_part(*crop, *whole)) << form.channels << " " << key;
    }
  }
}

TEST(DecodeImage, RefusesWhatIsBroken) {
  const std::string file = jpeg();
  const auto code_of = [](const std::string& value, const ImageOptions& options = {}) {
    auto out = decode_value(options, value);
    return out ? Code::kOk : out.error().code();
  };
  EXPECT_EQ(code_of(""), Code::kCorrupt);
  EXPECT_EQ(code_of("not an image"), Code::kCorrupt);
  for (std::size_t size = 1; size + 2 < file.size(); ++size)
    EXPECT_EQ(code_of(file.substr(0, size)), Code::kCorrupt) << size;
  ImageOptions lenient;
  lenient.allows_truncated = true;
  EXPECT_EQ(code_of(file.substr(0, file.size() - 100), lenient), Code::kOk);
  ImageOptions small;
  small.max_pixels = 2399;
  EXPECT_EQ(code_of(file, small), Code::kCorrupt);
  small.max_pixels = 2400;
  EXPECT_EQ(code_of(file, small), Code::kOk);
  std::string huge = file;
  const std::size_t frame = huge.find("\xff\xc0");
  huge.replace(frame + 5, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(code_of(huge), Code::kCorrupt);
  huge.replace(frame + 5, 4, std::string(4, '\0'));
  EXPECT_EQ(code_of(huge), Code::kCorrupt);
}

TEST(DecodeImage, RefusesColumnsThatHaveNoImages) {
  for (const char* encoding : {"str", "json", "ndarray:uint8", "list[jpeg]", "pkl", "jpeg_array"}) {
    const auto column = bind_images({}, encoding);
    ASSERT_FALSE(column) << encoding;
    EXPECT_EQ(column.error().code(), Code::kInvalidArgument);
    EXPECT_NE(column.error().message().find("column image"), std::string_view::npos);
  }
  for (const char* encoding : {"bytes", "jpeg", "png", "pil", "", "file", "jpg"})
    EXPECT_TRUE(bind_images({}, encoding)) << encoding;
  auto decode = decode_image({});
  ASSERT_TRUE(decode);
  EXPECT_FALSE((*decode)->bind({.name = "x", .encoding = "int", .dtype = "int64", .shape = {}}));
}

TEST(DecodeImage, RefusesOptionsThatContradict) {
  const auto is_refused = [](void (*change)(ImageOptions&)) {
    ImageOptions options;
    change(options);
    const auto decode = decode_image(options);
    return !decode && decode.error().code() == Code::kInvalidArgument;
  };
  EXPECT_FALSE(is_refused([](ImageOptions&) {}));
  EXPECT_TRUE(is_refused([](ImageOptions& o) { o.resize = ImageSize{0, 5}; }));
  EXPECT_TRUE(is_refused([](ImageOptions& o) {
    o.resize = ImageSize{5, 5};
    o.resize_shorter = 4;
  }));
  EXPECT_TRUE(is_refused([](ImageOptions& o) {
    o.random_resized_crop = o.crop = ImageSize{5, 5};
  }));
  EXPECT_TRUE(is_refused([](ImageOptions& o) { o.is_crop_random = true; }));
  EXPECT_TRUE(is_refused([](ImageOptions& o) { o.horizontal_flip = 1.5; }));
  EXPECT_TRUE(is_refused([](ImageOptions& o) { o.scale = {0.5, 0.1}; }));
  EXPECT_TRUE(is_refused([](ImageOptions& o) { o.ratio = {0, 1}; }));
  EXPECT_TRUE(is_refused([](ImageOptions& o) { o.mean = {0, 0, 0}; }));
  EXPECT_TRUE(is_refused([](ImageOptions& o) { o.jitter.hue = 0.6; }));
  EXPECT_TRUE(is_refused([](ImageOptions& o) { o.horizontal_flip = std::nan(""); }));
}

}  // namespace
}  // namespace headrace::detail
