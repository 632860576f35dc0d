// An animation is a canvas and frames, each a still image without RIFF's head, which libwebp reads
// as well. The first frame lies somewhere on the canvas; what it does not cover is transparent
// black, as Pillow has it. A frame that ends early is decoded again, by the decoder for what comes
// over a network: the one for whole frames may give up before it has written a row.
#include <webp/decode.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/endian.h"
#include "decode/image/codecs.h"
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

/// The first chunk of that name, as far as it is there; empty: there is none.
std::span<const std::byte> find_chunk(std::span<const std::byte> bytes,
                                      std::string_view name) noexcept {
  constexpr std::size_t kChunkHead = 8;
  for (std::size_t at = 12; at + kChunkHead <= bytes.size();) {
    const std::size_t size = load_le<std::uint32_t>(bytes.data() + at + 4);
    const std::size_t rest = bytes.size() - at - kChunkHead;
    if (has_text(bytes, at, name)) return bytes.subspan(at + kChunkHead, std::min(size, rest));
    if (size + (size & 1) > rest) return {};
    at += kChunkHead + size + (size & 1);
  }
  return {};
}

/// Of the EXIF chunk, which stands behind the pixels.
Orientation orientation_of(std::span<const std::byte> bytes) noexcept {
  if (!has_text(bytes, 12, "VP8X")) return 1;
  auto exif = find_chunk(bytes, "EXIF");
  if (has_text(exif, 0, std::string_view("Exif\0\0", 6))) exif = exif.subspan(6);
  return exif.empty() ? Orientation{1} : exif_orientation(exif);
}

std::uint32_t load_u24(const std::byte* at) noexcept {
  return std::to_integer<std::uint32_t>(at[0]) | std::to_integer<std::uint32_t>(at[1]) << 8 |
         std::to_integer<std::uint32_t>(at[2]) << 16;
}

/// A still image, and where it lies on the canvas.
struct Frame {
  std::span<const std::byte> bytes;
  Rect place;
};

/// Errors: kCorrupt.
Result<Frame> first_frame(std::span<const std::byte> bytes, const ImageHeader& header) {
  constexpr std::size_t kFrameHead = 16;
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data_of(bytes), bytes.size(), &features) != VP8_STATUS_OK)
    return Status(Code::kCorrupt, "WebP: its header is cut short or wrong");
  if (features.has_animation == 0)
    return Frame{bytes, {.width = header.size.width, .height = header.size.height}};
  const auto chunk = find_chunk(bytes, "ANMF");
  if (chunk.size() <= kFrameHead) return Status(Code::kCorrupt, "WebP: an animation without frame");
  const Frame frame{chunk.subspan(kFrameHead),
                    {.x = 2 * load_u24(chunk.data()),
                     .y = 2 * load_u24(chunk.data() + 3),
                     .width = load_u24(chunk.data() + 6) + 1,
                     .height = load_u24(chunk.data() + 9) + 1}};
  const Rect& place = frame.place;
  if (place.x + place.width > header.size.width || place.y + place.height > header.size.height)
    return Status(Code::kCorrupt, "WebP: a frame lies outside of its canvas");
  if (WebPGetFeatures(data_of(frame.bytes), frame.bytes.size(), &features) != VP8_STATUS_OK ||
      features.has_animation != 0 || static_cast<std::uint32_t>(features.width) != place.width ||
      static_cast<std::uint32_t>(features.height) != place.height)
    return Status(Code::kCorrupt, "WebP: a frame is not what its head says");
  return frame;
}

bool is_short(VP8StatusCode code) noexcept {
  return code == VP8_STATUS_NOT_ENOUGH_DATA || code == VP8_STATUS_SUSPENDED;
}

/// The rows of a frame that ends early, as far as it goes; the rest is grey.
VP8StatusCode decode_beginning(const Frame& frame, WebPDecoderConfig& config) {
  const WebPRGBABuffer& out = config.output.u.RGBA;
  const std::size_t channels = config.output.colorspace == MODE_RGBA ? 4 : 3;
  for (std::size_t y = 0; y < frame.place.height; ++y)
    std::memset(out.rgba + y * static_cast<std::size_t>(out.stride), 128,
                frame.place.width * channels);
  WebPIDecoder* decoder = WebPIDecode(data_of(frame.bytes), frame.bytes.size(), &config);
  if (decoder == nullptr) return VP8_STATUS_OUT_OF_MEMORY;
  const VP8StatusCode code = WebPIUpdate(decoder, data_of(frame.bytes), frame.bytes.size());
  WebPIDelete(decoder);
  return code;
}

}  // namespace

bool looks_like_webp(std::span<const std::byte> bytes) noexcept {
  return has_text(bytes, 0, "RIFF") && has_text(bytes, 8, "WEBP");
}

Result<ImageHeader> parse_webp_header(std::span<const std::byte> bytes) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data_of(bytes), bytes.size(), &features) != VP8_STATUS_OK)
    return Status(Code::kCorrupt, "WebP: its header is cut short or wrong");
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
  HEADRACE_TRY_ASSIGN(const Frame frame, first_frame(bytes, header));
  std::uint8_t* pixels = thread_scratch().take(ScratchUse::kWhole, size_bytes + kRowPadding);
  if (pixels == nullptr) return {Code::kExhausted, "WebP: no memory for its pixels"};
  const Rect& place = frame.place;
  if (place.width < header.size.width || place.height < header.size.height)
    std::memset(pixels, 0, size_bytes);
  const std::size_t begin = place.y * stride + std::size_t{place.x} * channel_count(form);
  WebPDecoderConfig config;
  WebPInitDecoderConfig(&config);
  config.output.colorspace = has_alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {
      pixels + begin, static_cast<int>(stride),
      stride * (place.height - 1) + std::size_t{place.width} * channel_count(form)};
  VP8StatusCode code = WebPDecode(data_of(frame.bytes), frame.bytes.size(), &config);
  if (is_short(code) && request.allows_truncated) code = decode_beginning(frame, config);
  WebPFreeDecBuffer(&config.output);
  if (code == VP8_STATUS_OUT_OF_MEMORY) return {Code::kExhausted, "WebP: no memory"};
  if (code != VP8_STATUS_OK && !(is_short(code) && request.allows_truncated))
    return {Code::kCorrupt,
            is_short(code) ? "WebP: it ends early" : "WebP: its pixels are corrupt"};
  return give_region({pixels, stride, header.size.height}, form, request, sink);
}

}  // namespace headrace::detail
