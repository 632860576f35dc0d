#include "decode/image/pixel_type.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace headrace::detail {
namespace {

std::uint16_t to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

/// IEEE half, ties to even; larger ones become infinite.
std::uint16_t to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t rest = bits & 0x7FFFFFFF;
  if (rest >= 0x47800000) return static_cast<std::uint16_t>(sign | 0x7C00);
  if (rest < 0x38800000) {  // Below the least normal one: a whole number of 2^-24.
    const float steps = std::nearbyint(std::bit_cast<float>(rest) * 0x1p24F);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(steps));
  }
  const std::uint32_t rounded = rest + 0xFFF + ((rest >> 13) & 1);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

template <class T, class Make>
void convert_each(const SampleScale& scale, const std::uint8_t* in, std::size_t count,
                  std::byte* out, Make make) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t c = i % SampleScale::kPeriod;
    const T value = make(static_cast<float>(in[i]) * scale.factor[c] + scale.offset[c]);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

void scalar_convert(const SampleScale& scale, PixelType type, const std::uint8_t* in,
                    std::size_t count, std::byte* out) {
  switch (type) {
    case PixelType::kFloat16:
      return convert_each<std::uint16_t>(scale, in, count, out, to_float16);
    case PixelType::kBfloat16:
      return convert_each<std::uint16_t>(scale, in, count, out, to_bfloat16);
    case PixelType::kFloat32:
      return convert_each<float>(scale, in, count, out, [](float value) { return value; });
    case PixelType::kUint8:
      break;
  }
}

void scalar_split(const std::uint8_t* in, std::size_t count, std::uint8_t* const out[3]) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t c = 0; c < 3; ++c) out[c][i] = in[3 * i + c];
  }
}

}  // namespace

const PixelConversions kScalarConversions = {scalar_convert, scalar_split};

const PixelConversions& pixel_conversions() noexcept {
  static const PixelConversions& found =
      simd_conversions() != nullptr ? *simd_conversions() : kScalarConversions;
  return found;
}

#if !defined(__x86_64__)
const PixelConversions* simd_conversions() noexcept { return nullptr; }
#endif

}  // namespace headrace::detail
