#pragma once
/// \file
/// Colours of one row to those of another mode, as Pillow's convert() makes them.
///
/// Threads: functions.
#include <cstdint>

#include "headrace/decode.h"

namespace headrace::detail {

/// Luma of Rec. 601, as Pillow's convert("L").
constexpr std::uint8_t luma(std::uint32_t r, std::uint32_t g, std::uint32_t b) noexcept {
  return static_cast<std::uint8_t>((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

/// In place: 4 bytes a pixel, cyan magenta yellow black, 255 for none (as JPEGs have it), to
/// `mode`'s channels.
void inverted_cmyk_to(PixelMode mode, std::uint32_t count, std::uint8_t* row) noexcept;

}  // namespace headrace::detail
