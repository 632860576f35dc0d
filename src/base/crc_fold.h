#pragma once
/// \file
/// The wide part of CRCs: folds a long run of bytes into 16 that have the same remainder, by
/// carry-less multiplication. Private to base: crc32c.cc and crc64nvme.cc. Method: V. Gopal et al.,
/// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009, in its
/// bit-reflected form. Pure; any thread.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::detail {

/// Multipliers that move 128 bits of message `distance` bits ahead: x^(distance + 63) for its first
/// eight bytes and x^(distance - 1) for the others, both modulo the polynomial, bits reflected.
struct FoldKeys {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};

/// The distances in use, in bits.
struct FoldPlan {
  FoldKeys by_128, by_512, by_1024, by_2048;
};

/// x^`power` modulo the polynomial of `kDegree` bits; reflected: the coefficient of x^k is bit
/// 63 - k. `polynomial` likewise, without its highest term.
template <unsigned kDegree>
constexpr std::uint64_t reflected_power(unsigned power, std::uint64_t polynomial) noexcept {
  std::uint64_t value = std::uint64_t{1} << 63;
  for (; power > 0; --power) {
    const bool is_over = ((value >> (64 - kDegree)) & 1) != 0;
    value >>= 1;
    if (is_over) {
      if constexpr (kDegree < 64) value ^= std::uint64_t{1} << (63 - kDegree);
      value ^= polynomial;
    }
  }
  return value;
}

template <unsigned kDegree>
constexpr FoldPlan make_fold_plan(std::uint64_t polynomial) noexcept {
  const auto keys = [polynomial](unsigned distance) {
    return FoldKeys{reflected_power<kDegree>(distance + 63, polynomial),
                    reflected_power<kDegree>(distance - 1, polynomial)};
  };
  return {keys(128), keys(512), keys(1024), keys(2048)};
}

/// How wide this machine folds.
enum class FoldWidth : std::uint8_t {
  kNone,  ///< Not at all.
  k128,   ///< PCLMULQDQ.
  k512,   ///< VPCLMULQDQ with AVX-512.
};
FoldWidth best_fold_width() noexcept;

/// Shortest run that fold() takes, bytes.
constexpr std::size_t kLeastFoldBytes = 128;

/// The 16 bytes that stand for `bytes`, whose first ones are changed by the CRC register `before`.
/// \pre bytes.size() is a multiple of 16 and >= kLeastFoldBytes; `width` is not kNone and the
/// machine has it.
std::array<std::byte, 16> fold(std::span<const std::byte> bytes, std::uint64_t before,
                               const FoldPlan& plan, FoldWidth width) noexcept;

}  // namespace headrace::detail
