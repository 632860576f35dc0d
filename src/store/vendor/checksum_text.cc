#include "store/vendor/checksum_text.h"

#include <array>

#include "base/base64.h"
#include "base/crc32c.h"
#include "base/crc64nvme.h"

namespace headrace::vendor {
namespace {

constexpr std::size_t bytes_of(ChecksumKind kind) noexcept {
  return kind == ChecksumKind::kCrc64Nvme ? 8 : 4;
}

}  // namespace

std::uint64_t checksum_value(ChecksumKind kind, std::span<const std::byte> bytes) noexcept {
  switch (kind) {
    case ChecksumKind::kCrc32c:
      return crc32c(bytes);
    case ChecksumKind::kCrc64Nvme:
      return crc64nvme(bytes);
    case ChecksumKind::kNone:
      break;
  }
  return 0;
}

void append_checksum_text(ChecksumKind kind, std::uint64_t value, std::string& out) {
  const std::size_t count = bytes_of(kind);
  std::array<std::byte, 8> bytes{};
  for (std::size_t k = 0; k < count; ++k, value >>= 8)
    bytes[count - 1 - k] = static_cast<std::byte>(value & 0xff);
  append_base64(std::span(bytes).first(count), out);
}

std::optional<std::uint64_t> parse_checksum_text(ChecksumKind kind,
                                                 std::string_view text) noexcept {
  if (kind == ChecksumKind::kNone) return std::nullopt;
  std::array<std::byte, 8> room{};
  const std::span bytes = std::span(room).first(bytes_of(kind));
  if (!decode_base64(text, bytes)) return std::nullopt;
  std::uint64_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | std::to_integer<std::uint64_t>(byte);
  return value;
}

std::optional<std::uint64_t> combined_checksum(ChecksumKind kind,
                                               std::span<const UploadedPart> parts) noexcept {
  if (kind == ChecksumKind::kNone || parts.empty()) return std::nullopt;
  std::uint64_t whole = 0;
  for (const UploadedPart& part : parts) {
    const auto sum = parse_checksum_text(kind, part.checksum);
    if (!sum || part.size_bytes == 0) return std::nullopt;
    whole = kind == ChecksumKind::kCrc32c
                ? crc32c_combine(static_cast<std::uint32_t>(whole),
                                 static_cast<std::uint32_t>(*sum), part.size_bytes)
                : crc64nvme_combine(whole, *sum, part.size_bytes);
  }
  return whole;
}

}  // namespace headrace::vendor
