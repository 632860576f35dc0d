// TIFFs with alpha: the colours that are stored, however they lie in the file.
#include <gtest/gtest.h>

#include "base/endian.h"
#include "decode/image/image_testing.h"

namespace headrace::detail {
namespace {

/// Of one tile, so that strips and tiles have the same bytes.
constexpr std::uint32_t kSide = 16;

struct Layout {
  std::uint16_t bits = 8;
  bool is_tiled = false;
  bool is_planar = false;
  std::uint16_t alpha = 2;  ///< ExtraSamples: 2 is unassociated, 1 associated, 0 says nothing.
};

template <class T>
void put(std::string& out, T value) {
  std::byte bytes[sizeof(T)];
  store_le(bytes, value);
  out.append(reinterpret_cast<const char*>(bytes), sizeof(T));
}

struct Entry {
  std::uint16_t tag, type;
  std::uint32_t count, value;
};

/// Where the directory's values that are longer than 4 bytes lie, and the pixels.
constexpr std::uint32_t kBitsAt = 8, kOffsetsAt = 16, kSizesAt = 32, kDirectoryAt = 48;
constexpr std::uint32_t kPixelsAt = 256;

std::vector<Entry> entries_of(const Layout& layout) {
  const std::uint32_t count = layout.is_planar ? 4 : 1;
  const std::uint32_t plane_bytes = kSide * kSide * layout.bits / 8;
  const auto one = [&](std::uint32_t at, std::uint32_t value) { return count == 1 ? value : at; };
  const std::uint32_t offsets = one(kOffsetsAt, kPixelsAt);
  const std::uint32_t sizes = one(kSizesAt, 4 * plane_bytes);
  std::vector<Entry> entries = {
      {256, 4, 1, kSide}, {257, 4, 1, kSide}, {258, 3, 4, kBitsAt}, {259, 3, 1, 1}, {262, 3, 1, 2}};
  if (!layout.is_tiled) entries.push_back({273, 4, count, offsets});
  entries.push_back({277, 3, 1, 4});
  if (!layout.is_tiled) {
    entries.push_back({278, 4, 1, kSide});
    entries.push_back({279, 4, count, sizes});
  }
  entries.push_back({284, 3, 1, layout.is_planar ? 2U : 1U});
  if (layout.is_tiled) {
    for (const Entry& entry : {Entry{322, 4, 1, kSide}, Entry{323, 4, 1, kSide},
                               Entry{324, 4, count, offsets}, Entry{325, 4, count, sizes}})
      entries.push_back(entry);
  }
  entries.push_back({338, 3, 1, layout.alpha});
  return entries;
}

/// Uncompressed; a sample of 16 bits is the one of 8 in both bytes.
std::string make_tiff(const std::vector<std::uint8_t>& rgba, const Layout& layout) {
  const std::uint32_t plane_bytes = kSide * kSide * layout.bits / 8;
  std::string out("II*\0", 4);
  put(out, kDirectoryAt);
  for (int c = 0; c < 4; ++c) put(out, layout.bits);
  for (std::uint32_t c = 0; c < 4; ++c) put(out, kPixelsAt + c * plane_bytes);
  for (std::uint32_t c = 0; c < 4; ++c) put(out, plane_bytes);
  const std::vector<Entry> entries = entries_of(layout);
  put(out, static_cast<std::uint16_t>(entries.size()));
  for (const Entry& entry : entries) {
    put(out, entry.tag);
    put(out, entry.type);
    put(out, entry.count);
    put(out, entry.value);
  }
  out.resize(kPixelsAt);
  for (std::size_t i = 0; i < rgba.size(); ++i) {
    constexpr std::size_t kPixels = std::size_t{kSide} * kSide;
    const std::uint8_t sample = layout.is_planar ? rgba[i % kPixels * 4 + i / kPixels] : rgba[i];
    out.append(layout.bits / 8, static_cast<char>(sample));
  }
  return out;
}

std::vector<std::uint8_t> pixels_of(const std::string& value, PixelMode mode) {
  ImageOptions options;
  options.mode = mode;
  auto out = testing::decode_value(options, value);
  EXPECT_TRUE(out) << out.error().message();
  std::vector<std::uint8_t> pixels;
  for (std::size_t i = 4; out && i < out->size(); ++i)
    pixels.push_back(std::to_integer<std::uint8_t>((*out)[i]));
  return pixels;
}

TEST(Tiff, KeepsColoursWhateverTheirAlpha) {
  const auto rgba = testing::noise(std::size_t{kSide} * kSide * 4);
  std::vector<std::uint8_t> rgb;
  for (std::size_t i = 0; i < rgba.size(); ++i) {
    if (i % 4 != 3) rgb.push_back(rgba[i]);
  }
  for (const std::uint16_t bits : {std::uint16_t{8}, std::uint16_t{16}}) {
    for (const bool is_tiled : {false, true}) {
      for (const bool is_planar : {false, true}) {
        for (std::uint16_t alpha = 0; alpha <= 2; ++alpha) {
          const std::string file = make_tiff(rgba, {bits, is_tiled, is_planar, alpha});
          SCOPED_TRACE(::testing::Message() << bits << " bits, tiles " << is_tiled << ", planes "
                                            << is_planar << ", alpha " << alpha);
          EXPECT_EQ(pixels_of(file, PixelMode::kColorAlpha), rgba);
          EXPECT_EQ(pixels_of(file, PixelMode::kColor), rgb);
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace::detail
