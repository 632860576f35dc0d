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

__extension__ using Wide = unsigned __int128;

/// Fractional part of the golden ratio times 2^64, odd: successive multiples differ in about half
/// of their bits.
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
/// Separate the uses of the epoch key.
constexpr std::uint64_t kBlockTag = 0x626c6f636b730001ULL;   // "blocks", 1
constexpr std::uint64_t kWindowTag = 0x77696e646f770001ULL;  // "window", 1
/// Rounds of the Feistel network, see docs/design/0003-order.md, section Rounds.
constexpr std::uint32_t kRounds = 8;
constexpr std::uint32_t kRoundsSmall = 20;
constexpr std::uint64_t kSmallSize = 64;
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

/// A keyed permutation of [0, n): an unbalanced Feistel network on pairs (high, low), low in [0,
/// 2^k) and high in [0, h), with k half the bits of n and h the least that makes the domain h * 2^k
/// hold n. It exceeds n by less than 2^k, so a value is walked again in less than one case of
/// sqrt(n) / 2. Rounds change low by exclusive or and high by addition modulo h; the round function
/// is multiply-shift, the pairwise independent family: top bits of a * x + b. Value type; building
/// one costs two mixes. Keep it when many values of one window are wanted.
class Permutation {
 public:
  /// \pre 1 <= n <= 2^63.
  constexpr Permutation(std::uint64_t key, std::uint64_t n) noexcept
      : n_(n),
        multiplier_(mix(key + kGolden)),
        addend_(mix(key + 2 * kGolden)),
        low_bits_(static_cast<std::uint32_t>(std::bit_width(n - 1)) / 2),
        // A shift by 64 is undefined; with one value of low the mask alone makes it zero.
        low_shift_(64 - std::max(low_bits_, 1U)),
        low_mask_((std::uint64_t{1} << low_bits_) - 1),
        high_size_(((n - 1) >> low_bits_) + 1),
        rounds_(n <= kSmallSize ? kRoundsSmall : kRounds) {}

  /// The value that `index` maps to. \pre index < n.
  constexpr std::uint64_t operator()(std::uint64_t index) const noexcept {
    do {
      index = pass(index);
    } while (index >= n_);
    return index;
  }

 private:
  constexpr std::uint64_t pass(std::uint64_t x) const noexcept {
    std::uint64_t low = x & low_mask_;
    std::uint64_t high = x >> low_bits_;
    std::uint64_t a = multiplier_;
    std::uint64_t b = addend_;
    for (std::uint32_t round = 0; round < rounds_; round += 2) {
      low ^= ((high * a + b) >> low_shift_) & low_mask_;
      a = std::rotl(a, kKeyRotation);
      b = std::rotl(b, kKeyRotation);
      high += static_cast<std::uint64_t>((static_cast<Wide>(low * a + b) * high_size_) >> 64);
      high = high >= high_size_ ? high - high_size_ : high;
      a = std::rotl(a, kKeyRotation);
      b = std::rotl(b, kKeyRotation);
    }
    return high << low_bits_ | low;
  }

  std::uint64_t n_;
  std::uint64_t multiplier_;
  std::uint64_t addend_;
  std::uint32_t low_bits_;
  std::uint32_t low_shift_;
  std::uint64_t low_mask_;
  std::uint64_t high_size_;
  std::uint32_t rounds_;
};

/// The sample with unpermuted index `index` of a window. Linear in the pieces, of which there are
/// at most W. Looks at all of them without a branch: the piece of a permuted index is as good as
/// random, and a missed branch costs more.
inline WindowSample sample_of_index(const Window& window, std::uint64_t index) noexcept {
  std::uint32_t piece = 0;
  std::uint64_t piece_first = 0;
  std::uint64_t piece_end = 0;
  for (std::size_t i = 0; i + 1 < window.pieces.size(); ++i) {
    piece_end += window.pieces[i].end - window.pieces[i].begin;
    const bool is_after = index >= piece_end;
    piece += is_after ? 1 : 0;
    piece_first = is_after ? piece_end : piece_first;
  }
  return {.piece = piece,
          .sample_in_block =
              window.pieces[piece].begin + static_cast<std::uint32_t>(index - piece_first)};
}

}  // namespace headrace::order_math
