// S3 combines the sums of parts by what the upload began with: CRCs to one of all bytes
// (FULL_OBJECT), CRCs but CRC-64 and the SHAs to one of the parts' sums (COMPOSITE). A part with
// another sum, or a completion that does not repeat those of a COMPOSITE upload, is refused. A part
// without a sum is refused by COMPOSITE uploads; for the others S3 computes it.
#include "sim/upload_sums.h"

#include "base/strings.h"
#include "sim/checksum.h"

namespace headrace::sim {
namespace {

constexpr std::string_view kPrefix = "x-amz-checksum-";

/// "crc32c", as S3's messages call it.
std::string_view algorithm_of(std::string_view field) {
  return field.empty() ? "null" : field.substr(kPrefix.size());
}

std::string_view type_of(const UploadSums& sums) {
  return sums.is_composite ? "COMPOSITE" : "FULL_OBJECT";
}

bool can_be(ChecksumKind kind, bool is_composite) {
  const bool is_digest = kind == ChecksumKind::kSha1 || kind == ChecksumKind::kSha256;
  return is_composite ? kind != ChecksumKind::kCrc64Nvme : !is_digest;
}

S3Code refuse(std::string message, std::string& detail) {
  detail = std::move(message);
  return S3Code::kInvalidRequest;
}

}  // namespace

S3Code read_upload_sums(const http::RequestHead& head, UploadSums& out, std::string& detail) {
  out = UploadSums();
  const std::string_view algorithm = head.header("x-amz-checksum-algorithm");
  const std::string_view type = head.header("x-amz-checksum-type");
  if (algorithm.empty()) {
    if (type.empty()) return S3Code::kNone;
    return refuse(
        "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
        detail);
  }
  out.field = std::string(kPrefix) + to_lower(algorithm);
  ChecksumKind kind;
  if (!checksum_kind_of(out.field, kind)) {
    return refuse(
        "Checksum algorithm provided is unsupported. Please try again with any of the valid types: "
        "[CRC32, CRC32C, CRC64NVME, SHA1, SHA256]",
        detail);
  }
  out.is_composite = type.empty() ? can_be(kind, true) : type == "COMPOSITE";
  if (can_be(kind, out.is_composite)) return S3Code::kNone;
  return refuse("The " + std::string(type_of(out)) + " checksum type cannot be used with the " +
                    std::string(algorithm_of(out.field)) + " checksum algorithm.",
                detail);
}

std::string to_text(const UploadSums& sums) {
  return sums.field + " " + std::string(type_of(sums));
}

UploadSums upload_sums_from_text(std::string_view text) {
  UploadSums sums;
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return sums;
  sums.field = text.substr(0, space);
  sums.is_composite = text.substr(space + 1) != "FULL_OBJECT";
  return sums;
}

S3Code check_part_sum(const UploadSums& sums, std::string_view field, std::string& detail) {
  const bool is_good =
      sums.field.empty() || field == sums.field || (field.empty() && !sums.is_composite);
  if (is_good) return S3Code::kNone;
  return refuse("Checksum Type mismatch occurred, expected checksum Type: " +
                    std::string(algorithm_of(sums.field)) +
                    ", actual checksum Type: " + std::string(algorithm_of(field)),
                detail);
}

S3Code check_listed_sum(const UploadSums& sums, std::uint32_t part_number, bool has_sum,
                        std::string& detail) {
  if (sums.field.empty() || !sums.is_composite || has_sum) return S3Code::kNone;
  return refuse("The upload was created using a " + std::string(algorithm_of(sums.field)) +
                    " checksum. The complete request must include the checksum for each part. It "
                    "was missing for part " +
                    std::to_string(part_number) + " in the request.",
                detail);
}

S3Code check_completed_type(const UploadSums& sums, std::string_view type, std::string& detail) {
  if (sums.field.empty() || type.empty() || type == type_of(sums)) return S3Code::kNone;
  return refuse("The upload was created using the " + std::string(type_of(sums)) +
                    " checksum mode. The complete request must use the same checksum mode.",
                detail);
}

}  // namespace headrace::sim
