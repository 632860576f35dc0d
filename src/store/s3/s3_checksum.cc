#include "store/s3/s3_checksum.h"

namespace headrace::s3 {
namespace {

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

Checksum sum_in(const http::ResponseHead& head) noexcept {
  for (const ChecksumKind kind : {ChecksumKind::kCrc64Nvme, ChecksumKind::kCrc32c}) {
    if (const auto value = vendor::parse_checksum_text(kind, head.header(checksum_field(kind))))
      return {kind, *value};
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

Checksum announced_checksum(const http::ResponseHead& head) noexcept {
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
  return sum_in(head);
}

Checksum object_checksum(const http::ResponseHead& head) noexcept {
  if (head.header("x-amz-checksum-type") == "COMPOSITE") return {};
  return sum_in(head);
}

}  // namespace headrace::s3
