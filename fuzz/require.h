#pragma once
/// \file
/// What must hold for any input.
#include <cstddef>
#include <cstdlib>
#include <span>

inline void require(bool condition) {
  if (!condition) std::abort();
}

inline bool is_inside(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}
