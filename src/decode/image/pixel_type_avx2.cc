// AVX2 and F16C. A product and a sum, not fused: the same numbers as without vectors.
#if defined(__x86_64__)
#include <immintrin.h>

#include "base/cpu_features.h"
#include "decode/image/pixel_type.h"

#define HEADRACE_F16C __attribute__((target("avx2,f16c")))

namespace headrace::detail {
namespace {

struct ScaleVectors {
  __m256 factor[3];
  __m256 offset[3];
};

HEADRACE_F16C inline void store_float32(__m256 values, std::byte* out) noexcept {
  _mm256_storeu_ps(reinterpret_cast<float*>(out), values);
}

HEADRACE_F16C inline void store_float16(__m256 values, std::byte* out) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                   _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}

HEADRACE_F16C inline void store_bfloat16(__m256 values, std::byte* out) noexcept {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7FFF)), 16);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(out),
      _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
}

template <PixelType kType>
HEADRACE_F16C inline void store(__m256 values, std::byte* out) noexcept {
  if constexpr (kType == PixelType::kFloat32) store_float32(values, out);
  if constexpr (kType == PixelType::kFloat16) store_float16(values, out);
  if constexpr (kType == PixelType::kBfloat16) store_bfloat16(values, out);
}

template <PixelType kType>
HEADRACE_F16C void convert_as(const SampleScale& scale, const std::uint8_t* in, std::size_t count,
                              std::byte* out) noexcept {
  constexpr std::size_t kBytes = kType == PixelType::kFloat32 ? 4 : 2;
  ScaleVectors vectors;
  for (int i = 0; i < 3; ++i) {
    vectors.factor[i] = _mm256_loadu_ps(scale.factor.data() + 8 * i);
    vectors.offset[i] = _mm256_loadu_ps(scale.offset.data() + 8 * i);
  }
  std::size_t at = 0;
  for (; at + SampleScale::kPeriod <= count; at += SampleScale::kPeriod) {
    for (std::size_t i = 0; i < 3; ++i) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + at + 8 * i));
      const __m256 samples = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
      store<kType>(_mm256_add_ps(_mm256_mul_ps(samples, vectors.factor[i]), vectors.offset[i]),
                   out + (at + 8 * i) * kBytes);
    }
  }
  kScalarConversions.convert(scale, kType, in + at, count - at, out + at * kBytes);
}

void avx2_convert(const SampleScale& scale, PixelType type, const std::uint8_t* in,
                  std::size_t count, std::byte* out) {
  switch (type) {
    case PixelType::kFloat16:
      return convert_as<PixelType::kFloat16>(scale, in, count, out);
    case PixelType::kBfloat16:
      return convert_as<PixelType::kBfloat16>(scale, in, count, out);
    case PixelType::kFloat32:
      return convert_as<PixelType::kFloat32>(scale, in, count, out);
    case PixelType::kUint8:
      break;
  }
}

/// Which of 16 bytes, beginning with byte 16 * part of 48, are samples of channel c: in order, and
/// from which place of the channel's 16 on.
HEADRACE_F16C __m128i split_mask(int channel, int part) noexcept {
  alignas(16) std::int8_t mask[16];
  for (int i = 0; i < 16; ++i) {
    const int from = 3 * i + channel - 16 * part;
    mask[i] = from >= 0 && from < 16 ? static_cast<std::int8_t>(from) : std::int8_t{-128};
  }
  return _mm_load_si128(reinterpret_cast<const __m128i*>(mask));
}

HEADRACE_F16C void avx2_split(const std::uint8_t* in, std::size_t count,
                              std::uint8_t* const out[3]) {
  __m128i masks[3][3];
  for (int c = 0; c < 3; ++c) {
    for (int part = 0; part < 3; ++part) masks[c][part] = split_mask(c, part);
  }
  std::size_t at = 0;
  for (; at + 16 <= count; at += 16) {
    const auto* from = reinterpret_cast<const __m128i*>(in + 3 * at);
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1),
                  c = _mm_loadu_si128(from + 2);
    for (int i = 0; i < 3; ++i) {
      const __m128i samples = _mm_or_si128(
          _mm_or_si128(_mm_shuffle_epi8(a, masks[i][0]), _mm_shuffle_epi8(b, masks[i][1])),
          _mm_shuffle_epi8(c, masks[i][2]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out[i] + at), samples);
    }
  }
  std::uint8_t* const rest[3] = {out[0] + at, out[1] + at, out[2] + at};
  kScalarConversions.split(in + 3 * at, count - at, rest);
}

constexpr PixelConversions kAvx2Conversions = {avx2_convert, avx2_split};

}  // namespace

const PixelConversions* simd_conversions() noexcept {
  const bool has_all = has_cpu_feature(CpuFeature::kF16c) && has_cpu_feature(CpuFeature::kAvx2);
  return has_all ? &kAvx2Conversions : nullptr;
}

}  // namespace headrace::detail
#undef HEADRACE_F16C
#endif
