#pragma once
/// \file
/// From 8-bit samples to the type of a batch, and from channels side by side to one after the
/// other.
///
/// Threads: functions; SampleScale is immutable.
#include <array>
#include <cstddef>
#include <cstdint>

#include "headrace/decode.h"

namespace headrace::detail {

/// A sample s of channel c becomes s * factor + offset. A multiple of all counts of channels, so
/// that vectors find theirs at the same place: entry i is channel i % channels.
struct SampleScale {
  static constexpr std::size_t kPeriod = 24;
  std::array<float, kPeriod> factor{};
  std::array<float, kPeriod> offset{};
};

struct PixelConversions {
  /// `count` samples that begin with channel 0, to out: float32, or the upper 16 bits of them
  /// rounded to even, or IEEE half. kUint8 is not converted.
  void (*convert)(const SampleScale& scale, PixelType type, const std::uint8_t* in,
                  std::size_t count, std::byte* out);
  /// `count` pixels of 3 channels to three rows.
  void (*split)(const std::uint8_t* in, std::size_t count, std::uint8_t* const out[3]);
};

extern const PixelConversions kScalarConversions;
/// The fastest of this machine; the same bytes.
const PixelConversions& pixel_conversions() noexcept;
/// nullptr where this machine has none of the instructions that there is code for.
const PixelConversions* simd_conversions() noexcept;

constexpr std::size_t sample_bytes(PixelType type) noexcept {
  if (type == PixelType::kUint8) return 1;
  return type == PixelType::kFloat32 ? 4 : 2;
}

}  // namespace headrace::detail
