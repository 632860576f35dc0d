#include "decode/image/color_shift.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "decode/image/tone.h"

namespace headrace::detail {
namespace {

struct Hsv {
  float hue, saturation, value;
};

/// Of samples 0 .. 1. Hue is 0 .. 1 of a turn from red over green.
Hsv to_hsv(float r, float g, float b) noexcept {
  const float high = std::max({r, g, b}), low = std::min({r, g, b});
  const float range = high - low;
  if (range == 0) return {0, 0, high};
  const float rc = (high - r) / range, gc = (high - g) / range, bc = (high - b) / range;
  float sixths = 0;
  if (high == r) {
    sixths = bc - gc;
  } else if (high == g) {
    sixths = rc + 2.0F - bc;
  } else {
    sixths = gc + 4.0F - rc;
  }
  const float turns = sixths * (1.0F / 6) + 1.0F;
  return {turns >= 1.0F ? turns - 1.0F : turns, range / high, high};
}

std::uint8_t to_sample(float value) noexcept {
  return static_cast<std::uint8_t>(std::clamp(value, 0.0F, 1.0F) * (255.0F + 1.0F - 1e-3F));
}

/// Writes the 3 samples of a colour.
void from_hsv(const Hsv& hsv, std::uint8_t* out) noexcept {
  const float sixths = hsv.hue * 6.0F;
  const float sector = std::floor(sixths);
  const float rest = sixths - sector;
  const float product = hsv.saturation * rest;
  const std::uint8_t v = to_sample(hsv.value);
  const std::uint8_t p = to_sample((1.0F - hsv.saturation) * hsv.value);
  const std::uint8_t q = to_sample((1.0F - product) * hsv.value);
  const std::uint8_t t = to_sample((product + (1.0F - hsv.saturation)) * hsv.value);
  const std::uint8_t colors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t},
                                     {p, q, v}, {t, p, v}, {v, p, q}};
  std::memcpy(out, colors[static_cast<int>(sector) % 6], 3);
}

}  // namespace

void adjust_saturation(const Canvas& canvas, double factor) noexcept {
  if (canvas.channels == 1) return;
  const auto by = static_cast<float>(factor), rest = static_cast<float>(1.0 - factor);
  std::uint8_t* pixel = canvas.pixels;
  for (std::size_t i = canvas.pixel_count(); i > 0; --i, pixel += canvas.channels) {
    const float grey = floor_luma(pixel);
    for (int c = 0; c < 3; ++c) pixel[c] = blend(static_cast<float>(pixel[c]), grey, by, rest);
  }
}

void adjust_hue(const Canvas& canvas, double turn) noexcept {
  if (canvas.channels == 1) return;
  const auto by = static_cast<float>(turn);
  std::uint8_t* pixel = canvas.pixels;
  for (std::size_t i = canvas.pixel_count(); i > 0; --i, pixel += canvas.channels) {
    Hsv hsv = to_hsv(static_cast<float>(pixel[0]) / 255.0F, static_cast<float>(pixel[1]) / 255.0F,
                     static_cast<float>(pixel[2]) / 255.0F);
    hsv.hue += by;
    if (hsv.hue < 0) hsv.hue += 1.0F;
    if (hsv.hue >= 1) hsv.hue -= 1.0F;
    from_hsv(hsv, pixel);
  }
}

void adjust_sharpness(const Canvas& canvas, double factor, std::uint8_t* copy) noexcept {
  const std::size_t width = canvas.size.width, height = canvas.size.height;
  if (width <= 2 || height <= 2) return;
  std::memcpy(copy, canvas.pixels, canvas.bytes());
  const auto rest = static_cast<float>(1.0 - factor);
  const std::size_t step = canvas.channels, stride = width * step;
  for (std::size_t y = 1; y + 1 < height; ++y) {
    for (std::size_t x = 1; x + 1 < width; ++x) {
      for (std::size_t c = 0; c < canvas.color_count(); ++c) {
        const std::size_t at = y * stride + x * step + c;
        const std::uint8_t *above = copy + at - stride, *p = copy + at, *below = p + stride;
        // Weights 1 around and 5 in the middle, of 13: an odd number, so no sum lies half way.
        const int sum = *(above - step) + above[0] + above[step] + *(p - step) + 5 * p[0] +
                        p[step] + *(below - step) + below[0] + below[step];
        const auto blurred = static_cast<float>((2 * sum + 13) / 26),
                   sample = static_cast<float>(*p);
        const float value = sample + rest * (blurred - sample);
        canvas.pixels[at] = static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
      }
    }
  }
}

}  // namespace headrace::detail
