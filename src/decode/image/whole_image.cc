#include "decode/image/whole_image.h"

#include <algorithm>

#include "decode/image/color.h"
#include "decode/image/scratch.h"

namespace headrace::detail {
namespace {

constexpr std::uint32_t kRowsAtOnce = 8;

struct Pixel {
  std::uint8_t r, g, b, a;
};

Pixel load(PixelForm form, const std::uint8_t* in) noexcept {
  switch (form) {
    case PixelForm::kGrey:
      return {in[0], in[0], in[0], 255};
    case PixelForm::kGreyAlpha:
      return {in[0], in[0], in[0], in[1]};
    case PixelForm::kColor:
      return {in[0], in[1], in[2], 255};
    case PixelForm::kColorAlpha:
    case PixelForm::kCmyk:
      break;
  }
  return {in[0], in[1], in[2], in[3]};
}

void convert_cmyk(PixelMode mode, const std::uint8_t* in, std::uint32_t count,
                  std::uint8_t* out) noexcept {
  for (std::uint32_t i = 0; i < count; ++i, in += 4, out += channel_count(mode)) {
    std::uint8_t pixel[4];
    for (int c = 0; c < 4; ++c) pixel[c] = static_cast<std::uint8_t>(255 - in[c]);
    inverted_cmyk_to(mode, 1, pixel);
    std::copy_n(pixel, channel_count(mode), out);
  }
}

}  // namespace

void convert_pixels(PixelForm from, PixelMode mode, const std::uint8_t* in, std::uint32_t count,
                    std::uint8_t* out) noexcept {
  if (from == PixelForm::kCmyk) return convert_cmyk(mode, in, count, out);
  const bool is_grey = from == PixelForm::kGrey || from == PixelForm::kGreyAlpha;
  const std::uint32_t step = channel_count(from);
  for (std::uint32_t i = 0; i < count; ++i, in += step) {
    const Pixel pixel = load(from, in);
    if (mode == PixelMode::kGrey) {
      *out++ = is_grey ? pixel.r : luma(pixel.r, pixel.g, pixel.b);
      continue;
    }
    *out++ = pixel.r;
    *out++ = pixel.g;
    *out++ = pixel.b;
    if (mode == PixelMode::kColorAlpha) *out++ = pixel.a;
  }
}

Status give_region(const Rows& rows, PixelForm form, const CodecRequest& request, RowSink& sink) {
  const Rect& region = request.region;
  const std::size_t stride = std::size_t{region.width} * channel_count(request.mode);
  std::uint8_t* out = thread_scratch().take(ScratchUse::kRows, stride * kRowsAtOnce + kRowPadding);
  if (out == nullptr) return {Code::kExhausted, "no memory for the rows of an image"};
  for (std::uint32_t y = 0; y < region.height; y += kRowsAtOnce) {
    const std::uint32_t count = std::min(kRowsAtOnce, region.height - y);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint8_t* from =
          rows.row(region.y + y + i) + std::size_t{region.x} * channel_count(form);
      convert_pixels(form, request.mode, from, region.width, out + i * stride);
    }
    sink.take({out, stride, count});
  }
  return {};
}

}  // namespace headrace::detail
