#include "decode/image/webp.h"

#include <webp/decode.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/endian.h"
#include "decode/image/exif.h"
#include "decode/image/scratch.h"
#include "decode/image/whole_image.h"

namespace headrace::detail {
namespace {

bool has_text(std::span<const std::byte> bytes, std::size_t at, std::string_view text) noexcept {
  return bytes.size() >= at + text.size() &&
         std::memcmp(bytes.data() + at, text.data(), text.size()) == 0;
}

const std::uint8_t* data_of(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

/// Of the EXIF chunk, which stands behind the pixels.
Orientation orientation_of(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t kChunkHead = 8;
  if (!has_text(bytes, 12, "VP8X")) return 1;
  for (std::size_t at = 12; at + kChunkHead <= bytes.size();) {
    const std::size_t size = load_le<std::uint32_t>(bytes.data() + at + 4);
    const std::size_t rest = bytes.size() - at - kChunkHead;
    if (has_text(bytes, at, "EXIF")) {
      auto exif = bytes.subspan(at + kChunkHead, std::min(size, rest));
      if (has_text(exif, 0, std::string_view("Exif\0\0", 6))) exif = exif.subspan(6);
      return exif_orientation(exif);
    }
    if (size + (size & 1) > rest) return 1;
    at += kChunkHead + size + (size & 1);
  }
  return 1;
}

}  // namespace

bool looks_like_webp(std::span<const std::byte> bytes) noexcept {
  return has_text(bytes, 0, "RIFF") && has_text(bytes, 8, "WEBP");
}

Result<ImageHeader> parse_webp_header(std::span<const std::byte> bytes) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data_of(bytes), bytes.size(), &features) != VP8_STATUS_OK)
    return Status(Code::kCorrupt, "WebP: its header is cut short or wrong");
  if (features.has_animation != 0)
    return Status(Code::kUnsupported, "WebP: an animation; only still images");
  ImageHeader header{.kind = ImageKind::kWebp, .size = {}};
  header.size = {static_cast<std::uint32_t>(features.height),
                 static_cast<std::uint32_t>(features.width)};
  header.orientation = orientation_of(bytes);
  header.whole_channels = 4;
  // Lossless: the transformed pixels, 4 bytes each, and a cache of a few rows. Lossy: rows of
  // macroblocks; an alpha plane, and what its own lossless coding takes.
  const std::uint64_t pixels = std::uint64_t{header.size.width} * header.size.height;
  header.codec_bytes = pixels * 6 + header.size.width * 256ULL + (1 << 20);
  return header;
}

Status decode_webp(std::span<const std::byte> bytes, const ImageHeader& header,
                   const CodecRequest& request, RowSink& sink) {
  const bool has_alpha = request.mode == PixelMode::kColorAlpha;
  const PixelForm form = has_alpha ? PixelForm::kColorAlpha : PixelForm::kColor;
  const std::size_t stride = std::size_t{header.size.width} * channel_count(form);
  const std::size_t size_bytes = stride * header.size.height;
  std::uint8_t* pixels = thread_scratch().take(ScratchUse::kWhole, size_bytes + kRowPadding);
  if (pixels == nullptr) return {Code::kExhausted, "WebP: no memory for its pixels"};
  if (request.allows_truncated) std::memset(pixels, 128, size_bytes);
  WebPDecoderConfig config;
  WebPInitDecoderConfig(&config);
  config.output.colorspace = has_alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {pixels, static_cast<int>(stride), size_bytes};
  const VP8StatusCode code = WebPDecode(data_of(bytes), bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (code == VP8_STATUS_OUT_OF_MEMORY) return {Code::kExhausted, "WebP: no memory"};
  const bool is_short = code == VP8_STATUS_NOT_ENOUGH_DATA || code == VP8_STATUS_SUSPENDED;
  if (code != VP8_STATUS_OK && !(is_short && request.allows_truncated))
    return {Code::kCorrupt, is_short ? "WebP: it ends early" : "WebP: its pixels are corrupt"};
  return give_region({pixels, stride, header.size.height}, form, request, sink);
}

}  // namespace headrace::detail
