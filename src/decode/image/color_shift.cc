#include "decode/image/color_shift.h"

#include <algorithm>
#include <cstring>

#include "decode/image/pixel_type.h"

namespace headrace::detail {
namespace {

/// Four pixels' samples of a channel, or what a comparison of such says. The compiler's own
/// vectors: every machine of ours has instructions for them.
constexpr std::size_t kLanes = 4;
using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = std::int32_t __attribute__((vector_size(4 * kLanes)));

struct Colors {
  Floats r, g, b;
};

Floats all(float value) noexcept { return Floats{} + value; }
Floats cut(Floats x) noexcept {
  return __builtin_convertvector(__builtin_convertvector(x, Ints), Floats);
}
Floats larger(Floats a, Floats b) noexcept { return a > b ? a : b; }
Floats smaller(Floats a, Floats b) noexcept { return a > b ? b : a; }

/// Of a sample 0 .. 1; 0.001 less than 256, as torchvision.
Floats to_sample(Floats value) noexcept {
  return cut(smaller(larger(value, all(0)), all(1)) * (255.0F + 1.0F - 1e-3F));
}

/// 0 .. 1 of a turn from red over green. \pre range is 0 only where all channels are equal
Floats hue_of(const Colors& color, Floats high, Floats range) noexcept {
  const Floats divisor = range == all(0) ? all(1) : range;
  const Floats rc = (high - color.r) / divisor, gc = (high - color.g) / divisor,
               bc = (high - color.b) / divisor;
  const Floats from_green = rc + 2.0F - bc, from_blue = gc + 4.0F - rc, from_red = bc - gc;
  const Floats other = high == color.g ? from_green : from_blue;
  const Floats turns = (high == color.r ? from_red : other) * (1.0F / 6) + 1.0F;
  return turns >= all(1) ? turns - 1.0F : turns;
}

Colors from_hsv(Floats hue, Floats saturation, Floats value) noexcept {
  const Floats sixths = hue * 6.0F;
  const Floats whole = cut(sixths);
  const Floats product = saturation * (sixths - whole);
  const Floats v = to_sample(value), p = to_sample((1.0F - saturation) * value);
  const Floats q = to_sample((1.0F - product) * value);
  const Floats t = to_sample((product + (1.0F - saturation)) * value);
  // Sectors 0 .. 5 are v t p, q v p, p v t, p q v, t p v, v p q; 6 is 0 again.
  const Ints in0 = (whole == all(0)) | (whole == all(6)), in1 = whole == all(1),
             in2 = whole == all(2), in3 = whole == all(3), in4 = whole == all(4),
             in5 = whole == all(5);
  const Floats red = in1 ? q : (in4 ? t : p), green = in0 ? t : (in3 ? q : p),
               blue = in2 ? t : (in5 ? q : p);
  return {(in0 | in5) ? v : red, (in1 | in2) ? v : green, (in3 | in4) ? v : blue};
}

Colors turn_colors(const Colors& samples, float by, float) noexcept {
  const Colors color = {samples.r / 255.0F, samples.g / 255.0F, samples.b / 255.0F};
  const Floats high = larger(larger(color.r, color.g), color.b);
  const Floats range = high - smaller(smaller(color.r, color.g), color.b);
  Floats hue = hue_of(color, high, range) + by;
  hue = hue < all(0) ? hue + 1.0F : hue;
  hue = hue >= all(1) ? hue - 1.0F : hue;
  return from_hsv(hue, range / (high == all(0) ? all(1) : high), high);
}

Colors saturate(const Colors& color, float by, float rest) noexcept {
  const Floats grey = cut(color.r * 0.2989F + color.g * 0.587F + color.b * 0.114F) * rest;
  const auto blended = [&](Floats x) { return smaller(larger(x * by + grey, all(0)), all(255)); };
  return {blended(color.r), blended(color.g), blended(color.b)};
}

using Bytes = std::uint8_t __attribute__((vector_size(kLanes)));

/// Pixels at a time, their channels one after the other.
constexpr std::size_t kBlock = 256;
struct Planes {
  std::uint8_t samples[3][kBlock];
};

Floats load(const std::uint8_t* samples) noexcept {
  Bytes bytes;
  std::memcpy(&bytes, samples, sizeof(bytes));
  return __builtin_convertvector(__builtin_convertvector(bytes, Ints), Floats);
}

void store(Floats values, std::uint8_t* samples) noexcept {
  const Bytes bytes = __builtin_convertvector(__builtin_convertvector(values, Ints), Bytes);
  std::memcpy(samples, &bytes, sizeof(bytes));
}

void split(const std::uint8_t* pixels, std::size_t step, std::size_t count, Planes& out) noexcept {
  if (step == 3) {
    std::uint8_t* const planes[] = {out.samples[0], out.samples[1], out.samples[2]};
    return pixel_conversions().split(pixels, count, planes);
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t c = 0; c < 3; ++c) out.samples[c][i] = pixels[i * step + c];
  }
}

template <auto kChange>
void change_colors(const Canvas& canvas, float by, float rest) noexcept {
  if (canvas.channels == 1) return;
  const std::size_t step = canvas.channels;
  Planes planes{};
  auto& [r, g, b] = planes.samples;
  for (std::size_t at = 0; at < canvas.pixel_count(); at += kBlock) {
    const std::size_t count = std::min(kBlock, canvas.pixel_count() - at);
    std::uint8_t* pixels = canvas.pixels + at * step;
    split(pixels, step, count, planes);
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Colors colors = kChange({load(r + i), load(g + i), load(b + i)}, by, rest);
      store(colors.r, r + i);
      store(colors.g, g + i);
      store(colors.b, b + i);
    }
    for (std::size_t i = 0; i < count; ++i, pixels += step) {
      pixels[0] = r[i];
      pixels[1] = g[i];
      pixels[2] = b[i];
    }
  }
}

}  // namespace

void adjust_saturation(const Canvas& canvas, double factor) noexcept {
  change_colors<saturate>(canvas, static_cast<float>(factor), static_cast<float>(1.0 - factor));
}

void adjust_hue(const Canvas& canvas, double turn) noexcept {
  change_colors<turn_colors>(canvas, static_cast<float>(turn), 0);
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
        const int rounded = (2 * sum + 13) / 26;
        const auto blurred = static_cast<float>(rounded), sample = static_cast<float>(*p);
        const float value = sample + rest * (blurred - sample);
        canvas.pixels[at] = static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
      }
    }
  }
}

}  // namespace headrace::detail
