#pragma once
/// \file
/// numpy.random.PCG64 (XSL-RR 128/64): single draws, jumps ahead, and blocks of draws.
///
/// Place: src/order/numpy_random; pure, inline: the shuffles of 10^8 samples live on it.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "order/numpy_random/seed_sequence.h"
#include "order/numpy_random/wide.h"

namespace headrace::numpy_random {

__extension__ using Wide = unsigned __int128;
constexpr Wide wide(std::uint64_t high, std::uint64_t low) noexcept {
  return static_cast<Wide>(high) << 64 | low;
}

class Pcg64 {
 public:
  explicit Pcg64(const SeedSequence& seed) {
    const auto g = seed.generate_u64(4);
    increment_ = (wide(g[2], g[3]) << 1) | 1;
    state_ = increment_ + wide(g[0], g[1]);  // one step from 0, then the initial state is added
    step();
  }

  /// The next 64 bits.
  std::uint64_t next() noexcept {
    step();
    return output(state_);
  }

  /// As if `count` draws had been made. O(log count).
  void advance(std::uint64_t count) noexcept {
    const Jump jump = make_jump(count);
    state_ = state_ * jump.multiplier + jump.increment;
  }

  /// The next out.size() draws, many at a time. `is_wide`: with the registers of wide.h.
  void fill(std::span<std::uint64_t> out, bool is_wide = has_wide()) noexcept;

 private:
#if defined(__x86_64__)
  HEADRACE_WIDE std::size_t fill_wide(std::span<std::uint64_t> out) noexcept;
#endif
  std::size_t fill_chains(std::span<std::uint64_t> out) noexcept;
  /// state -> state * multiplier + increment.
  struct Jump {
    Wide multiplier = 1;
    Wide increment = 0;
  };
  static constexpr Wide kMultiplier = wide(2549297995355413924ULL, 4865540595714422341ULL);

  void step() noexcept { state_ = state_ * kMultiplier + increment_; }
  static std::uint64_t output(Wide state) noexcept {
    return std::rotr(static_cast<std::uint64_t>(state >> 64) ^ static_cast<std::uint64_t>(state),
                     static_cast<int>(static_cast<std::uint64_t>(state >> 122)));
  }
  /// Brown's doubling: the `count`-fold composition of step().
  Jump make_jump(std::uint64_t count) const noexcept {
    Jump total;
    Jump power{kMultiplier, increment_};
    for (; count != 0; count >>= 1) {
      if ((count & 1) != 0) {
        total.multiplier *= power.multiplier;
        total.increment = total.increment * power.multiplier + power.increment;
      }
      power.increment *= power.multiplier + 1;
      power.multiplier *= power.multiplier;
    }
    return total;
  }

  Wide state_ = 0;
  Wide increment_ = 1;
};

}  // namespace headrace::numpy_random
