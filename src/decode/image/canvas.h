#pragma once
/// \file
/// Canvas: the pixels that augmentations change, 8 bits, channels side by side.
///
/// Threads: one owner.
#include <cstddef>
#include <cstdint>

#include "headrace/decode.h"

namespace headrace::detail {

struct Canvas {
  std::uint8_t* pixels = nullptr;
  ImageSize size;
  std::uint32_t channels = 3;
  std::size_t pixel_count() const noexcept { return std::size_t{size.height} * size.width; }
  std::size_t bytes() const noexcept { return pixel_count() * channels; }
  /// Channels that have colour: not alpha.
  std::uint32_t color_count() const noexcept { return channels == 1 ? 1 : 3; }
};

}  // namespace headrace::detail
