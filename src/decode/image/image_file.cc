#include "decode/image/image_file.h"

#include "decode/image/codecs.h"
#include "decode/image/pil_image.h"

namespace headrace::detail {
namespace {

/// What there is to know of a codec. A new one is a row of kCodecs.
struct Codec {
  ImageKind kind;
  bool (*looks_like)(std::span<const std::byte> bytes) noexcept;
  Result<ImageHeader> (*parse)(std::span<const std::byte> bytes);
  Status (*decode)(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink);
};

constexpr Codec kCodecs[] = {
    {ImageKind::kJpeg, looks_like_jpeg, parse_jpeg_header, decode_jpeg},
    {ImageKind::kPng, looks_like_png, parse_png_header, decode_png},
    {ImageKind::kWebp, looks_like_webp, parse_webp_header, decode_webp},
    {ImageKind::kGif, looks_like_gif, parse_gif_header, decode_gif},
    {ImageKind::kTiff, looks_like_tiff, parse_tiff_header, decode_tiff},
};

}  // namespace

Result<ImageHeader> parse_image_header(std::span<const std::byte> bytes, bool is_pil) {
  if (is_pil) return parse_pil_header(bytes);
  for (const Codec& codec : kCodecs) {
    if (codec.looks_like(bytes)) return codec.parse(bytes);
  }
  return Status(Code::kCorrupt, bytes.empty()
                                    ? "the value is empty: no image"
                                    : "no JPEG, PNG, WebP, GIF or TIFF by its first bytes");
}

Status decode_rows(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink) {
  if (header.kind == ImageKind::kPil) return decode_pil(bytes, header, request, sink);
  for (const Codec& codec : kCodecs) {
    if (codec.kind == header.kind) return codec.decode(bytes, header, request, sink);
  }
  return {Code::kInternal, "no codec for a kind of image"};
}

}  // namespace headrace::detail
