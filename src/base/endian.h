#pragma once
/// \file
/// Unaligned little-endian loads and stores, the byte order of every format here unless its notes
/// say otherwise.
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace headrace {

static_assert(std::endian::native == std::endian::little,
              "big-endian hosts need byte swaps in load_le/store_le");

/// Reads a T at `p`; any alignment. \pre sizeof(T) bytes are readable.
template <std::integral T>
T load_le(const std::byte* p) noexcept {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <std::integral T>
void store_le(std::byte* p, T value) noexcept {
  std::memcpy(p, &value, sizeof(T));
}

}  // namespace headrace
