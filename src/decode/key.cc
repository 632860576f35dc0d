#include "headrace/decode.h"

namespace headrace {
namespace {

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): each bit of the result depends on all of x.
std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;

}  // namespace

std::uint64_t decode_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t position) noexcept {
  return mix(mix(mix(seed + kGolden) + epoch + kGolden) + position + kGolden);
}

}  // namespace headrace
