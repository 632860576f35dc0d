#pragma once
/// \file
/// MDS's `pil`: width, height and length of the mode as little-endian u32, the mode's name, raw
/// pixels as Pillow's tobytes() gives them.
///
/// Threads: functions.
#include <span>

#include "decode/image/image_header.h"
#include "headrace/status.h"

namespace headrace::detail {

/// Errors: kCorrupt, kUnsupported (a mode other than 1, L, LA, RGB, RGBA, RGBX, CMYK).
Result<ImageHeader> parse_pil_header(std::span<const std::byte> bytes);

/// Gives the rows of a region. Errors: kCorrupt, kUnsupported, kExhausted.
Status decode_pil(std::span<const std::byte> bytes, const ImageHeader& header,
                  const CodecRequest& request, RowSink& sink);

}  // namespace headrace::detail
