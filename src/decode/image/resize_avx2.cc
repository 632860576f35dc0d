// AVX2. Across: two rows lie side by side in the halves of a vector; a shuffle puts two
// neighbouring pixels' samples of one channel next to each other, and one multiply-add by a pair of
// weights makes 32-bit sums of them. Down: the same with two rows' samples next to each other.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "base/cpu_features.h"
#include "decode/image/resize_simd.h"

#define HEADRACE_AVX2 __attribute__((target("avx2")))

namespace headrace::detail {
namespace {

std::int32_t weight_pair(const std::int16_t* weights) noexcept {
  std::int32_t pair = 0;
  std::memcpy(&pair, weights, sizeof(pair));
  return pair;
}

/// Pixels 0 and 1 of 3 (or 4) channels as 16-bit words r0 r1 g0 g1 b0 b1 (a0 a1), in both halves;
/// pixels 2 and 3 with `at` 2.
HEADRACE_AVX2 inline __m256i pair_shuffle(int channels, int at) noexcept {
  alignas(16) std::int8_t mask[16];
  for (int c = 0; c < 4; ++c) {
    const bool is_there = c < channels;
    for (int p = 0; p < 2; ++p) {
      mask[4 * c + 2 * p] =
          is_there ? static_cast<std::int8_t>((at + p) * channels + c) : std::int8_t{-128};
      mask[4 * c + 2 * p + 1] = -128;
    }
  }
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(mask)));
}

HEADRACE_AVX2 inline __m256i load_two(const std::uint8_t* a, const std::uint8_t* b) noexcept {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a))),
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)), 1);
}

HEADRACE_AVX2 inline __m256i add_products(__m256i sum, __m256i samples,
                                          std::int32_t pair) noexcept {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(samples, _mm256_set1_epi32(pair)));
}

/// The 32-bit sums of two pixels to bytes 0 .. 3 of each half.
HEADRACE_AVX2 inline __m256i narrow(__m256i sum, __m128i bits) noexcept {
  const __m256i words = _mm256_packs_epi32(_mm256_sra_epi32(sum, bits), _mm256_setzero_si256());
  return _mm256_packus_epi16(words, words);
}

HEADRACE_AVX2 inline void store_two(__m256i bytes, std::uint8_t* a, std::uint8_t* b) noexcept {
  const int first = _mm256_extract_epi32(bytes, 0);
  const int second = _mm256_extract_epi32(bytes, 4);
  std::memcpy(a, &first, 4);
  std::memcpy(b, &second, 4);
}

/// Four rows; those beyond the last are the last again.
struct FourRows {
  const std::uint8_t* in[4];
  std::uint8_t* out[4];
};

template <int kChannels>
HEADRACE_AVX2 void across_four(const ResizeTable& table, const FourRows& rows) noexcept {
  const __m256i low = pair_shuffle(kChannels, 0), high = pair_shuffle(kChannels, 2);
  const __m256i half = _mm256_set1_epi32(1 << (table.precision_bits - 1));
  const __m128i bits = _mm_cvtsi32_si128(table.precision_bits);
  const std::size_t count = table.first.size();
  const std::uint32_t taps = table.taps;
  const std::int16_t* weights = table.weights.data();
  const std::uint32_t* firsts = table.first.data();
  // Copies: the compiler must think that a store of bytes changes what `rows` points to.
  const std::uint8_t *in0 = rows.in[0], *in1 = rows.in[1], *in2 = rows.in[2], *in3 = rows.in[3];
  std::uint8_t *out0 = rows.out[0], *out1 = rows.out[1], *out2 = rows.out[2], *out3 = rows.out[3];
  for (std::size_t i = 0; i < count; ++i, weights += taps) {
    std::size_t at = std::size_t{firsts[i]} * kChannels;
    __m256i first = half, second = half;
    std::uint32_t t = 0;
    for (; t + 4 <= taps; t += 4, at += 4 * kChannels) {
      const __m256i a = load_two(in0 + at, in1 + at);
      const __m256i b = load_two(in2 + at, in3 + at);
      const std::int32_t pair = weight_pair(weights + t), next = weight_pair(weights + t + 2);
      first = add_products(first, _mm256_shuffle_epi8(a, low), pair);
      second = add_products(second, _mm256_shuffle_epi8(b, low), pair);
      first = add_products(first, _mm256_shuffle_epi8(a, high), next);
      second = add_products(second, _mm256_shuffle_epi8(b, high), next);
    }
    if (t < taps) {
      const std::int32_t pair = weight_pair(weights + t);
      const __m256i a = load_two(in0 + at, in1 + at);
      const __m256i b = load_two(in2 + at, in3 + at);
      first = add_products(first, _mm256_shuffle_epi8(a, low), pair);
      second = add_products(second, _mm256_shuffle_epi8(b, low), pair);
    }
    store_two(narrow(first, bits), out0 + i * kChannels, out1 + i * kChannels);
    store_two(narrow(second, bits), out2 + i * kChannels, out3 + i * kChannels);
  }
}

