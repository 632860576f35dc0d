#pragma once
/// \file
/// Small deterministic generators for jitter, simulations and tests. Not for orders (src/order/ has
/// its own, fixed for ever) and not for secrets.
#include <cstdint>

namespace headrace {

namespace detail {
__extension__ using Wide = unsigned __int128;
}

/// SplitMix64's output function: a bijection on 64-bit words with good avalanche.
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014;
/// constants of Stafford's Mix13.
constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// SplitMix64. One owner at a time.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) noexcept : state_(seed) {}
  constexpr std::uint64_t next() noexcept { return mix64(state_ += 0x9e3779b97f4a7c15ULL); }
  /// Uniform in [0, bound) up to a bias below bound / 2^64. \pre bound > 0.
  std::uint64_t below(std::uint64_t bound) noexcept {
    return static_cast<std::uint64_t>((static_cast<detail::Wide>(next()) * bound) >> 64);
  }
  /// Uniform in [0, 1), 53 bits.
  double unit() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace headrace
