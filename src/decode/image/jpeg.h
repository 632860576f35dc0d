#pragma once
/// \file
/// JPEG by libjpeg-turbo.
///
/// Threads: functions.
#include <span>

#include "decode/image/image_header.h"
#include "headrace/status.h"

namespace headrace::detail {

bool looks_like_jpeg(std::span<const std::byte> bytes) noexcept;

/// Reads the markers up to the first scan. Errors: kCorrupt, kUnsupported (a process or depth that
/// is not decoded).
Result<ImageHeader> parse_jpeg_header(std::span<const std::byte> bytes);

/// Gives the rows of a region. Decodes no more columns than that takes, and nothing behind its last
/// row: what is broken there is not seen. Errors: kCorrupt, kUnsupported, kExhausted.
Status decode_jpeg(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink);

}  // namespace headrace::detail
