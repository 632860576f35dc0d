// Nearly always there is nothing to count: whether there is anything is asked first, of vectors.
#include "checkpoint/value_scan.h"

#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "base/cpu_features.h"

namespace headrace::checkpoint {
namespace {

struct Exponent {
  std::uint32_t element_bytes;
  std::uint64_t mask;  ///< Of an element; as many bytes as it has.
};

constexpr Exponent exponent_of(NumberKind kind) noexcept {
  switch (kind) {
    case NumberKind::kF16:
      return {2, 0x7c00};
    case NumberKind::kBf16:
      return {2, 0x7f80};
    case NumberKind::kF32:
      return {4, 0x7f800000};
    case NumberKind::kF64:
      return {8, 0x7ff0000000000000};
    case NumberKind::kOther:
      break;
  }
  return {0, 0};
}

template <typename Bits>
std::uint64_t count(std::span<const std::byte> bytes, std::uint64_t mask) noexcept {
  std::uint64_t found = 0;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    found += (bits & mask) == mask;
  }
  return found;
}

std::uint64_t count_each(Exponent exponent, std::span<const std::byte> bytes) noexcept {
  if (exponent.element_bytes == 2) return count<std::uint16_t>(bytes, exponent.mask);
  if (exponent.element_bytes == 4) return count<std::uint32_t>(bytes, exponent.mask);
  return count<std::uint64_t>(bytes, exponent.mask);
}

#ifdef __x86_64__

constexpr std::size_t kVectorBytes = 32;

#define HEADRACE_AVX2 __attribute__((target("avx2")))

template <std::uint32_t kElementBytes>
HEADRACE_AVX2 __m256i equal(__m256i a, __m256i b) noexcept {
  if constexpr (kElementBytes == 2) return _mm256_cmpeq_epi16(a, b);
  if constexpr (kElementBytes == 4) return _mm256_cmpeq_epi32(a, b);
  return _mm256_cmpeq_epi64(a, b);
}

/// Whether any is there. `bytes`: whole vectors.
template <std::uint32_t kElementBytes>
HEADRACE_AVX2 bool any(std::span<const std::byte> bytes, __m256i mask) noexcept {
  __m256i found = _mm256_setzero_si256();
  for (std::size_t at = 0; at < bytes.size(); at += kVectorBytes) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes.data() + at));
    found = _mm256_or_si256(found, equal<kElementBytes>(_mm256_and_si256(bits, mask), mask));
  }
  return _mm256_testz_si256(found, found) == 0;
}

HEADRACE_AVX2 bool any_of(Exponent exponent, std::span<const std::byte> bytes) noexcept {
  if (exponent.element_bytes == 2)
    return any<2>(bytes, _mm256_set1_epi16(static_cast<short>(exponent.mask)));
  if (exponent.element_bytes == 4)
    return any<4>(bytes, _mm256_set1_epi32(static_cast<int>(exponent.mask)));
  return any<8>(bytes, _mm256_set1_epi64x(static_cast<long long>(exponent.mask)));
}

/// Bytes at the beginning in which there is none, as far as could be told cheaply.
std::size_t known_finite_bytes(Exponent exponent, std::span<const std::byte> bytes) noexcept {
  static const bool has_avx2 = has_cpu_feature(CpuFeature::kAvx2);
  const std::size_t vectors = bytes.size() / kVectorBytes * kVectorBytes;
  return has_avx2 && !any_of(exponent, bytes.first(vectors)) ? vectors : 0;
}

#else

std::size_t known_finite_bytes(Exponent, std::span<const std::byte>) noexcept { return 0; }

#endif

}  // namespace

NumberKind number_kind(std::string_view dtype) noexcept {
  if (dtype == "F32" || dtype == "C64") return NumberKind::kF32;
  if (dtype == "BF16") return NumberKind::kBf16;
  if (dtype == "F16") return NumberKind::kF16;
  if (dtype == "F64") return NumberKind::kF64;
  return NumberKind::kOther;
}

std::uint64_t count_not_finite(NumberKind kind, std::span<const std::byte> bytes) noexcept {
  const Exponent exponent = exponent_of(kind);
  if (exponent.element_bytes == 0) return 0;
  return count_each(exponent, bytes.subspan(known_finite_bytes(exponent, bytes)));
}

bool is_all_zero(std::span<const std::byte> bytes) noexcept {
  // Each byte is the one before it, and the first is zero.
  return bytes.empty() || (bytes[0] == std::byte{0} &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace headrace::checkpoint
