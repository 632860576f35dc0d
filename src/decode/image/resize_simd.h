#pragma once
/// \file
/// Resizes in vectors.
#include "decode/image/resize.h"

namespace headrace::detail {

/// nullptr where this machine has none of the instructions that there is code for.
const ResizePasses* simd_resize() noexcept;

}  // namespace headrace::detail
