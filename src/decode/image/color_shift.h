#pragma once
/// \file
/// Changes of colour that look at all channels of a pixel, or at its neighbours. The maths is that
/// of torchvision's functions for tensors of uint8, in float32. Grey images stay, but for
/// sharpness.
///
/// Threads: functions; a canvas has one owner.
#include "decode/image/canvas.h"

namespace headrace::detail {

void adjust_saturation(const Canvas& canvas, double factor) noexcept;
/// `turn` is -0.5 .. 0.5 of the circle of colours.
void adjust_hue(const Canvas& canvas, double turn) noexcept;
/// `copy` holds canvas.bytes() bytes.
void adjust_sharpness(const Canvas& canvas, double factor, std::uint8_t* copy) noexcept;

}  // namespace headrace::detail
