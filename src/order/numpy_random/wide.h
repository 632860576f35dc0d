#pragma once
/// \file
/// Whether the processor has registers of 512 bits (AVX-512), and the intrinsics for them. Code
/// that uses them has a plain twin with the same results; both are tested where both run.
///
/// Place: src/order/numpy_random; pure.
#include "base/cpu_features.h"

#if defined(__x86_64__)
// GCC 12 takes its own "undefined" registers for mistakes of the caller (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#define HEADRACE_WIDE __attribute__((target("avx512f,avx512dq,popcnt")))
#define HEADRACE_WIDE_INLINE HEADRACE_WIDE __attribute__((always_inline)) inline
#endif

namespace headrace::numpy_random {

inline bool has_wide() noexcept {
  static const bool has_all = has_cpu_feature(CpuFeature::kAvx512f) &&
                              has_cpu_feature(CpuFeature::kAvx512dq) &&
                              has_cpu_feature(CpuFeature::kPopcnt);
  return has_all;
}

}  // namespace headrace::numpy_random
