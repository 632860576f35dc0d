#include "order/numpy_random/mt19937.h"

#include <algorithm>

namespace headrace::numpy_random {

// Matsumoto and Nishimura's mt19937ar: seeding by an array.
Mt19937::Mt19937(std::span<const std::uint32_t> key) {
  constexpr std::uint32_t kBaseSeed = 19650218;
  constexpr std::uint32_t kSeedMultiplier = 1812433253;
  constexpr std::uint32_t kFirstMultiplier = 1664525;
  constexpr std::uint32_t kSecondMultiplier = 1566083941;
  const auto word = [](std::size_t value) { return static_cast<std::uint32_t>(value); };
  state_[0] = kBaseSeed;
  for (std::size_t i = 1; i < kWords; ++i) {
    state_[i] = kSeedMultiplier * (state_[i - 1] ^ (state_[i - 1] >> 30)) + word(i);
  }
  std::size_t i = 1;
  const auto step = [&] {
    if (++i >= kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  std::size_t j = 0;
  for (std::size_t k = std::max(kWords, key.size()); k != 0; --k) {
    const std::uint32_t before = state_[i - 1] ^ (state_[i - 1] >> 30);
    state_[i] = (state_[i] ^ (before * kFirstMultiplier)) + key[j] + word(j);
    step();
    if (++j >= key.size()) j = 0;
  }
  for (std::size_t k = kWords - 1; k != 0; --k) {
    const std::uint32_t before = state_[i - 1] ^ (state_[i - 1] >> 30);
    state_[i] = (state_[i] ^ (before * kSecondMultiplier)) - word(i);
    step();
  }
  state_[0] = 0x80000000U;
}

void Mt19937::refill() noexcept {
  constexpr std::uint32_t kUpper = 0x80000000U;
  constexpr std::uint32_t kTwist = 0x9908b0dfU;
  for (std::size_t k = 0; k < kWords; ++k) {
    const std::uint32_t y = (state_[k] & kUpper) | (state_[(k + 1) % kWords] & ~kUpper);
    state_[k] = state_[(k + kMiddle) % kWords] ^ (y >> 1) ^ ((y & 1) != 0 ? kTwist : 0);
  }
  next_ = 0;
}

std::uint32_t Mt19937::next32() noexcept {
  if (next_ == kWords) refill();
  std::uint32_t y = state_[next_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  return y ^ (y >> 18);
}

}  // namespace headrace::numpy_random
