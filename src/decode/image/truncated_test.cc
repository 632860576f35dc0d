// What files that end early show where that is allowed: every row that is there, the rest grey.
#include <gif_lib.h>
#include <gtest/gtest.h>
#include <png.h>
#include <webp/encode.h>

#include <algorithm>

#include "decode/image/image_testing.h"

namespace headrace::detail {
namespace {

constexpr ImageSize kSize{240, 80};

using Pixels = std::vector<std::uint8_t>;

/// Random, so that each row takes as many bytes as the others.
Pixels noise_of(std::size_t channels) {
  return testing::noise(std::size_t{kSize.height} * kSize.width * channels);
}

/// Stripes: 19,200 pixels in one short chunk.
std::string small_png() {
  Pixels rgb(std::size_t{kSize.height} * kSize.width * 3);
  for (std::size_t i = 0; i < rgb.size(); ++i)
    rgb[i] = static_cast<std::uint8_t>(i / 3 / 16 * 37 + i % 3);
  return testing::make_png(rgb, kSize);
}

std::string webp_of(const Pixels& rgb, bool is_lossless) {
  std::uint8_t* memory = nullptr;
  const int width = kSize.width, height = kSize.height;
  const std::size_t size =
      is_lossless ? WebPEncodeLosslessRGB(rgb.data(), width, height, 3 * width, &memory)
                  : WebPEncodeRGB(rgb.data(), width, height, 3 * width, 90, &memory);
  std::string out(reinterpret_cast<const char*>(memory), size);
  WebPFree(memory);
  return out;
}

std::string gif_of(int width, int height, bool is_interlaced) {
  std::string out;
  int code = 0;
  GifFileType* gif = EGifOpen(
      &out,
      [](GifFileType* file, const GifByteType* bytes, int count) {
        static_cast<std::string*>(file->UserData)
            ->append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
        return count;
      },
      &code);
  GifColorType colors[256];
  for (int i = 0; i < 256; ++i) {
    const auto value = static_cast<GifByteType>(i);
    colors[i] = {value, static_cast<GifByteType>(255 - value), value};
  }
  ColorMapObject* map = GifMakeMapObject(256, colors);
  EGifPutScreenDesc(gif, width, height, 8, 0, map);
  EGifPutImageDesc(gif, 0, 0, width, height, is_interlaced, nullptr);
  Pixels indices =
      testing::noise(static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  for (std::size_t at = 0; at < indices.size(); at += static_cast<std::size_t>(width))
    EGifPutLine(gif, indices.data() + at, width);
  GifFreeMapObject(map);
  EGifCloseFile(gif, &code);
  return out;
}

/// The rows of a file, of 3 bytes a pixel; none where it is refused.
std::vector<Pixels> rows_of(const std::string& file, bool allows_truncated = true) {
  ImageOptions options;
  options.allows_truncated = allows_truncated;
  auto value = testing::decode_value(options, file);
  if (!value) return {};
  // Behind a head of 4 bytes, as no side is longer than 255.
  constexpr std::size_t kHeadBytes = 4;
  const auto width = std::to_integer<std::size_t>((*value)[2]);
  std::vector<Pixels> rows;
  for (std::size_t from = kHeadBytes; from < value->size(); from += width * 3) {
    Pixels& row = rows.emplace_back();
    for (std::size_t i = 0; i < width * 3; ++i)
      row.push_back(std::to_integer<std::uint8_t>((*value)[from + i]));
  }
  return rows;
}

bool is_grey(const Pixels& row) {
  return std::ranges::all_of(row, [](std::uint8_t sample) { return sample == 128; });
}

/// How many rows are those of the whole file; all others have to be grey.
std::size_t count_there(const std::string& file, std::size_t size_bytes) {
  const auto whole = rows_of(file, false);
  const auto cut = rows_of(file.substr(0, size_bytes));
  EXPECT_FALSE(whole.empty());
  EXPECT_EQ(cut.size(), whole.size());
  std::size_t count = 0;
  for (std::size_t y = 0; y < whole.size() && y < cut.size(); ++y) {
    const bool is_there = cut[y] == whole[y];
    count += is_there ? 1 : 0;
    EXPECT_TRUE(is_there || is_grey(cut[y])) << "row " << y << " of " << size_bytes << " bytes";
  }
  return count;
}

/// Cut anywhere, at most `lag` rows more are lost than were cut.
void expect_rows(const std::string& file, std::size_t lag) {
  for (const std::size_t percent : {20U, 50U, 80U, 95U, 99U}) {
    const std::size_t there = count_there(file, file.size() * percent / 100);
    EXPECT_GE(there + lag, kSize.height * percent / 100) << percent << " %";
    EXPECT_LT(there, kSize.height) << percent << " %";
  }
  const auto whole = rows_of(file, false);
  EXPECT_EQ(whole.size(), kSize.height);
  EXPECT_TRUE(rows_of(file) == whole);
}

TEST(Truncated, PngsShowTheirRows) { expect_rows(testing::make_png(noise_of(3), kSize), 3); }

TEST(Truncated, SmallPngsShowTheirRows) {
  const std::string file = small_png();
  ASSERT_LT(file.size(), 8192U);
  std::size_t before = 0;
  for (std::size_t size = file.size() / 2; size < file.size(); size += 7) {
    const std::size_t there = count_there(file, size);
    EXPECT_GE(there, before);
    before = there;
  }
  EXPECT_GT(before, kSize.height * 9 / 10);
}

TEST(Truncated, PngsLoseOneRowToAMissingChecksum) {
  const std::string file = testing::make_png(noise_of(3), kSize);
  // Of the end, the chunk's checksum and zlib's.
  for (std::size_t lost = 13; lost < 20; ++lost)
    EXPECT_GE(count_there(file, file.size() - lost), kSize.height - 1) << lost;
}

/// The verdict on a file must not depend on what a random crop shows of it: in another epoch, or on
/// another rank, it would be another.
TEST(Truncated, FilesAreBadWhateverIsShownOfThem) {
  const Pixels pixels = noise_of(3);
  const std::string files[] = {testing::make_jpeg(pixels, kSize),
                               testing::make_jpeg(pixels, kSize, {.is_progressive = true}),
                               testing::make_jpeg(pixels, kSize, {.orientation = 6}),
                               testing::make_png(pixels, kSize),
                               webp_of(pixels, true),
                               gif_of(kSize.width, kSize.height, false)};
  ImageOptions small;
  small.crop = ImageSize{8, 8};
  small.is_crop_random = true;
  ImageOptions resized;
  resized.random_resized_crop = ImageSize{8, 8};
  resized.scale = {0.01, 0.1};
  ImageOptions outside = small;
  outside.pad = {200, 200, 200, 200};  // Of some crops nothing is of the image.
  for (const std::string& file : files) {
    for (ImageOptions options : {small, resized, outside}) {
      for (std::uint64_t key = 0; key < 20; ++key) {
        EXPECT_TRUE(testing::decode_value(options, file, key)) << key;
        for (const std::size_t percent : {30U, 60U, 95U}) {
          const auto cut =
              testing::decode_value(options, file.substr(0, file.size() * percent / 100), key);
          ASSERT_FALSE(cut) << key << ", " << percent << " %";
          EXPECT_EQ(cut.error().code(), Code::kCorrupt);
        }
      }
    }
  }
}

TEST(Truncated, LosslessWebPsShowTheirRows) { expect_rows(webp_of(noise_of(3), true), 24); }

TEST(Truncated, LossyWebPsShowTheirRows) { expect_rows(webp_of(noise_of(3), false), 48); }

TEST(Truncated, GifsShowTheirRows) { expect_rows(gif_of(kSize.width, kSize.height, false), 9); }

TEST(Truncated, InterlacedGifsShowTheirRows) {
  expect_rows(gif_of(kSize.width, kSize.height, true), 9);
}

/// Up to the code size, in front of the blocks; and the empty block and the mark of the end.
constexpr std::size_t kGifHeadBytes = 13 + 768 + 10 + 1, kGifTailBytes = 2;

/// The same file in blocks of 1 byte.
std::string in_short_blocks(const std::string& gif) {
  std::string out = gif.substr(0, kGifHeadBytes);
  for (std::size_t at = kGifHeadBytes; at + kGifTailBytes < gif.size();) {
    const auto size = static_cast<std::uint8_t>(gif[at]);
    for (std::size_t i = 1; i <= size; ++i) out += {'\1', gif[at + i]};
    at += 1 + size;
  }
  return out + gif.substr(gif.size() - kGifTailBytes);
}

TEST(Truncated, GifsOfShortBlocksShowTheirRows) {
  const std::string file = in_short_blocks(gif_of(kSize.width, kSize.height, false));
  EXPECT_TRUE(rows_of(file) == rows_of(file, false));
  EXPECT_EQ(count_there(file, file.size() - kGifTailBytes), kSize.height);
  for (std::size_t lost = 3; lost < 40; ++lost)
    EXPECT_GE(count_there(file, file.size() - lost), kSize.height - 1) << lost;
}

TEST(Truncated, GifsOfOneBlockShowTheirRows) {
  const std::string file = gif_of(10, 20, false);
  std::size_t before = 0;
  for (std::size_t size = kGifHeadBytes + 1; size < file.size() - kGifTailBytes; ++size) {
    const std::size_t there = count_there(file, size);
    EXPECT_GE(there, before);
    before = there;
  }
  EXPECT_GE(before, 19U);
  EXPECT_EQ(count_there(file, file.size() - kGifTailBytes), 20U);
}

}  // namespace
}  // namespace headrace::detail
