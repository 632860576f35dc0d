#pragma once
/// \file
/// The CRC of two texts one after the other from the CRCs of both. Private to base. Pure.
#include <cstdint>

namespace headrace::detail {

/// Product of two residues; bits reflected, so the highest bit of `Word` is x^0.
template <class Word>
constexpr Word multiply_residues(Word a, Word b, Word polynomial) noexcept {
  constexpr unsigned kBits = 8 * sizeof(Word);
  Word product = 0;
  for (unsigned k = 0; k < kBits; ++k) {
    if (((a >> (kBits - 1 - k)) & 1) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? polynomial : Word{0});
  }
  return product;
}

/// For CRCs that begin and end inverted: first * x^(8 * second_bytes) + second.
template <class Word>
constexpr Word combine_crcs(Word first, Word second, std::uint64_t second_bytes,
                            Word polynomial) noexcept {
  Word power = Word{1} << (8 * sizeof(Word) - 1 - 8);  // x^8
  for (; second_bytes > 0; second_bytes >>= 1) {
    if ((second_bytes & 1) != 0) first = multiply_residues(first, power, polynomial);
    power = multiply_residues(power, power, polynomial);
  }
  return first ^ second;
}

}  // namespace headrace::detail