void avx2_across(const ResizeTable& table, std::uint32_t channels, const Rows& rows,
                 std::uint8_t* out, std::size_t out_stride) {
  if (channels == 1) return kScalarResize.across(table, channels, rows, out, out_stride);
  for (std::uint32_t y = 0; y < rows.count; y += 4) {
    FourRows four{};
    for (std::uint32_t r = 0; r < 4; ++r) {
      const std::uint32_t at = y + r < rows.count ? y + r : rows.count - 1;
      four.in[r] = rows.row(at);
      four.out[r] = out + at * out_stride;
    }
    channels == 3 ? across_four<3>(table, four) : across_four<4>(table, four);
  }
}

HEADRACE_AVX2 inline __m256i widen(const std::uint8_t* p) noexcept {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

/// 16 bytes of a row of the result.
HEADRACE_AVX2 inline __m128i down_16(const std::uint8_t* in, std::size_t stride,
                                     const std::int16_t* weights, std::uint32_t taps,
                                     int precision_bits) noexcept {
  __m256i low = _mm256_set1_epi32(1 << (precision_bits - 1)), high = low;
  for (std::uint32_t t = 0; t < taps; t += 2, in += 2 * stride) {
    const __m256i a = widen(in), b = widen(in + stride);
    const std::int32_t pair = weight_pair(weights + t);
    low = add_products(low, _mm256_unpacklo_epi16(a, b), pair);
    high = add_products(high, _mm256_unpackhi_epi16(a, b), pair);
  }
  const __m128i bits = _mm_cvtsi32_si128(precision_bits);
  const __m256i words =
      _mm256_packs_epi32(_mm256_sra_epi32(low, bits), _mm256_sra_epi32(high, bits));
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

HEADRACE_AVX2 void avx2_down(const ResizeTable& table, std::uint32_t i, const Rows& rows,
                             std::size_t count_bytes, std::uint8_t* out) {
  if (count_bytes < 16) return kScalarResize.down(table, i, rows, count_bytes, out);
  const std::uint8_t* in = rows.data;
  for (std::size_t b = 0; b < count_bytes; b += 16) {
    // The last 16 bytes overlap those before them.
    const std::size_t at = b + 16 <= count_bytes ? b : count_bytes - 16;
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(out + at),
        down_16(in + at, rows.stride_bytes, table.weights_of(i), table.taps, table.precision_bits));
  }
}

constexpr ResizePasses kAvx2Resize = {avx2_across, avx2_down};

}  // namespace

const ResizePasses* simd_resize() noexcept {
  return has_cpu_feature(CpuFeature::kAvx2) ? &kAvx2Resize : nullptr;
}

}  // namespace headrace::detail
#undef HEADRACE_AVX2
#endif
