#pragma once
/// \file
/// What codecs and the rest of the decoder share: rectangles of pixels, and rows on their way from
/// a codec to where they are resized.
///
/// Threads: values; a sink belongs to one thread.
#include <cstddef>
#include <cstdint>

#include "headrace/decode.h"

namespace headrace::detail {

/// Pixels [x, x + width) of rows [y, y + height).
struct Rect {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  bool operator==(const Rect&) const = default;
};

/// Bytes behind the last row that whoever gives rows lets others read: vectors are loaded whole.
inline constexpr std::size_t kRowPadding = 64;

/// 8-bit samples, channels side by side.
struct Rows {
  const std::uint8_t* data = nullptr;
  std::size_t stride_bytes = 0;
  std::uint32_t count = 0;
  const std::uint8_t* row(std::uint32_t i) const noexcept { return data + i * stride_bytes; }
};

/// Takes the rows of a region, top to bottom, some at a time, as a codec makes them.
class RowSink {
 public:
  virtual ~RowSink() = default;
  /// kRowPadding bytes behind the last row are readable, and hold anything.
  virtual void take(const Rows& rows) noexcept = 0;
};

constexpr std::uint32_t channel_count(PixelMode mode) noexcept {
  switch (mode) {
    case PixelMode::kGrey:
      return 1;
    case PixelMode::kColor:
      return 3;
    case PixelMode::kColorAlpha:
      break;
  }
  return 4;
}

}  // namespace headrace::detail
