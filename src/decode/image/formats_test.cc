// Every format but JPEG: what a file of it becomes, and what a broken one does not do.
#include <gtest/gtest.h>
#include <png.h>
#include <webp/encode.h>

#include "base/endian.h"
#include "decode/image/image_testing.h"

namespace headrace::detail {
namespace {

using testing::decode_value;
using testing::make_png;

constexpr ImageSize kSize{13, 21};
constexpr std::size_t kPixels = 13 * 21;

std::string make_webp(const std::vector<std::uint8_t>& rgb) {
  std::uint8_t* memory = nullptr;
  const std::size_t size =
      WebPEncodeLosslessRGB(rgb.data(), kSize.width, kSize.height, 3 * kSize.width, &memory);
  std::string out(reinterpret_cast<const char*>(memory), size);
  WebPFree(memory);
  return out;
}

template <class T>
void put(std::string& out, T value);

std::string chunk(const std::string& name, const std::string& content) {
  std::string out = name;
  put(out, static_cast<std::uint32_t>(content.size()));
  out += content;
  return content.size() % 2 == 0 ? out : out + '\0';
}

std::string u24(std::uint32_t value) {
  return {static_cast<char>(value), static_cast<char>(value >> 8), static_cast<char>(value >> 16)};
}

/// Two frames on a canvas, the first at (x, y).
std::string make_webp_animation(const std::vector<std::uint8_t>& rgb, ImageSize canvas,
                                std::uint32_t x, std::uint32_t y) {
  const auto frame = [&](const std::vector<std::uint8_t>& pixels) {
    return chunk("ANMF", u24(x / 2) + u24(y / 2) + u24(kSize.width - 1) + u24(kSize.height - 1) +
                             u24(40) + '\2' + make_webp(pixels).substr(12));
  };
  std::vector<std::uint8_t> other = rgb;
  for (std::uint8_t& value : other) value = static_cast<std::uint8_t>(~value);
  const std::string chunks =
      chunk("VP8X", '\2' + std::string(3, '\0') + u24(canvas.width - 1) + u24(canvas.height - 1)) +
      chunk("ANIM", std::string(6, '\0')) + frame(rgb) + frame(other);
  return chunk("RIFF", "WEBP" + chunks);
}

template <class T>
void put(std::string& out, T value) {
  std::byte bytes[sizeof(T)];
  store_le(bytes, value);
  out.append(reinterpret_cast<const char*>(bytes), sizeof(T));
}

std::string as_text(const std::vector<std::uint8_t>& pixels) {
  return {pixels.begin(), pixels.end()};
}

std::string make_pil(const std::string& mode, ImageSize size, const std::string& pixels) {
  std::string out;
  put(out, size.width);
  put(out, size.height);
  put(out, static_cast<std::uint32_t>(mode.size()));
  return out + mode + pixels;
}

/// Uncompressed RGB, one strip.
std::string make_tiff(const std::vector<std::uint8_t>& rgb, std::uint16_t orientation) {
  struct Entry {
    std::uint16_t tag, type;
    std::uint32_t count, value;
  };
  constexpr std::uint32_t kBits = 8, kDirectory = 14;
  const Entry entries[] = {{256, 4, 1, kSize.width},
                           {257, 4, 1, kSize.height},
                           {258, 3, 3, kBits},
                           {259, 3, 1, 1},
                           {262, 3, 1, 2},
                           {273, 4, 1, 134},
                           {274, 3, 1, orientation},
                           {277, 3, 1, 3},
                           {278, 4, 1, kSize.height},
                           {279, 4, 1, static_cast<std::uint32_t>(rgb.size())}};
  std::string out("II*\0", 4);
  put(out, kDirectory);
  for (int i = 0; i < 3; ++i) put(out, std::uint16_t{8});
  put(out, static_cast<std::uint16_t>(std::size(entries)));
  for (const Entry& entry : entries) {
    put(out, entry.tag);
    put(out, entry.type);
    put(out, entry.count);
    put(out, entry.value);
  }
  out.resize(134);
  return out + as_text(rgb);
}

/// 2 x 2 pixels on a screen of 3 x 2, at (1, 0): colours 1 2 / 3 0, of red, green, blue and white.
std::string make_gif() {
  std::string out("GIF89a\x03\0\x02\0\x81\0\0", 13);
  out += std::string("\xff\xff\xff\xff\0\0\0\xff\0\0\0\xff", 12);
  out += std::string("\x2c\x01\0\0\0\x02\0\x02\0\0", 10);
  // Codes of 3 bits, the first in the lowest: clear 4, 1, 2, 3, 0 (of 3 bits still), end 5 (of 4).
  out += std::string("\x02\x03\x8c\x06\x05\0", 6) + ";";
  return out;
}

std::vector<std::uint8_t> pixels_of(const std::string& value, const ImageOptions& options = {},
                                    const std::string& encoding = "bytes") {
  auto out = decode_value(options, value, 1, encoding);
  EXPECT_TRUE(out) << out.error().message();
  if (!out) return {};
  std::vector<std::uint8_t> pixels;
  for (std::size_t i = 4; i < out->size(); ++i)
    pixels.push_back(std::to_integer<std::uint8_t>((*out)[i]));
  return pixels;
}

ImageOptions with_mode(PixelMode mode) {
  ImageOptions options;
  options.mode = mode;
  return options;
}

TEST(DecodeFormats, GiveThePixelsThatWereStored) {
  const auto rgb = testing::noise(kPixels * 3);
  EXPECT_EQ(pixels_of(make_png(rgb, kSize)), rgb);
  EXPECT_EQ(pixels_of(make_webp(rgb)), rgb);
  EXPECT_EQ(pixels_of(make_tiff(rgb, 1)), rgb);
  EXPECT_EQ(pixels_of(make_pil("RGB", kSize, as_text(rgb)), {}, "pil"), rgb);
}

TEST(DecodeFormats, TurnATiffAsItsTagSays) {
  const auto rgb = testing::noise(kPixels * 3);
  const auto turned = pixels_of(make_tiff(rgb, 3));
  ASSERT_EQ(turned.size(), rgb.size());
  EXPECT_EQ(turned[0], rgb[rgb.size() - 3]);
}

TEST(DecodeFormats, TurnAPngAsItsExifSaysWhereverItStands) {
  const auto rgb = testing::noise(kPixels * 3);
  const std::string plain = make_png(rgb, kSize);
  const std::string exif = testing::exif_of(6).substr(6);
  const std::string chunk = {std::string("\0\0\0", 3) + static_cast<char>(exif.size()) + "eXIf" +
                             exif + std::string(4, '\0')};
  // In front of the pixels, and between them and the end.
  for (const std::size_t at : {plain.find("IDAT") - 4, plain.size() - 12}) {
    std::string file = plain;
    auto value = decode_value({}, file.insert(at, chunk));
    ASSERT_TRUE(value);
    EXPECT_EQ(std::to_integer<std::uint32_t>((*value)[1]), kSize.width);
    EXPECT_EQ(std::to_integer<std::uint32_t>((*value)[2]), kSize.height);
    // The top left is what was stored at the bottom left.
    EXPECT_EQ(std::to_integer<std::uint8_t>((*value)[4]), rgb[kPixels * 3 - kSize.width * 3]);
  }
  // Behind the end there is nothing.
  EXPECT_EQ(pixels_of(plain + chunk), rgb);
}

TEST(DecodeFormats, DropOrKeepAlpha) {
  const auto rgba = testing::noise(kPixels * 4);
  const std::string file = make_png(rgba, kSize, PNG_FORMAT_RGBA);
  EXPECT_EQ(pixels_of(file, with_mode(PixelMode::kColorAlpha)), rgba);
  const auto rgb = pixels_of(file);
  ASSERT_EQ(rgb.size(), kPixels * 3);
  EXPECT_EQ(rgb[3], rgba[4]);
  const auto opaque = pixels_of(make_png(rgb, kSize), with_mode(PixelMode::kColorAlpha));
  EXPECT_EQ(opaque[7], 255);
  const auto grey = pixels_of(file, with_mode(PixelMode::kGrey));
  ASSERT_EQ(grey.size(), kPixels);
  EXPECT_NEAR(grey[0], 0.299 * rgba[0] + 0.587 * rgba[1] + 0.114 * rgba[2], 0.51);
}

TEST(DecodeFormats, PutTheFirstFrameOfAGifOnItsScreen) {
  const std::vector<std::uint8_t> expected = {255, 255, 255, 255, 0, 0,   0,   255, 0,
                                              255, 255, 255, 0,   0, 255, 255, 255, 255};
  EXPECT_EQ(pixels_of(make_gif()), expected);
}

TEST(DecodeFormats, PutTheFirstFrameOfAWebPOnItsCanvas) {
  const auto rgb = testing::noise(kPixels * 3);
  EXPECT_EQ(pixels_of(make_webp_animation(rgb, kSize, 0, 0)), rgb);
  const ImageSize canvas{kSize.height + 5, kSize.width + 9};
  const auto placed =
      pixels_of(make_webp_animation(rgb, canvas, 6, 4), with_mode(PixelMode::kColorAlpha));
  ASSERT_EQ(placed.size(), std::size_t{canvas.height} * canvas.width * 4);
  for (std::uint32_t y = 0; y < canvas.height; ++y) {
    for (std::uint32_t x = 0; x < canvas.width; ++x) {
      const std::uint8_t* pixel = placed.data() + (std::size_t{y} * canvas.width + x) * 4;
      const bool is_inside = x >= 6 && x < 6 + kSize.width && y >= 4 && y < 4 + kSize.height;
      const std::size_t at = ((y - 4) * std::size_t{kSize.width} + x - 6) * 3;
      for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(pixel[c], is_inside ? rgb[at + c] : 0);
      ASSERT_EQ(pixel[3], is_inside ? 255 : 0);
    }
  }
}

TEST(DecodeFormats, RefuseWebPFramesThatLieOutside) {
  const auto rgb = testing::noise(kPixels * 3);
  for (const auto& [x, y] : {std::pair(2U, 0U), std::pair(0U, 2U), std::pair(1U << 24, 0U)}) {
    const auto outside = decode_value({}, make_webp_animation(rgb, kSize, x, y));
    ASSERT_FALSE(outside);
    EXPECT_EQ(outside.error().code(), Code::kCorrupt);
  }
}

TEST(DecodeFormats, ReadTheModesOfPillow) {
  const std::string bits("\x80\x40", 2);
  EXPECT_EQ(pixels_of(make_pil("1", {2, 2}, bits), with_mode(PixelMode::kGrey), "pil"),
            (std::vector<std::uint8_t>{255, 0, 0, 255}));
  EXPECT_EQ(pixels_of(make_pil("LA", {1, 1}, "a\x7f"), with_mode(PixelMode::kColorAlpha), "pil"),
            (std::vector<std::uint8_t>{'a', 'a', 'a', 0x7f}));
  EXPECT_EQ(pixels_of(make_pil("CMYK", {1, 1}, std::string("\xff\0\0\0", 4)), {}, "pil"),
            (std::vector<std::uint8_t>{0, 255, 255}));
  const auto other = decode_value({}, make_pil("P", {1, 1}, "a"), 1, "pil");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::kUnsupported);
}

struct Sample {
  std::string file;
  std::string encoding = "bytes";
};

std::vector<Sample> samples() {
  const auto rgb = testing::noise(kPixels * 3);
  return {{make_png(rgb, kSize)},
          {make_webp(rgb)},
          {make_webp_animation(rgb, {40, 50}, 8, 2)},
          {make_tiff(rgb, 6)},
          {make_gif()},
          {make_pil("RGB", kSize, as_text(rgb)), "pil"},
          {testing::make_jpeg(rgb, kSize, {})},
          {testing::make_jpeg(rgb, kSize, {.is_progressive = true, .orientation = 5})}};
}

/// Decodes with little room for pixels; whatever comes, it comes as a Status.
void try_decoding(const Sample& sample, const std::string& file, bool allows_truncated) {
  ImageOptions options;
  options.resize = ImageSize{5, 7};
  options.max_pixels = 1 << 16;
  options.allows_truncated = allows_truncated;
  (void)decode_value(options, file, 1, sample.encoding);
}

TEST(DecodeFormats, SurviveFilesThatAreCutShort) {
  for (const Sample& sample : samples()) {
    for (std::size_t size = 0; size < sample.file.size(); ++size) {
      try_decoding(sample, sample.file.substr(0, size), false);
      try_decoding(sample, sample.file.substr(0, size), true);
    }
    const auto half =
        decode_value({}, sample.file.substr(0, sample.file.size() / 2), 1, sample.encoding);
    EXPECT_FALSE(half);
  }
}

TEST(DecodeFormats, SurviveBytesThatAreWrong) {
  Random random(7);
  for (const Sample& sample : samples()) {
    for (int i = 0; i < 3000; ++i) {
      std::string file = sample.file;
      for (std::uint64_t n = random.below(4) + 1; n-- > 0;) {
        // Headers more often than pixels.
        const std::size_t at = random.below(
            random.below(2) == 0 ? std::min<std::size_t>(64, file.size()) : file.size());
        file[at] = static_cast<char>(random.next());
      }
      try_decoding(sample, file, i % 2 == 0);
    }
  }
}

}  // namespace
}  // namespace headrace::detail
