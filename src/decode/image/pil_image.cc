#include "decode/image/pil_image.h"

#include <string>
#include <string_view>

#include "base/endian.h"
#include "decode/image/scratch.h"
#include "decode/image/whole_image.h"

namespace headrace::detail {
namespace {

constexpr std::size_t kHeaderBytes = 12;

struct Mode {
  std::string_view name;
  PixelForm form;
  bool is_bits;  ///< 8 pixels a byte, the first in the highest bit; rows begin at whole bytes.
};
constexpr Mode kModes[] = {{"RGB", PixelForm::kColor, false},
                           {"L", PixelForm::kGrey, false},
                           {"RGBA", PixelForm::kColorAlpha, false},
                           {"RGBX", PixelForm::kColorAlpha, false},
                           {"LA", PixelForm::kGreyAlpha, false},
                           {"CMYK", PixelForm::kCmyk, false},
                           {"1", PixelForm::kGrey, true}};

struct PilImage {
  ImageSize size;
  Mode mode;
  std::size_t row_bytes = 0;
  std::span<const std::byte> pixels;
};

Result<Mode> find_mode(std::span<const std::byte> name) {
  const std::string_view text(reinterpret_cast<const char*>(name.data()), name.size());
  for (const Mode& mode : kModes) {
    if (mode.name == text) return mode;
  }
  return Status(Code::kUnsupported, "pil: mode " + std::string(text.substr(0, 8)) +
                                        " is not decoded; only 1, L, LA, RGB, RGBA, RGBX and CMYK");
}

Result<PilImage> parse(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes)
    return Status(Code::kCorrupt, "pil: it ends inside of its header");
  PilImage image;
  image.size.width = load_le<std::uint32_t>(bytes.data());
  image.size.height = load_le<std::uint32_t>(bytes.data() + 4);
  const std::size_t mode_bytes = load_le<std::uint32_t>(bytes.data() + 8);
  if (mode_bytes > bytes.size() - kHeaderBytes)
    return Status(Code::kCorrupt, "pil: it ends inside of its mode");
  HEADRACE_TRY_ASSIGN(image.mode, find_mode(bytes.subspan(kHeaderBytes, mode_bytes)));
  image.pixels = bytes.subspan(kHeaderBytes + mode_bytes);
  image.row_bytes = image.mode.is_bits
                        ? (std::size_t{image.size.width} + 7) / 8
                        : std::size_t{image.size.width} * channel_count(image.mode.form);
  // Each factor is below 2^34 and 2^32: no product of them is lost in a comparison by division.
  const bool fits = image.row_bytes == 0
                        ? image.pixels.empty()
                        : image.pixels.size() % image.row_bytes == 0 &&
                              image.pixels.size() / image.row_bytes == image.size.height;
  if (!fits) return Status(Code::kCorrupt, "pil: its pixels are not as many as its size says");
  return image;
}

/// Bits to bytes of 0 and 255.
void unpack(const PilImage& image, std::uint8_t* out) noexcept {
  for (std::size_t y = 0; y < image.size.height; ++y) {
    for (std::size_t x = 0; x < image.size.width; ++x) {
      const auto byte = std::to_integer<unsigned>(image.pixels[y * image.row_bytes + x / 8]);
      *out++ = (byte >> (7 - x % 8) & 1) != 0 ? 255 : 0;
    }
  }
}

}  // namespace

Result<ImageHeader> parse_pil_header(std::span<const std::byte> bytes) {
  HEADRACE_TRY_ASSIGN(const PilImage image, parse(bytes));
  ImageHeader header{.kind = ImageKind::kPil, .size = image.size};
  header.whole_channels = image.mode.is_bits ? 1 : 0;
  return header;
}

Status decode_pil(std::span<const std::byte> bytes, const ImageHeader&, const CodecRequest& request,
                  RowSink& sink) {
  HEADRACE_TRY_ASSIGN(const PilImage image, parse(bytes));
  const auto* pixels = reinterpret_cast<const std::uint8_t*>(image.pixels.data());
  if (!image.mode.is_bits)
    return give_region({pixels, image.row_bytes, image.size.height}, image.mode.form, request,
                       sink);
  const std::size_t count = std::size_t{image.size.width} * image.size.height;
  std::uint8_t* unpacked = thread_scratch().take(ScratchUse::kWhole, count);
  if (unpacked == nullptr) return {Code::kExhausted, "pil: no memory for its pixels"};
  unpack(image, unpacked);
  return give_region({unpacked, image.size.width, image.size.height}, image.mode.form, request,
                     sink);
}

}  // namespace headrace::detail
