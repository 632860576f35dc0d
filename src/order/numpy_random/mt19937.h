#pragma once
/// \file
/// MT19937 as numpy.random.RandomState([a, b, ...]) and Python's random.Random(seed) use it.
///
/// Place: src/order/numpy_random; pure. One thread at a time.
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "order/numpy_random/draws.h"

namespace headrace::numpy_random {

class Mt19937 {
 public:
  /// init_by_array(key). \pre !key.empty().
  explicit Mt19937(std::span<const std::uint32_t> key);

  std::uint32_t next32() noexcept;
  /// First draw high, second low.
  std::uint64_t next64() noexcept {
    const std::uint64_t high = next32();
    return high << 32 | next32();
  }
  /// 53 bits of two draws.
  double random() noexcept {
    const std::uint32_t a = next32() >> 5;
    const std::uint32_t b = next32() >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
  }
  /// 0..max by masked rejection.
  std::uint64_t interval(std::uint64_t max) noexcept { return draw_interval(*this, max); }
  /// RandomState.randint(low, high), `high` exclusive. \pre low < high.
  std::int64_t randint(std::int64_t low, std::int64_t high) noexcept {
    const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + interval(range - 1));
  }
  template <class T>
  void shuffle(std::span<T> items) noexcept {
    shuffle_by(*this, items);
  }
  template <class T = std::uint64_t>
  std::vector<T> permutation(std::size_t n) {
    std::vector<T> out(n);
    std::iota(out.begin(), out.end(), T{0});
    shuffle(std::span<T>(out));
    return out;
  }

 private:
  static constexpr std::size_t kWords = 624;
  static constexpr std::size_t kMiddle = 397;
  void refill() noexcept;
  std::array<std::uint32_t, kWords> state_{};
  std::size_t next_ = kWords;
};

}  // namespace headrace::numpy_random
