#pragma once
/// \file
/// What an image file says of itself at its beginning. Pure; bounded by what it is given.
///
/// Threads: functions.
#include <cstdint>
#include <optional>
#include <span>

#include "decode/image/rows.h"

namespace headrace::detail {

enum class ImageKind : std::uint8_t { kJpeg, kPng, kWebp, kGif, kTiff, kPil };

/// How stored pixels lie: EXIF's numbers, 1 .. 8. From 5 on, rows are columns.
using Orientation = std::uint8_t;
constexpr bool is_transposed(Orientation orientation) noexcept { return orientation >= 5; }

struct ImageHeader {
  ImageKind kind = ImageKind::kJpeg;
  ImageSize size;  ///< As stored, before the orientation.
  Orientation orientation = 1;
  /// What the codec allocates itself, at most, to give all rows at full size.
  std::uint64_t codec_bytes = 0;
  /// The codec gives a whole image, of so many channels (0: it gives rows as it makes them).
  std::uint32_t whole_channels = 0;
};

/// Which part of an image a codec gives. `region` counts pixels of the image at `eighths` / 8 of
/// its size, rounded up; not empty, inside of it. Other codecs than JPEG's take 8 only.
struct CodecRequest {
  Rect region;
  std::uint32_t eighths = 8;
  PixelMode mode = PixelMode::kColor;
  bool allows_truncated = false;
};

constexpr std::uint32_t scaled_length(std::uint32_t length, std::uint32_t eighths) noexcept {
  return static_cast<std::uint32_t>((std::uint64_t{length} * eighths + 7) / 8);
}

}  // namespace headrace::detail
