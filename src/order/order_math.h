#pragma once
/// \file
/// The integer functions that order `headrace` version 1 is made of. docs/order.md states each bit
/// for bit; golden vectors in order_golden_test.cc hold them. Nothing here may ever change its
/// results: a new function means a new version.
///
/// Place: used by epoch_order.cc and, per sample, by feed/. Pure, inline, no state.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "headrace/order.h"

namespace headrace::order_math {

/// Fractional part of the golden ratio times 2^64, odd: successive multiples differ in about half
/// of their bits.
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
/// Separate the uses of the epoch key.
constexpr std::uint64_t kBlockTag = 0x626c6f636b730001ULL;   // "blocks", 1
constexpr std::uint64_t kWindowTag = 0x77696e646f770001ULL;  // "window", 1
/// Rounds of the Feistel network. From 33 values on, 8 rounds leave no bias above 2 % in any
/// statistic tried; smaller domains have halves of 1 to 3 bits and need 24. Source:
/// docs/design/0003-order.md, section Rounds.
constexpr std::uint32_t kRounds = 8;
constexpr std::uint32_t kRoundsSmall = 24;
constexpr std::uint32_t kSmallDomainBits = 5;
/// Left rotation of the two key words from round to round; odd, so that 64 rounds would all differ.
constexpr int kKeyRotation = 11;

/// SplitMix64's output function: a bijection on 64-bit words.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Key of an epoch. Bijective in `epoch` for a fixed seed: no two epochs of a run share a key.
constexpr std::uint64_t epoch_key(std::uint64_t seed, std::uint64_t epoch) noexcept {
  return mix(mix(seed + kGolden) + epoch);
}

/// Key of the permutation of an epoch's blocks.
constexpr std::uint64_t block_key(std::uint64_t epoch_key) noexcept {
  return mix(epoch_key ^ kBlockTag);
}

/// Key of the window that starts at `first_position` of `lane`.
constexpr std::uint64_t window_key(std::uint64_t epoch_key, std::uint32_t lane,
                                   std::uint64_t first_position) noexcept {
  return mix(mix((epoch_key ^ kWindowTag) + lane) + first_position);
}

/// A keyed permutation of [0, n): an alternating Feistel network on the smallest power of two >= n,
/// walked until the value is below n (fewer than 2 walks on average, since the domain is less than
/// 2n). Its round function is multiply-shift, the pairwise independent family: top bits of a * x +
/// b. Value type; building one costs two mixes. Keep it when many values of one window are wanted.
class Permutation {
 public:
  /// \pre 1 <= n <= 2^63.
  constexpr Permutation(std::uint64_t key, std::uint64_t n) noexcept
      : n_(n), multiplier_(mix(key + kGolden)), addend_(mix(key + 2 * kGolden)) {
    const auto bits = static_cast<std::uint32_t>(std::bit_width(n - 1));
    low_bits_ = (bits + 1) / 2;
    // A shift by 64 is undefined; with a domain of 1 or 2 values the mask alone makes the empty
    // half zero.
    low_shift_ = 64 - std::max(low_bits_, 1U);
    high_shift_ = 64 - std::max(bits / 2, 1U);
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits / 2)) - 1;
    rounds_ = bits <= kSmallDomainBits ? kRoundsSmall : kRounds;
  }

  /// The value that `index` maps to. \pre index < n.
  constexpr std::uint64_t operator()(std::uint64_t index) const noexcept {
    do {
      index = rounds_ == kRounds ? pass<kRounds>(index) : pass<kRoundsSmall>(index);
    } while (index >= n_);
    return index;
  }

 private:
  template <std::uint32_t kCount>
  constexpr std::uint64_t pass(std::uint64_t x) const noexcept {
    std::uint64_t low = x & low_mask_;
    std::uint64_t high = x >> low_bits_;
    std::uint64_t a = multiplier_;
    std::uint64_t b = addend_;
    for (std::uint32_t round = 0; round < kCount; round += 2) {
      low ^= ((high * a + b) >> low_shift_) & low_mask_;
      a = std::rotl(a, kKeyRotation);
      b = std::rotl(b, kKeyRotation);
      high ^= ((low * a + b) >> high_shift_) & high_mask_;
      a = std::rotl(a, kKeyRotation);
      b = std::rotl(b, kKeyRotation);
    }
    return high << low_bits_ | low;
  }

  std::uint64_t n_;
  std::uint64_t multiplier_;
  std::uint64_t addend_;
  std::uint32_t low_bits_ = 0;
  std::uint32_t low_shift_ = 0;
  std::uint32_t high_shift_ = 0;
  std::uint32_t rounds_ = 0;
  std::uint64_t low_mask_ = 0;
  std::uint64_t high_mask_ = 0;
};

/// The sample with unpermuted index `index` of a window. Linear in the pieces, of which there are
/// at most W.
inline WindowSample sample_of_index(const Window& window, std::uint64_t index) noexcept {
  std::uint32_t piece = 0;
  for (;; ++piece) {
    const std::uint64_t count = window.pieces[piece].end - window.pieces[piece].begin;
    if (index < count) break;
    index -= count;
  }
  return {.piece = piece,
          .sample_in_block = window.pieces[piece].begin + static_cast<std::uint32_t>(index)};
}

}  // namespace headrace::order_math
