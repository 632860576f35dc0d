#pragma once
/// \file
/// Size classes of SlabPool: 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64 KiB, ... four per power
/// of two. Pure.
///
/// Whole 4 KiB pages because that is what the kernel hands out: a class of 5 KiB would be accounted
/// as 5 and occupy 8.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace headrace::mem {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;
/// The largest class is 4 TiB; nothing larger is ever reserved.
constexpr std::uint32_t kClassCount = 116;

/// Smallest class that holds `size_bytes`. May be >= kClassCount for absurd sizes. \pre size_bytes
/// > 0.
constexpr std::uint32_t class_of(std::uint64_t size_bytes) noexcept {
  const std::uint64_t pages = (size_bytes - 1) / kPageBytes + 1;
  if (pages <= 4) return static_cast<std::uint32_t>(pages - 1);
  const auto shift = static_cast<std::uint32_t>(std::bit_width(pages - 1)) - 3;
  const std::uint64_t quarters = ((pages - 1) >> shift) + 1;  // 5 .. 8
  return 4 * shift + static_cast<std::uint32_t>(quarters) - 1;
}

/// Bytes of one slab of the class. \pre index < kClassCount.
constexpr std::uint64_t class_bytes(std::uint32_t index) noexcept {
  if (index < 4) return (index + 1) * kPageBytes;
  return (std::uint64_t{index % 4 + 5} << (index / 4 - 1)) * kPageBytes;
}

/// Distance between the slabs of a class. Classes with huge pages start each slab on a huge page of
/// its own: a huge page shared by two slabs would stay resident after one of them is given back.
constexpr std::uint64_t class_pitch_bytes(std::uint32_t index) noexcept {
  const std::uint64_t bytes = class_bytes(index);
  if (bytes < kHugePageBytes) return bytes;
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

/// Addresses that slabs of a class below 2 MiB share: the fewest whole huge pages that they fill
/// without a rest (classes are 4, 5, 6, 7 or 8 times a power of two pages): 2, 6, 10 or 14 MiB.
/// \pre class_bytes(index) < kHugePageBytes.
constexpr std::uint64_t span_bytes(std::uint32_t index) noexcept {
  return std::lcm(class_bytes(index), kHugePageBytes);
}

static_assert(class_of(1) == 0 && class_bytes(0) == 4096);
static_assert(class_of(16384) == 3 && class_of(16385) == 4 && class_bytes(4) == 20480);
static_assert(class_bytes(class_of(std::uint64_t{8} << 20)) == std::uint64_t{8} << 20);
static_assert(class_bytes(class_of((std::uint64_t{8} << 20) + 1)) == std::uint64_t{10} << 20);
static_assert(span_bytes(0) == 2 << 20 && span_bytes(2) == 6 << 20 && span_bytes(4) == 10 << 20);
static_assert(span_bytes(class_of(7 << 18)) == 14 << 20);
static_assert(class_bytes(kClassCount - 1) == std::uint64_t{4} << 40);

}  // namespace headrace::mem
