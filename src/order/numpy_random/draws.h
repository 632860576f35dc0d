#pragma once
/// \file
/// What numpy's generators, old and new, make of their 32 and 64 bits alike.
///
/// Place: src/order/numpy_random; pure.
#include <bit>
#include <cstdint>
#include <span>
#include <utility>

namespace headrace::numpy_random {

/// Largest value of `bits` bits that random_interval(max) masks with: 2^bitlen(max) - 1.
constexpr std::uint64_t mask_of(std::uint64_t max) noexcept {
  return max == 0 ? 0 : ~std::uint64_t{0} >> std::countl_zero(max);
}
inline constexpr std::uint64_t kMax32 = 0xffff'ffffULL;

/// 0..max by masked rejection.
template <class Source>
std::uint64_t draw_interval(Source& source, std::uint64_t max) noexcept {
  if (max == 0) return 0;
  const std::uint64_t mask = mask_of(max);
  std::uint64_t value = 0;
  do value = (max <= kMax32 ? source.next32() : source.next64()) & mask;
  while (value > max);
  return value;
}

/// Fisher and Yates, from the end.
template <class Source, class T>
void shuffle_by(Source& source, std::span<T> items) noexcept {
  for (std::size_t i = items.size(); i-- > 1;) {
    std::swap(items[i], items[static_cast<std::size_t>(source.interval(i))]);
  }
}

}  // namespace headrace::numpy_random
