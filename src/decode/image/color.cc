#include "decode/image/color.h"

namespace headrace::detail {
namespace {

/// a * b / 255, rounded.
std::uint32_t times(std::uint32_t a, std::uint32_t b) noexcept {
  const std::uint32_t product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

}  // namespace

void inverted_cmyk_to(PixelMode mode, std::uint32_t count, std::uint8_t* row) noexcept {
  std::uint8_t* out = row;
  for (std::uint32_t i = 0; i < count; ++i, row += 4) {
    const std::uint32_t light = row[3];
    std::uint8_t rgb[3];
    for (int c = 0; c < 3; ++c)
      rgb[c] = static_cast<std::uint8_t>(light - times(255U - row[c], light));
    if (mode == PixelMode::kGrey) {
      *out++ = luma(rgb[0], rgb[1], rgb[2]);
      continue;
    }
    for (const std::uint8_t sample : rgb) *out++ = sample;
    if (mode == PixelMode::kColorAlpha) *out++ = 255;
  }
}

}  // namespace headrace::detail
