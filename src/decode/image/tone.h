#pragma once
/// \file
/// Changes of tone: each sample becomes another by a table. The maths is that of torchvision's
/// functions for tensors of uint8, in float32.
///
/// Threads: functions; a canvas has one owner.
#include "decode/image/canvas.h"

namespace headrace::detail {

void adjust_brightness(const Canvas& canvas, double factor) noexcept;
/// Away from, or towards, the mean of the image's luma.
void adjust_contrast(const Canvas& canvas, double factor) noexcept;
/// Keeps so many of the upper bits.
void posterize(const Canvas& canvas, int bits) noexcept;
/// Inverts what is at least the threshold.
void solarize(const Canvas& canvas, double threshold) noexcept;
/// Each channel to the whole range.
void stretch_contrast(const Canvas& canvas) noexcept;
/// Each channel so that its values are equally frequent.
void equalize(const Canvas& canvas) noexcept;

/// Luma as torchvision's rgb_to_grayscale, rounded down.
inline float floor_luma(const std::uint8_t* rgb) noexcept {
  const float luma = static_cast<float>(rgb[0]) * 0.2989F + static_cast<float>(rgb[1]) * 0.587F +
                     static_cast<float>(rgb[2]) * 0.114F;
  return static_cast<float>(static_cast<int>(luma));
}

/// Between `a` (where the factor is 1) and `b` (where it is 0), or beyond `a`.
inline std::uint8_t blend(float a, float b, float factor, float rest) noexcept {
  const float value = a * factor + b * rest;
  return static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

}  // namespace headrace::detail
