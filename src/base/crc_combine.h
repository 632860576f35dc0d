#pragma once
/// \file
/// The CRC of two texts one after the other from the CRCs of both. Private to base. Pure.
#include <array>
#include <bit>
#include <cstddef>
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

/// x^(8 * 2^k) for each k.
template <class Word>
using ByteShifts = std::array<Word, 64>;

template <class Word>
constexpr ByteShifts<Word> make_byte_shifts(Word polynomial) noexcept {
  ByteShifts<Word> shifts{};
  Word power = Word{1} << (8 * sizeof(Word) - 1 - 8);  // x^8
  for (Word& shift : shifts) {
    shift = power;
    power = multiply_residues(power, power, polynomial);
  }
  return shifts;
}

/// For CRCs that begin and end inverted: first * x^(8 * second_bytes) + second. A multiplication
/// for each bit that is set in `second_bytes`.
template <class Word>
constexpr Word combine_crcs(Word first, Word second, std::uint64_t second_bytes,
                            const ByteShifts<Word>& shifts, Word polynomial) noexcept {
  for (; second_bytes > 0; second_bytes &= second_bytes - 1) {
    const auto k = static_cast<std::size_t>(std::countr_zero(second_bytes));
    first = multiply_residues(first, shifts[k], polynomial);
  }
  return first ^ second;
}

}  // namespace headrace::detail
