// Folding keeps one invariant: the bytes read so far, seen as a polynomial over GF(2), leave the
// same remainder as the running value does followed by the bytes that are left. One step replaces
// 16 (or 64) bytes by two carry-less products and adds the next ones; no step divides, so the
// caller reduces only once, in the 16 bytes that remain.
//
// One value alone would wait for its own multiplication each time. Several chains therefore take
// every 8th block of 16 bytes (or every 4th of 64), and a step of the loop carries each as far as
// all chains reach together: 8 * 128 = 1024 bits, 4 * 512 = 2048. At the end the chains lie one
// block apart and are merged with the keys of that distance. The functions are compiled for wider
// instructions than the rest of the program, so they may only run where best_fold_width() has
// found them; the helpers are always inlined because a call would cross from one instruction set
// to another.
#include "base/crc_fold.h"

#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/cpu_features.h"

namespace headrace::detail {

#if defined(__x86_64__)
namespace {

#define HEADRACE_FOLD_128 __attribute__((target("pclmul,sse4.1"), always_inline)) inline
#define HEADRACE_FOLD_512 \
  __attribute__((target("avx512f,avx512dq,vpclmulqdq,pclmul"), always_inline)) inline

/// The processor's own prefetch ends at a page; bytes that come from a read lie in its outer cache.
constexpr std::size_t kAheadBytes = 1024;
HEADRACE_FOLD_128 void prefetch(const std::byte* p) noexcept {
  // May point past the end of the buffer: a prefetch never faults.
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

HEADRACE_FOLD_128 __m128i load_128(const std::byte* p) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

HEADRACE_FOLD_128 __m128i keys_128(const FoldKeys& keys) noexcept {
  return _mm_set_epi64x(static_cast<long long>(keys.second), static_cast<long long>(keys.first));
}

HEADRACE_FOLD_128 __m128i step_128(__m128i value, __m128i keys, __m128i next) noexcept {
  const __m128i first = _mm_clmulepi64_si128(value, keys, 0x00);
  const __m128i second = _mm_clmulepi64_si128(value, keys, 0x11);
  return _mm_xor_si128(_mm_xor_si128(first, second), next);
}

/// Folds the 16-byte blocks of [p, end) into `value`.
HEADRACE_FOLD_128 __m128i fold_rest(__m128i value, const std::byte* p, const std::byte* end,
                                    __m128i keys) noexcept {
  for (; p != end; p += 16) value = step_128(value, keys, load_128(p));
  return value;
}

HEADRACE_FOLD_128 std::array<std::byte, 16> bytes_of(__m128i value) noexcept {
  std::array<std::byte, 16> out;
  std::memcpy(out.data(), &value, sizeof(value));
  return out;
}

// Eight chains: a multiplication takes 6 to 7 cycles and one can start in each.
__attribute__((target("pclmul,sse4.1"))) std::array<std::byte, 16> fold_by_128(
    std::span<const std::byte> bytes, std::uint64_t before, const FoldPlan& plan) noexcept {
  constexpr std::size_t kChains = 8;
  const std::byte* p = bytes.data();
  const std::byte* const end = p + bytes.size();
  __m128i chain[kChains];
  for (std::size_t i = 0; i < kChains; ++i) chain[i] = load_128(p + 16 * i);
  // A CRC that goes on from a register is that of the bytes with the register added to the first
  // of them.
  chain[0] = _mm_xor_si128(chain[0], _mm_set_epi64x(0, static_cast<long long>(before)));
  p += 16 * kChains;
  const __m128i far = keys_128(plan.by_1024);
  for (; end - p >= static_cast<std::ptrdiff_t>(16 * kChains); p += 16 * kChains) {
    prefetch(p + kAheadBytes);
    prefetch(p + kAheadBytes + 64);
    for (std::size_t i = 0; i < kChains; ++i) {
      chain[i] = step_128(chain[i], far, load_128(p + 16 * i));
    }
  }
  const __m128i near = keys_128(plan.by_128);
  __m128i value = chain[0];
  for (std::size_t i = 1; i < kChains; ++i) value = step_128(value, near, chain[i]);
  return bytes_of(fold_rest(value, p, end, near));
}

HEADRACE_FOLD_512 __m512i keys_512(const FoldKeys& keys) noexcept {
  const auto first = static_cast<long long>(keys.first);
  const auto second = static_cast<long long>(keys.second);
  return _mm512_set_epi64(second, first, second, first, second, first, second, first);
}

HEADRACE_FOLD_512 __m512i step_512(__m512i value, __m512i keys, __m512i next) noexcept {
  const __m512i first = _mm512_clmulepi64_epi128(value, keys, 0x00);
  const __m512i second = _mm512_clmulepi64_epi128(value, keys, 0x11);
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(first, second, next, kXorOfThree);
}

/// \pre at least 256 bytes.
__attribute__((target("avx512f,avx512dq,vpclmulqdq,pclmul"))) std::array<std::byte, 16> fold_by_512(
    std::span<const std::byte> bytes, std::uint64_t before, const FoldPlan& plan) noexcept {
  constexpr std::size_t kChains = 4;
  const std::byte* p = bytes.data();
  const std::byte* const end = p + bytes.size();
  __m512i chain[kChains];
  for (std::size_t i = 0; i < kChains; ++i) chain[i] = _mm512_loadu_si512(p + 64 * i);
  chain[0] = _mm512_xor_si512(
      chain[0], _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, static_cast<long long>(before)));
  p += 64 * kChains;
  const __m512i far = keys_512(plan.by_2048);
  for (; end - p >= static_cast<std::ptrdiff_t>(64 * kChains); p += 64 * kChains) {
    for (std::size_t i = 0; i < kChains; ++i) {
      chain[i] = step_512(chain[i], far, _mm512_loadu_si512(p + 64 * i));
    }
  }
  const __m512i middle = keys_512(plan.by_512);
  __m512i wide = chain[0];
  for (std::size_t i = 1; i < kChains; ++i) wide = step_512(wide, middle, chain[i]);
  const __m128i near = keys_128(plan.by_128);
  __m128i value = _mm512_extracti64x2_epi64(wide, 0);
  value = step_128(value, near, _mm512_extracti64x2_epi64(wide, 1));
  value = step_128(value, near, _mm512_extracti64x2_epi64(wide, 2));
  value = step_128(value, near, _mm512_extracti64x2_epi64(wide, 3));
  return bytes_of(fold_rest(value, p, end, near));
}

#undef HEADRACE_FOLD_128
#undef HEADRACE_FOLD_512

}  // namespace

namespace {

FoldWidth find_fold_width() noexcept {
  if (!has_cpu_feature(CpuFeature::kPclmul) || !has_cpu_feature(CpuFeature::kSse41))
    return FoldWidth::kNone;
  const bool is_wide = has_cpu_feature(CpuFeature::kAvx512f) &&
                       has_cpu_feature(CpuFeature::kAvx512dq) &&
                       has_cpu_feature(CpuFeature::kVpclmulqdq);
  return is_wide ? FoldWidth::k512 : FoldWidth::k128;
}

}  // namespace

FoldWidth best_fold_width() noexcept {
  static const FoldWidth kBest = find_fold_width();
  return kBest;
}

std::array<std::byte, 16> fold(std::span<const std::byte> bytes, std::uint64_t before,
                               const FoldPlan& plan, FoldWidth width) noexcept {
  if (width == FoldWidth::k512 && bytes.size() >= 256) return fold_by_512(bytes, before, plan);
  return fold_by_128(bytes, before, plan);
}

#else

FoldWidth best_fold_width() noexcept { return FoldWidth::kNone; }

std::array<std::byte, 16> fold(std::span<const std::byte>, std::uint64_t, const FoldPlan&,
                               FoldWidth) noexcept {
  return {};
}

#endif

}  // namespace headrace::detail
