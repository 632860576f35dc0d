// numpy draws one number after another from s' = s * a + c modulo 2^128, and each needs the one
// before. k steps at once are again of this form (make_jump()), so chain number i computes draws
// i, i + k, i + 2 k and so on: the same numbers in the same order, without waiting. After whole
// rounds `state_` is that of the last draw given out, as if they had been drawn one by one, so
// that any mixture of fill() and next() gives numpy's sequence.
#include "order/numpy_random/pcg64.h"

namespace headrace::numpy_random {

#if defined(__x86_64__)
namespace {

/// Eight states, or the multiplier or increment of eight steps.
struct Eight {
  __m512i high;
  __m512i low;
};

HEADRACE_WIDE_INLINE Eight all(Wide value) noexcept {
  return {_mm512_set1_epi64(static_cast<long long>(static_cast<std::uint64_t>(value >> 64))),
          _mm512_set1_epi64(static_cast<long long>(static_cast<std::uint64_t>(value)))};
}

/// The lower 128 bits of the product: there are only multiplications of 32 bits with all theirs.
HEADRACE_WIDE_INLINE Eight multiply(const Eight& a, const Eight& b) noexcept {
  const __m512i half = _mm512_set1_epi64(0xffff'ffff);
  const __m512i a1 = _mm512_srli_epi64(a.low, 32);
  const __m512i b1 = _mm512_srli_epi64(b.low, 32);
  const __m512i p00 = _mm512_mul_epu32(a.low, b.low);
  const __m512i p01 = _mm512_mul_epu32(a.low, b1);
  const __m512i p10 = _mm512_mul_epu32(a1, b.low);
  const __m512i p11 = _mm512_mul_epu32(a1, b1);
  const __m512i middle = _mm512_add_epi64(p01, _mm512_srli_epi64(p00, 32));
  const __m512i carry = _mm512_add_epi64(p10, _mm512_and_si512(middle, half));
  const __m512i high = _mm512_add_epi64(_mm512_add_epi64(p11, _mm512_srli_epi64(middle, 32)),
                                        _mm512_srli_epi64(carry, 32));
  const __m512i cross =
      _mm512_add_epi64(_mm512_mullo_epi64(a.low, b.high), _mm512_mullo_epi64(a.high, b.low));
  return {_mm512_add_epi64(high, cross),
          _mm512_or_si512(_mm512_slli_epi64(carry, 32), _mm512_and_si512(p00, half))};
}

HEADRACE_WIDE_INLINE Eight add(const Eight& a, const Eight& b) noexcept {
  const __m512i low = _mm512_add_epi64(a.low, b.low);
  const __m512i high = _mm512_add_epi64(a.high, b.high);
  const __mmask8 carry = _mm512_cmplt_epu64_mask(low, b.low);
  // Adds one, as minus -1, where the lower half went over.
  return {_mm512_mask_sub_epi64(high, carry, high, _mm512_set1_epi64(-1)), low};
}

HEADRACE_WIDE_INLINE __m512i outputs(const Eight& state) noexcept {
  return _mm512_rorv_epi64(_mm512_xor_si512(state.high, state.low),
                           _mm512_srli_epi64(state.high, 58));
}

}  // namespace

/// Sixteen chains, as far as whole rounds of them go; returns how many draws that were.
HEADRACE_WIDE std::size_t Pcg64::fill_wide(std::span<std::uint64_t> out) noexcept {
  constexpr std::size_t kChains = 16;
  const std::size_t whole = out.size() / kChains * kChains;
  if (whole == 0) return 0;
  alignas(64) std::array<std::uint64_t, kChains> high;
  alignas(64) std::array<std::uint64_t, kChains> low;
  for (std::size_t c = 0; c < kChains; ++c) {
    step();
    high[c] = static_cast<std::uint64_t>(state_ >> 64);
    low[c] = static_cast<std::uint64_t>(state_);
  }
  const Jump jump = make_jump(kChains);
  const Eight multiplier = all(jump.multiplier);
  const Eight increment = all(jump.increment);
  Eight one{_mm512_load_si512(&high[0]), _mm512_load_si512(&low[0])};
  Eight two{_mm512_load_si512(&high[8]), _mm512_load_si512(&low[8])};
  for (std::size_t i = 0;;) {
    _mm512_storeu_si512(&out[i], outputs(one));
    _mm512_storeu_si512(&out[i + 8], outputs(two));
    i += kChains;
    if (i == whole) break;
    one = add(multiply(one, multiplier), increment);
    two = add(multiply(two, multiplier), increment);
  }
  _mm512_store_si512(&high[8], two.high);
  _mm512_store_si512(&low[8], two.low);
  state_ = wide(high[kChains - 1], low[kChains - 1]);
  return whole;
}
#endif

/// Four interleaved chains: one alone waits for its multiplications.
std::size_t Pcg64::fill_chains(std::span<std::uint64_t> out) noexcept {
  constexpr std::size_t kChains = 4;
  const std::size_t whole = out.size() / kChains * kChains;
  if (whole == 0) return 0;
  const Jump jump = make_jump(kChains);
  std::array<Wide, kChains> chain;
  for (Wide& state : chain) {
    step();
    state = state_;
  }
  for (std::size_t i = 0; i < whole; i += kChains) {
    for (std::size_t c = 0; c < kChains; ++c) {
      out[i + c] = output(chain[c]);
      state_ = chain[c];
      chain[c] = chain[c] * jump.multiplier + jump.increment;
    }
  }
  return whole;
}

void Pcg64::fill(std::span<std::uint64_t> out, [[maybe_unused]] bool is_wide) noexcept {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (is_wide) done = fill_wide(out);
#endif
  done += fill_chains(out.subspan(done));
  for (; done < out.size(); ++done) out[done] = next();
}

}  // namespace headrace::numpy_random
