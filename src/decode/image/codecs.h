#pragma once
/// \file
/// The codecs of images: what each says of the first bytes, of a header, and how it gives the rows
/// of a region. image_file.cc has the table of them.
///
/// parse_*_header(): errors kCorrupt, kUnsupported. decode_*(): `header` is that of the same bytes;
/// errors kCorrupt, kUnsupported, kExhausted. Whether a file is corrupt does not depend on the
/// region: what a random crop shows must not decide which samples are bad. So the pixels behind it
/// are gone over as well, but where files may end early.
///
/// Threads: functions.
#include <span>

#include "decode/image/image_header.h"
#include "headrace/status.h"

namespace headrace::detail {

/// JPEG by libjpeg-turbo. The header is the markers up to the first scan; kUnsupported: a process
/// or depth that is not decoded. Makes pixels of no more columns and rows than the region takes.
bool looks_like_jpeg(std::span<const std::byte> bytes) noexcept;
Result<ImageHeader> parse_jpeg_header(std::span<const std::byte> bytes);
Status decode_jpeg(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink);

/// PNG by libpng: 8 bits of what has more, palettes and transparency resolved.
bool looks_like_png(std::span<const std::byte> bytes) noexcept;
Result<ImageHeader> parse_png_header(std::span<const std::byte> bytes);
Status decode_png(std::span<const std::byte> bytes, const ImageHeader& header,
                  const CodecRequest& request, RowSink& sink);

/// WebP by libwebp, lossy and lossless; of an animation the first frame.
bool looks_like_webp(std::span<const std::byte> bytes) noexcept;
Result<ImageHeader> parse_webp_header(std::span<const std::byte> bytes);
Status decode_webp(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink);

/// GIF by giflib: the first frame, on its screen.
bool looks_like_gif(std::span<const std::byte> bytes) noexcept;
Result<ImageHeader> parse_gif_header(std::span<const std::byte> bytes);
Status decode_gif(std::span<const std::byte> bytes, const ImageHeader& header,
                  const CodecRequest& request, RowSink& sink);

/// TIFF by libtiff, from memory: the first page.
bool looks_like_tiff(std::span<const std::byte> bytes) noexcept;
Result<ImageHeader> parse_tiff_header(std::span<const std::byte> bytes);
Status decode_tiff(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink);

}  // namespace headrace::detail
