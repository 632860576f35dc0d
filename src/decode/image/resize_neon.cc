// NEON, and machines without vectors of ours. Only the pass down: it is plain sums of rows; across,
// the compiler does as well.
#if !defined(__x86_64__)
#include "decode/image/resize_simd.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>

namespace headrace::detail {
namespace {

/// 8 bytes of a row of the result.
uint8x8_t down_8(const std::uint8_t* in, std::size_t stride, const std::int16_t* weights,
                 std::uint32_t taps, int precision_bits) noexcept {
  int32x4_t low = vdupq_n_s32(1 << (precision_bits - 1)), high = low;
  for (std::uint32_t t = 0; t < taps; ++t, in += stride) {
    const int16x8_t samples = vreinterpretq_s16_u16(vmovl_u8(vld1_u8(in)));
    low = vmlal_n_s16(low, vget_low_s16(samples), weights[t]);
    high = vmlal_n_s16(high, vget_high_s16(samples), weights[t]);
  }
  const int32x4_t bits = vdupq_n_s32(-precision_bits);
  return vqmovun_s16(
      vcombine_s16(vqmovn_s32(vshlq_s32(low, bits)), vqmovn_s32(vshlq_s32(high, bits))));
}

void neon_down(const ResizeTable& table, std::uint32_t i, const Rows& rows, std::size_t count_bytes,
               std::uint8_t* out) {
  if (count_bytes < 8) return kScalarResize.down(table, i, rows, count_bytes, out);
  const std::uint8_t* in = rows.data;
  for (std::size_t b = 0; b < count_bytes; b += 8) {
    // The last 8 bytes overlap those before them.
    const std::size_t at = b + 8 <= count_bytes ? b : count_bytes - 8;
    vst1_u8(out + at, down_8(in + at, rows.stride_bytes, table.weights_of(i), table.taps,
                             table.precision_bits));
  }
}

}  // namespace

const ResizePasses* simd_resize() noexcept {
  static const ResizePasses passes = {kScalarResize.across, neon_down};
  return &passes;
}

}  // namespace headrace::detail
#else
namespace headrace::detail {
const ResizePasses* simd_resize() noexcept { return nullptr; }
}  // namespace headrace::detail
#endif
#endif
