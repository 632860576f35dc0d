#include "order/mosaic/shifted_span.h"

namespace headrace::mosaic {
namespace {

template <class T>
void place_from(std::size_t begin, const ShiftedSpan& span, const ItemLayout& layout,
                std::uint64_t index, std::span<const T> samples, PlacedSamples& placed) noexcept {
  for (std::size_t i = begin; i < samples.size(); ++i) {
    const std::uint64_t at = layout.fixed(span.position(index + i, placed.draws[i]));
    placed.items[i] = layout.item(at, samples[i]);
    placed.buckets[i] = layout.bucket(at);
  }
}

#if defined(__x86_64__)
HEADRACE_WIDE_INLINE __m512i load_ids(const std::uint32_t* samples) noexcept {
  return _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(samples)));
}
HEADRACE_WIDE_INLINE __m512i load_ids(const std::uint64_t* samples) noexcept {
  return _mm512_loadu_si512(samples);
}

/// Eight at a time, the same operations; returns how many.
template <class T>
HEADRACE_WIDE std::size_t place_eights(const ShiftedSpan& span, const ItemLayout& layout,
                                       std::uint64_t index, std::span<const T> samples,
                                       PlacedSamples& placed) noexcept {
  const __m512d unit = _mm512_set1_pd(1.0 / 9007199254740992.0);
  const __m512d low = _mm512_set1_pd(span.low);
  const __m512d range = _mm512_set1_pd(span.high - span.low);
  const __m512d scale = _mm512_set1_pd(layout.scale);
  const __m128i id_bits = _mm_cvtsi32_si128(static_cast<int>(layout.id_bits));
  const __m128i bucket_shift =
      _mm_cvtsi32_si128(static_cast<int>(layout.fraction_bits + kBucketBits));
  const __m512d eight = _mm512_set1_pd(8.0);
  __m512d number =
      _mm512_add_pd(_mm512_set1_pd(static_cast<double>(static_cast<std::int64_t>(index))),
                    _mm512_set_pd(7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0));
  std::size_t i = 0;
  for (; i + 8 <= samples.size(); i += 8) {
    const __m512i draws = _mm512_load_si512(&placed.draws[i]);
    const __m512d uniform = _mm512_mul_pd(_mm512_cvtepi64_pd(_mm512_srli_epi64(draws, 11)), unit);
    const __m512d shift = _mm512_add_pd(low, _mm512_mul_pd(range, uniform));
    const __m512d position = _mm512_add_pd(number, shift);
    const __m512i at = _mm512_cvttpd_epi64(_mm512_mul_pd(position, scale));
    number = _mm512_add_pd(number, eight);
    _mm512_store_si512(&placed.items[i],
                       _mm512_or_si512(_mm512_sll_epi64(at, id_bits), load_ids(&samples[i])));
    _mm256_store_si256(reinterpret_cast<__m256i*>(&placed.buckets[i]),
                       _mm512_cvtepi64_epi32(_mm512_srl_epi64(at, bucket_shift)));
  }
  return i;
}
#endif

}  // namespace

template <class T>
void place_samples(const ShiftedSpan& span, const ItemLayout& layout, std::uint64_t index,
                   std::span<const T> samples, PlacedSamples& placed,
                   [[maybe_unused]] bool is_wide) noexcept {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (is_wide) done = place_eights(span, layout, index, samples, placed);
#endif
  place_from(done, span, layout, index, samples, placed);
}

template void place_samples(const ShiftedSpan&, const ItemLayout&, std::uint64_t,
                            std::span<const std::uint32_t>, PlacedSamples&, bool) noexcept;
template void place_samples(const ShiftedSpan&, const ItemLayout&, std::uint64_t,
                            std::span<const std::uint64_t>, PlacedSamples&, bool) noexcept;

}  // namespace headrace::mosaic
