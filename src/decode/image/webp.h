#pragma once
/// \file
/// WebP by libwebp, lossy and lossless; of an animation the first frame.
///
/// Threads: functions.
#include <span>

#include "decode/image/image_header.h"
#include "headrace/status.h"

namespace headrace::detail {

bool looks_like_webp(std::span<const std::byte> bytes) noexcept;

/// Errors: kCorrupt, kUnsupported.
Result<ImageHeader> parse_webp_header(std::span<const std::byte> bytes);

/// Gives the rows of a region. Errors: kCorrupt, kUnsupported, kExhausted.
Status decode_webp(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink);

}  // namespace headrace::detail
