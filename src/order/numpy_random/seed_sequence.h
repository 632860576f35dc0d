#pragma once
/// \file
/// numpy.random.SeedSequence: entropy words to generator states, bit for bit.
///
/// Place: src/order/numpy_random; pure. Definition: docs/order.md, "numpy's generators".
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace::numpy_random {

/// The 32-bit words of a non-negative number, low first; 0 is one word.
std::vector<std::uint32_t> words_of(std::uint64_t value);

class SeedSequence {
 public:
  /// `entropy`: the words of the seed (of several seeds: their words one after another), not empty.
  explicit SeedSequence(std::span<const std::uint32_t> entropy);
  /// generate_state(n, uint32).
  std::vector<std::uint32_t> generate_u32(std::size_t n) const;
  /// generate_state(n, uint64): two words each, low first.
  std::vector<std::uint64_t> generate_u64(std::size_t n) const;

 private:
  static constexpr std::size_t kPoolWords = 4;
  std::array<std::uint32_t, kPoolWords> pool_{};
};

}  // namespace headrace::numpy_random
