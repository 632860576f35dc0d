#pragma once
/// \file
/// PNG by libpng: 8 bits of what has more, palettes and transparency resolved.
///
/// Threads: functions.
#include <span>

#include "decode/image/image_header.h"
#include "headrace/status.h"

namespace headrace::detail {

bool looks_like_png(std::span<const std::byte> bytes) noexcept;

/// Errors: kCorrupt, kUnsupported.
Result<ImageHeader> parse_png_header(std::span<const std::byte> bytes);

/// Gives the rows of a region. Errors: kCorrupt, kUnsupported, kExhausted.
Status decode_png(std::span<const std::byte> bytes, const ImageHeader& header,
                  const CodecRequest& request, RowSink& sink);

}  // namespace headrace::detail
