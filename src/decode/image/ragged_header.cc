#include "decode/image/ragged_header.h"

#include <algorithm>

#include "base/endian.h"
#include "decode/image/rows.h"

namespace headrace::detail {
namespace {

/// k of the fewest bytes that hold the largest dimension, as MDS's own writer chooses.
unsigned width_code(const std::array<std::uint32_t, 3>& shape) noexcept {
  const std::uint32_t most = std::max({shape[0], shape[1], shape[2]});
  if (most < 1U << 8) return 0;
  return most < 1U << 16 ? 1 : 2;
}

}  // namespace

std::array<std::uint32_t, 3> image_shape(const ImageOptions& options, ImageSize size) noexcept {
  const std::uint32_t channels = channel_count(options.mode);
  if (options.layout == PixelLayout::kChw) return {channels, size.height, size.width};
  return {size.height, size.width, channels};
}

std::uint64_t ragged_header_bytes(const ImageOptions& options, ImageSize size) noexcept {
  return 1 + (std::uint64_t{3} << width_code(image_shape(options, size)));
}

std::span<std::byte> write_ragged_header(const ImageOptions& options, ImageSize size,
                                         std::span<std::byte> out) noexcept {
  const auto shape = image_shape(options, size);
  const unsigned code = width_code(shape);
  out[0] = static_cast<std::byte>(3U << 2 | code);
  std::size_t at = 1;
  for (const std::uint32_t dimension : shape) {
    for (unsigned b = 0; b < 1U << code; ++b) out[at++] = std::byte(dimension >> (8 * b));
  }
  return out.subspan(at);
}

}  // namespace headrace::detail
