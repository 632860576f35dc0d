#include "decode/image/resize.h"

#include <algorithm>

#include "decode/image/resize_simd.h"

namespace headrace::detail {
namespace {

std::uint8_t narrow(std::int32_t sum, int bits) noexcept {
  return static_cast<std::uint8_t>(std::clamp(sum >> bits, 0, 255));
}

void across_row(const ResizeTable& table, std::uint32_t channels, const std::uint8_t* in,
                std::uint8_t* out) noexcept {
  const auto count = static_cast<std::uint32_t>(table.first.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int16_t* weights = table.weights_of(i);
    const std::uint8_t* from = in + std::size_t{table.first[i]} * channels;
    for (std::uint32_t c = 0; c < channels; ++c) {
      std::int32_t sum = 1 << (table.precision_bits - 1);
      for (std::uint32_t t = 0; t < table.taps; ++t) sum += weights[t] * from[t * channels + c];
      out[std::size_t{i} * channels + c] = narrow(sum, table.precision_bits);
    }
  }
}

void scalar_across(const ResizeTable& table, std::uint32_t channels, const Rows& rows,
                   std::uint8_t* out, std::size_t out_stride) {
  for (std::uint32_t y = 0; y < rows.count; ++y)
    across_row(table, channels, rows.row(y), out + y * out_stride);
}

void scalar_down(const ResizeTable& table, std::uint32_t i, const Rows& rows,
                 std::size_t count_bytes, std::uint8_t* out) {
  const std::int16_t* weights = table.weights_of(i);
  for (std::size_t b = 0; b < count_bytes; ++b) {
    std::int32_t sum = 1 << (table.precision_bits - 1);
    for (std::uint32_t t = 0; t < table.taps; ++t) sum += weights[t] * rows.row(t)[b];
    out[b] = narrow(sum, table.precision_bits);
  }
}

}  // namespace

const ResizePasses kScalarResize = {scalar_across, scalar_down};

const ResizePasses& resize_passes() noexcept {
  static const ResizePasses& passes = simd_resize() != nullptr ? *simd_resize() : kScalarResize;
  return passes;
}

}  // namespace headrace::detail
