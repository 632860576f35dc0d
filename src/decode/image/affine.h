#pragma once
/// \file
/// Affine: shears, shifts and turns of a whole canvas, as torchvision's affine() and rotate(): what
/// comes from outside is 0.
///
/// Threads: functions; a canvas has one owner.
#include "decode/image/canvas.h"

namespace headrace::detail {

/// Where a pixel comes from, in pixels from the middle of the image: (a x + b y + c, d x + e y +
/// f).
struct Affine {
  double a = 1, b = 0, c = 0;
  double d = 0, e = 1, f = 0;
};

/// Each row moves by `slope` pixels more than the one above; row -0.5 stays.
Affine shear_across(ImageSize size, double slope) noexcept;
Affine shear_down(ImageSize size, double slope) noexcept;
/// Against the clock.
Affine rotation(double degrees) noexcept;

/// `copy` holds canvas.bytes() bytes.
void transform(const Canvas& canvas, const Affine& from, bool is_bilinear,
               std::uint8_t* copy) noexcept;

}  // namespace headrace::detail
