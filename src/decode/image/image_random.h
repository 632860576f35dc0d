#pragma once
/// \file
/// What is random about an image: numbers that follow from its key alone, whatever the machine, the
/// thread and the order in which they are asked for.
///
/// Number n of a use is mix64(mix64(key + (use + 1) * G) + (n + 1) * G), G = 0x9e3779b97f4a7c15: a
/// counter run through SplitMix64's finaliser. Each use has its own numbers, so that to ask for
/// flips does not move the crops. Fixed for ever: a change would change what runs see.
///
/// Threads: values.
#include <cstdint>

#include "base/random.h"

namespace headrace::detail {

/// Values are part of what is drawn; never reused.
enum class RandomUse : std::uint8_t {
  kResizedCrop = 0,
  kCrop = 1,
  kHorizontalFlip = 2,
  kVerticalFlip = 3,
  kAugment = 4,
  kJitter = 5,
};

class ImageRandom {
 public:
  ImageRandom(std::uint64_t key, RandomUse use) noexcept
      : random_(mix64(key + (static_cast<std::uint64_t>(use) + 1) * 0x9e3779b97f4a7c15ULL)) {}
  /// Uniform in [low, high).
  double between(double low, double high) noexcept { return low + (high - low) * random_.unit(); }
  /// Uniform in [0, bound). \pre bound > 0
  std::uint32_t below(std::uint64_t bound) noexcept {
    return static_cast<std::uint32_t>(random_.below(bound));
  }
  bool happens(double probability) noexcept { return random_.unit() < probability; }

 private:
  Random random_;
};

}  // namespace headrace::detail
