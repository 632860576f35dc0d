#pragma once
/// \file
/// What instructions this processor has and the kernel lets programs use.
///
/// Not by __builtin_cpu_supports(): its table is filled in by the compiler's runtime library, and
/// that of zig, which links the wheels, leaves it empty without a word. Whoever asked it there got
/// the slow twin of everything.
///
/// Place: src/base. Threads: any.
#include <array>
#include <string_view>
#include <utility>

namespace headrace {

/// Of x86-64; other processors have none of them.
enum class CpuFeature : unsigned {
  kSse41,
  kSse42,  ///< With the instruction for CRC32C.
  kPclmul,
  kPopcnt,
  kF16c,
  kAvx,
  kAvx2,
  kAvx512f,
  kAvx512dq,
  kVpclmulqdq,
};

/// With their names in /proc/cpuinfo.
inline constexpr std::array<std::pair<CpuFeature, std::string_view>, 10> kCpuFeatures = {{
    {CpuFeature::kSse41, "sse4_1"},
    {CpuFeature::kSse42, "sse4_2"},
    {CpuFeature::kPclmul, "pclmulqdq"},
    {CpuFeature::kPopcnt, "popcnt"},
    {CpuFeature::kF16c, "f16c"},
    {CpuFeature::kAvx, "avx"},
    {CpuFeature::kAvx2, "avx2"},
    {CpuFeature::kAvx512f, "avx512f"},
    {CpuFeature::kAvx512dq, "avx512dq"},
    {CpuFeature::kVpclmulqdq, "vpclmulqdq"},
}};

/// Asks the processor at the first call only.
bool has_cpu_feature(CpuFeature feature) noexcept;

}  // namespace headrace
