#pragma once
/// \file
/// Images by what their first bytes say they are: one header and one way to decode for all codecs.
///
/// Threads: functions.
#include <span>

#include "decode/image/image_header.h"
#include "headrace/status.h"

namespace headrace::detail {

/// `is_pil`: the bytes are MDS's `pil`, which has no magic. Errors: kCorrupt, kUnsupported.
Result<ImageHeader> parse_image_header(std::span<const std::byte> bytes, bool is_pil);

/// Gives the rows of a region, as they are stored (before the orientation), in request.mode's
/// channels. \pre `header` is parse_image_header()'s of the same bytes. Errors: kCorrupt,
/// kUnsupported, kExhausted.
Status decode_rows(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink);

}  // namespace headrace::detail
