#pragma once
/// \file
/// numpy.random.default_rng(seed): the draws that the compatible orders need, bit for bit.
///
/// Place: src/order/numpy_random; pure. One thread at a time; copy it to fork a stream.
/// Definition: docs/order.md, "numpy's generators"; held against numpy itself by the reference
/// cases (numpy_random_test.cc).
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "order/numpy_random/draws.h"
#include "order/numpy_random/pcg64.h"

namespace headrace::numpy_random {

/// (next64 >> 11) * 2^-53.
inline double to_double(std::uint64_t bits) noexcept {
  return static_cast<double>(static_cast<std::int64_t>(bits >> 11)) * (1.0 / 9007199254740992.0);
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : Generator(SeedSequence(words_of(seed))) {}
  explicit Generator(const SeedSequence& seed) : pcg_(seed) {}

  std::uint64_t next64() noexcept { return pcg_.next(); }
  /// The low half of a draw, then its high half. Draws of 64 bits in between do not disturb it.
  std::uint32_t next32() noexcept {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    const std::uint64_t draw = pcg_.next();
    has_half_ = true;
    half_ = static_cast<std::uint32_t>(draw >> 32);
    return static_cast<std::uint32_t>(draw);
  }

  double random() noexcept { return to_double(next64()); }
  double uniform(double low, double high) noexcept {
    const double range = high - low;
    return low + range * random();
  }

  /// 0..max by masked rejection: what shuffles draw.
  std::uint64_t interval(std::uint64_t max) noexcept { return draw_interval(*this, max); }

  /// 0..max by Lemire's method: what integers() and choice() draw.
  std::uint64_t bounded(std::uint64_t max) noexcept;
  /// integers(low, high), `high` exclusive. \pre low < high.
  std::int64_t integers(std::int64_t low, std::int64_t high) noexcept {
    const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + bounded(range - 1));
  }

  template <class T>
  void shuffle(std::span<T> items) noexcept {
    shuffle_by(*this, items);
  }
  std::vector<std::uint64_t> permutation(std::uint64_t n);
  /// choice(population, size, replace=False). \pre size <= population.
  std::vector<std::uint64_t> choice(std::uint64_t population, std::uint64_t size);

  /// As if `count` draws of 64 bits had been made.
  void skip64(std::uint64_t count) noexcept { pcg_.advance(count); }
  void fill64(std::span<std::uint64_t> out, bool is_wide = has_wide()) noexcept {
    pcg_.fill(out, is_wide);
  }

  /// The half draw that next32() would return, if there is one. Used by TargetStream.
  bool has_half() const noexcept { return has_half_; }
  std::uint32_t half() const noexcept { return half_; }
  void set_half(bool has, std::uint32_t value) noexcept {
    has_half_ = has;
    half_ = value;
  }

 private:
  Pcg64 pcg_;
  bool has_half_ = false;
  std::uint32_t half_ = 0;
};

}  // namespace headrace::numpy_random
