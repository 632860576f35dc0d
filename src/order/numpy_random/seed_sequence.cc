#include "order/numpy_random/seed_sequence.h"

namespace headrace::numpy_random {
namespace {

// numpy/random/bit_generator.pyx.
constexpr std::uint32_t kInitA = 0x43b0d7e5;
constexpr std::uint32_t kMultA = 0x931e8875;
constexpr std::uint32_t kInitB = 0x8b51f9dd;
constexpr std::uint32_t kMultB = 0x58f38ded;
constexpr std::uint32_t kMixLeft = 0xca01f9dd;
constexpr std::uint32_t kMixRight = 0x4973f715;
constexpr unsigned kShift = 16;

struct HashMix {
  std::uint32_t h = kInitA;
  std::uint32_t operator()(std::uint32_t value) noexcept {
    value ^= h;
    h *= kMultA;
    value *= h;
    return value ^ (value >> kShift);
  }
};

std::uint32_t mix(std::uint32_t x, std::uint32_t y) noexcept {
  const std::uint32_t r = kMixLeft * x - kMixRight * y;
  return r ^ (r >> kShift);
}

}  // namespace

std::vector<std::uint32_t> words_of(std::uint64_t value) {
  std::vector<std::uint32_t> words{static_cast<std::uint32_t>(value)};
  if (value >> 32 != 0) words.push_back(static_cast<std::uint32_t>(value >> 32));
  return words;
}

SeedSequence::SeedSequence(std::span<const std::uint32_t> entropy) {
  HashMix hash;
  for (std::size_t i = 0; i < kPoolWords; ++i) pool_[i] = hash(i < entropy.size() ? entropy[i] : 0);
  for (std::size_t from = 0; from < kPoolWords; ++from) {
    for (std::size_t to = 0; to < kPoolWords; ++to) {
      if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from]));
    }
  }
  for (std::size_t i = kPoolWords; i < entropy.size(); ++i) {
    for (std::uint32_t& word : pool_) word = mix(word, hash(entropy[i]));
  }
}

std::vector<std::uint32_t> SeedSequence::generate_u32(std::size_t n) const {
  std::vector<std::uint32_t> out(n);
  std::uint32_t h = kInitB;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t value = pool_[i % kPoolWords] ^ h;
    h *= kMultB;
    value *= h;
    out[i] = value ^ (value >> kShift);
  }
  return out;
}

std::vector<std::uint64_t> SeedSequence::generate_u64(std::size_t n) const {
  const std::vector<std::uint32_t> words = generate_u32(2 * n);
  std::vector<std::uint64_t> out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = words[2 * i] | static_cast<std::uint64_t>(words[2 * i + 1]) << 32;
  return out;
}

}  // namespace headrace::numpy_random
