#include "store/s3/s3_checksum.h"

#include "base/crc32c.h"
#include "base/crc64nvme.h"

namespace headrace::s3 {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr unsigned bytes_of(ChecksumKind kind) noexcept {
  return kind == ChecksumKind::kCrc64Nvme ? 8 : 4;
}

std::string_view name_of(ChecksumKind kind, std::string_view crc32c_name,
                         std::string_view crc64nvme_name) noexcept {
  switch (kind) {
    case ChecksumKind::kCrc32c:
      return crc32c_name;
    case ChecksumKind::kCrc64Nvme:
      return crc64nvme_name;
    case ChecksumKind::kNone:
      break;
  }
  return {};
}

}  // namespace

std::string_view checksum_field(ChecksumKind kind) noexcept {
  return name_of(kind, "x-amz-checksum-crc32c", "x-amz-checksum-crc64nvme");
}
std::string_view checksum_algorithm(ChecksumKind kind) noexcept {
  return name_of(kind, "CRC32C", "CRC64NVME");
}
std::string_view checksum_element(ChecksumKind kind) noexcept {
  return name_of(kind, "ChecksumCRC32C", "ChecksumCRC64NVME");
}

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
  const unsigned count = bytes_of(kind);
  // Byte k of the sum, most significant first; zero behind its end.
  const auto byte = [&](unsigned k) -> std::uint64_t {
    return k < count ? (value >> (8 * (count - 1 - k))) & 0xff : 0;
  };
  for (unsigned k = 0; k < count; k += 3) {
    const std::uint64_t group = byte(k) << 16 | byte(k + 1) << 8 | byte(k + 2);
    out.push_back(kAlphabet[group >> 18 & 63]);
    out.push_back(kAlphabet[group >> 12 & 63]);
    out.push_back(k + 1 < count ? kAlphabet[group >> 6 & 63] : '=');
    out.push_back(k + 2 < count ? kAlphabet[group & 63] : '=');
  }
}

std::optional<std::uint64_t> parse_checksum_text(ChecksumKind kind,
                                                 std::string_view text) noexcept {
  if (kind == ChecksumKind::kNone) return std::nullopt;
  const unsigned count = bytes_of(kind);
  const std::size_t digits = (count * 8 + 5) / 6;
  const std::size_t padded = (count + 2) / 3 * 4;
  if (text.size() != padded ||
      text.substr(digits) != std::string_view("==").substr(0, padded - digits))
    return std::nullopt;
  std::uint64_t value = 0;
  unsigned spare_bits = static_cast<unsigned>(digits * 6 - count * 8);
  for (std::size_t k = 0; k < digits; ++k) {
    const std::size_t digit = kAlphabet.find(text[k]);
    if (digit == std::string_view::npos) return std::nullopt;
    if (k + 1 < digits) {
      value = value << 6 | digit;
    } else {
      value = value << (6 - spare_bits) | digit >> spare_bits;
    }
  }
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

BodyChecksum announced_checksum(const http::ResponseHead& head) noexcept {
  if (head.status == 206) {
    if (!head.content_range) return {};
    const http::ContentRange& range = *head.content_range;
    const bool is_whole = range.first == 0 && range.total && range.last + 1 == *range.total;
    // In a partial answer about an object with a sum of sums, a plain sum is that of the part that
    // was asked for; of any other object it would be the whole object's.
    if (!is_whole && head.header("x-amz-checksum-type") != "COMPOSITE") return {};
  } else if (head.status != 200) {
    return {};
  }
  for (const ChecksumKind kind : {ChecksumKind::kCrc64Nvme, ChecksumKind::kCrc32c}) {
    if (const auto value = parse_checksum_text(kind, head.header(checksum_field(kind))))
      return {kind, *value};
  }
  return {};
}

}  // namespace headrace::s3
