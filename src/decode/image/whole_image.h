#pragma once
/// \file
/// Images that a codec gives as a whole, in channels of its own: their region, in the channels that
/// were asked for, to a sink.
///
/// Threads: functions.
#include "decode/image/image_header.h"
#include "headrace/status.h"

namespace headrace::detail {

/// What the samples of a pixel mean.
enum class PixelForm : std::uint8_t { kGrey, kGreyAlpha, kColor, kColorAlpha, kCmyk };
constexpr std::uint32_t channel_count(PixelForm form) noexcept {
  constexpr std::uint32_t kCounts[] = {1, 2, 3, 4, 4};
  return kCounts[static_cast<std::size_t>(form)];
}

/// `count` pixels to the channels of `mode`, as Pillow's convert(): alpha is dropped, not
/// composited.
void convert_pixels(PixelForm from, PixelMode mode, const std::uint8_t* in, std::uint32_t count,
                    std::uint8_t* out) noexcept;

/// Gives the request's region of an image whose row 0 is `rows.data`. Takes the thread's scratch
/// rows. Errors: kExhausted.
Status give_region(const Rows& rows, PixelForm form, const CodecRequest& request, RowSink& sink);

}  // namespace headrace::detail
