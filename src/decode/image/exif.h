#pragma once
/// \file
/// The orientation in EXIF data. Pure.
#include <cstddef>
#include <span>

#include "decode/image/image_header.h"

namespace headrace::detail {

/// Of a TIFF structure, as it stands behind "Exif\0\0" in a JPEG, in a PNG's eXIf, in a WebP's
/// EXIF. 1 where there is none, or none that makes sense: a photograph is not lost for its EXIF.
Orientation exif_orientation(std::span<const std::byte> tiff) noexcept;

}  // namespace headrace::detail
