#include "decode/image/affine.h"

#include <cmath>
#include <cstring>

#include "decode/image/exact_math.h"

namespace headrace::detail {
namespace {

/// Reads pixels of an image that is 0 outside.
class Reader {
 public:
  Reader(const Canvas& canvas, const std::uint8_t* pixels) noexcept
      : pixels_(pixels),
        width_(canvas.size.width),
        height_(canvas.size.height),
        channels_(canvas.channels) {}

  void nearest(double x, double y, std::uint8_t* out) const noexcept {
    const std::uint8_t* from = at(round_even(x), round_even(y));
    for (std::uint32_t c = 0; c < channels_; ++c) out[c] = from != nullptr ? from[c] : 0;
  }

  void bilinear(double x, double y, std::uint8_t* out) const noexcept {
    const double left = std::floor(x), top = std::floor(y);
    const double right_part = x - left, lower_part = y - top;
    double sums[4] = {};
    for (int corner = 0; corner < 4; ++corner) {
      const int dx = corner & 1, dy = corner >> 1;
      const std::uint8_t* from = at(left + dx, top + dy);
      if (from == nullptr) continue;
      const double part =
          (dx == 1 ? right_part : 1 - right_part) * (dy == 1 ? lower_part : 1 - lower_part);
      for (std::uint32_t c = 0; c < channels_; ++c) sums[c] += part * from[c];
    }
    for (std::uint32_t c = 0; c < channels_; ++c)
      out[c] = static_cast<std::uint8_t>(round_even(sums[c]));
  }

 private:
  /// \pre whole numbers
  const std::uint8_t* at(double x, double y) const noexcept {
    if (!(x >= 0 && x < width_ && y >= 0 && y < height_)) return nullptr;
    return pixels_ + (static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
                      static_cast<std::size_t>(x)) *
                         channels_;
  }
  const std::uint8_t* pixels_;
  double width_;
  double height_;
  std::uint32_t channels_;
};

}  // namespace

Affine shear_across(ImageSize size, double slope) noexcept {
  return {.b = slope, .c = slope * size.height / 2};
}

Affine shear_down(ImageSize size, double slope) noexcept {
  return {.d = slope, .f = slope * size.width / 2};
}

Affine rotation(double degrees) noexcept {
  constexpr double kRadians = 3.14159265358979323846 / 180;
  const double sine = exact_sin(degrees * kRadians), cosine = exact_cos(degrees * kRadians);
  return {.a = cosine, .b = -sine, .d = sine, .e = cosine};
}

void transform(const Canvas& canvas, const Affine& from, bool is_bilinear,
               std::uint8_t* copy) noexcept {
  std::memcpy(copy, canvas.pixels, canvas.bytes());
  const Reader reader(canvas, copy);
  const double middle_x = (canvas.size.width - 1.0) / 2, middle_y = (canvas.size.height - 1.0) / 2;
  std::uint8_t* out = canvas.pixels;
  for (std::uint32_t row = 0; row < canvas.size.height; ++row) {
    const double y = row - middle_y;
    for (std::uint32_t column = 0; column < canvas.size.width; ++column, out += canvas.channels) {
      const double x = column - middle_x;
      const double from_x = from.a * x + from.b * y + from.c + middle_x;
      const double from_y = from.d * x + from.e * y + from.f + middle_y;
      is_bilinear ? reader.bilinear(from_x, from_y, out) : reader.nearest(from_x, from_y, out);
    }
  }
}

}  // namespace headrace::detail
