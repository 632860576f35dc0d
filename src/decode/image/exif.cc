#include "decode/image/exif.h"

#include <cstdint>

namespace headrace::detail {
namespace {

constexpr std::uint32_t kOrientationTag = 0x112;
constexpr std::uint32_t kShort = 3;
constexpr std::size_t kEntryBytes = 12;

/// Numbers of either byte order; 0 outside of the data.
class TiffBytes {
 public:
  explicit TiffBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool has_order() noexcept {
    is_little_ = byte(0) == 'I';
    return (byte(0) == 'I' || byte(0) == 'M') && byte(1) == byte(0) && u16(2) == 42;
  }
  std::uint32_t u16(std::size_t at) const noexcept {
    return is_little_ ? byte(at) | byte(at + 1) << 8 : byte(at) << 8 | byte(at + 1);
  }
  std::uint32_t u32(std::size_t at) const noexcept {
    return is_little_ ? u16(at) | u16(at + 2) << 16 : u16(at) << 16 | u16(at + 2);
  }
  bool has(std::size_t at, std::size_t count) const noexcept {
    return at <= bytes_.size() && count <= bytes_.size() - at;
  }

 private:
  std::uint32_t byte(std::size_t at) const noexcept {
    return at < bytes_.size() ? static_cast<std::uint32_t>(bytes_[at]) : 0;
  }
  std::span<const std::byte> bytes_;
  bool is_little_ = true;
};

}  // namespace

Orientation exif_orientation(std::span<const std::byte> bytes) noexcept {
  TiffBytes tiff(bytes);
  if (!tiff.has_order()) return 1;
  const std::size_t directory = tiff.u32(4);
  const std::uint32_t count = tiff.u16(directory);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t entry = directory + 2 + i * kEntryBytes;
    if (!tiff.has(entry, kEntryBytes)) return 1;
    if (tiff.u16(entry) != kOrientationTag) continue;
    const std::uint32_t value = tiff.u16(entry + 8);
    const bool is_valid = tiff.u16(entry + 2) == kShort && value >= 1 && value <= 8;
    return is_valid ? static_cast<Orientation>(value) : Orientation{1};
  }
  return 1;
}

}  // namespace headrace::detail
