// Bits: Intel, "Software Developer's Manual", volume 2A, CPUID; which registers the kernel saves:
// volume 1, 13.3 and 14.3 (XGETBV). A feature counts where both allow it.
#include "base/cpu_features.h"

#include "headrace/machine.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>
#endif

namespace headrace {

#if defined(__x86_64__)
namespace {

constexpr std::uint64_t kSavesYmm = 0x6;   // SSE and AVX state
constexpr std::uint64_t kSavesZmm = 0xE6;  // and opmask, and both halves of AVX-512's

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf read_leaf(unsigned leaf) noexcept {
  Leaf out;  // Stays zero where the processor has no such leaf.
  __get_cpuid_count(leaf, 0, &out.eax, &out.ebx, &out.ecx, &out.edx);
  return out;
}

/// Which registers the kernel saves. Not by the intrinsic, which needs a target of its own.
std::uint64_t read_xcr0() noexcept {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

constexpr unsigned bit_of(CpuFeature feature) noexcept {
  return 1U << static_cast<unsigned>(feature);
}

unsigned find_features() noexcept {
  const Leaf one = read_leaf(1);
  const Leaf seven = read_leaf(7);
  const std::uint64_t saved = (one.ecx & bit_OSXSAVE) != 0 ? read_xcr0() : 0;
  const bool has_ymm = (saved & kSavesYmm) == kSavesYmm;
  const bool has_zmm = (saved & kSavesZmm) == kSavesZmm;
  unsigned found = 0;
  const auto add = [&found](CpuFeature feature, bool is_there) {
    if (is_there) found |= bit_of(feature);
  };
  add(CpuFeature::kSse41, (one.ecx & bit_SSE4_1) != 0);
  add(CpuFeature::kSse42, (one.ecx & bit_SSE4_2) != 0);
  add(CpuFeature::kPclmul, (one.ecx & bit_PCLMUL) != 0);
  add(CpuFeature::kPopcnt, (one.ecx & bit_POPCNT) != 0);
  add(CpuFeature::kF16c, has_ymm && (one.ecx & bit_F16C) != 0);
  add(CpuFeature::kAvx, has_ymm && (one.ecx & bit_AVX) != 0);
  add(CpuFeature::kAvx2, has_ymm && (seven.ebx & bit_AVX2) != 0);
  add(CpuFeature::kAvx512f, has_zmm && (seven.ebx & bit_AVX512F) != 0);
  add(CpuFeature::kAvx512dq, has_zmm && (seven.ebx & bit_AVX512DQ) != 0);
  add(CpuFeature::kVpclmulqdq, has_ymm && (seven.ecx & bit_VPCLMULQDQ) != 0);
  return found;
}

}  // namespace

bool has_cpu_feature(CpuFeature feature) noexcept {
  static const unsigned kFound = find_features();
  return (kFound & bit_of(feature)) != 0;
}

#else

bool has_cpu_feature(CpuFeature) noexcept { return false; }

#endif

std::vector<std::string_view> cpu_features() {
  std::vector<std::string_view> out;
  for (const auto& [feature, name] : kCpuFeatures) {
    if (has_cpu_feature(feature)) out.push_back(name);
  }
  return out;
}

}  // namespace headrace
