#include "sim/allowed.h"

#include <algorithm>
#include <array>
#include <utility>

#include "http/fields.h"
#include "sim/checksum.h"
#include "sim/service.h"

namespace headrace::sim {
namespace {

constexpr std::uint64_t bit(Kind kind) { return std::uint64_t{1} << static_cast<unsigned>(kind); }

template <typename... Kinds>
constexpr std::uint64_t bits(Kinds... kinds) {
  return (bit(kinds) | ...);
}

constexpr std::uint64_t kAny = ~std::uint64_t{0};
constexpr std::uint64_t kRead = bits(Kind::kGetObject, Kind::kHeadObject);
constexpr std::uint64_t kPut = bits(Kind::kPutObject, Kind::kPostForm);
constexpr std::uint64_t kCopy = bits(Kind::kCopyObject, Kind::kCopyPart);
constexpr std::uint64_t kPart = bits(Kind::kUploadPart, Kind::kCopyPart);
constexpr std::uint64_t kDelete = bits(Kind::kDeleteObject, Kind::kDeleteObjects);
constexpr std::uint64_t kList = bits(Kind::kListObjects, Kind::kListVersions);
constexpr std::uint64_t kNewObject = bits(Kind::kPutObject, Kind::kCopyObject, Kind::kCreateUpload);
constexpr std::uint64_t kWhole = bits(Kind::kPutObject, Kind::kCopyObject, Kind::kCompleteUpload);

/// A name, the operations that know it, and the values that they know, comma-separated (empty:
/// all). Operations that know other values of the same name have an entry of their own.
struct Known {
  std::string_view name;
  std::uint64_t kinds;
  std::string_view values = {};
};

constexpr std::array kParameters = std::to_array<Known>({
    {"attributes", bit(Kind::kGetAttributes)},
    {"bucket-region", bit(Kind::kListBuckets)},
    {"continuation-token", bits(Kind::kListObjects, Kind::kListBuckets)},
    {"delete", bit(Kind::kDeleteObjects)},
    {"delimiter", kList},
    {"encoding-type", kList | bit(Kind::kListUploads), "url"},
    {"fetch-owner", bit(Kind::kListObjects)},
    {"key-marker", bits(Kind::kListUploads, Kind::kListVersions)},
    {"list-type", bit(Kind::kListObjects), "2"},
    {"location", bit(Kind::kGetLocation)},
    {"marker", bit(Kind::kListObjects)},
    {"max-buckets", bit(Kind::kListBuckets)},
    {"max-keys", kList},
    {"max-parts", bit(Kind::kListParts)},
    {"max-uploads", bit(Kind::kListUploads)},
    {"part-number-marker", bit(Kind::kListParts)},
    {"partNumber", kRead | kPart},
    {"prefix", kList | bits(Kind::kListUploads, Kind::kListBuckets)},
    {"response-cache-control", kRead},
    {"response-content-disposition", kRead},
    {"response-content-encoding", kRead},
    {"response-content-language", kRead},
    {"response-content-type", kRead},
    {"response-expires", kRead},
    {"session", bit(Kind::kCreateSession)},
    {"start-after", bit(Kind::kListObjects)},
    {"upload-id-marker", bit(Kind::kListUploads)},
    {"uploadId", kPart | bits(Kind::kCompleteUpload, Kind::kAbortUpload, Kind::kListParts)},
    {"uploads", bits(Kind::kCreateUpload, Kind::kListUploads)},
    {"version-id-marker", bit(Kind::kListVersions)},
    {"versionId", kRead | bits(Kind::kDeleteObject, Kind::kGetAttributes), "null"},
    {"versioning", bit(Kind::kGetVersioning)},
    {"versions", bit(Kind::kListVersions)},
    {"x-id", kAny},  // names the operation, for the logs of proxies
    {kTicketParameter, kRead},
    // Of presigned URLs.
    {"X-Amz-Algorithm", kAny},
    {"X-Amz-Content-Sha256", kAny},
    {"X-Amz-Credential", kAny},
    {"X-Amz-Date", kAny},
    {"X-Amz-Expires", kAny},
    {"X-Amz-Security-Token", kAny},
    {"X-Amz-Signature", kAny},
    {"X-Amz-SignedHeaders", kAny},
});

constexpr std::array kFields = std::to_array<Known>({
    {"content-range", 0},  // S3 has no writes of parts of an object by it
    {"if-match", kRead | kWhole | bit(Kind::kDeleteObject)},
    {"if-modified-since", kRead},
    {"if-none-match", kRead},
    {"if-none-match", kWhole, "*"},
    {"if-unmodified-since", kRead},
    {"x-amz-acl", kNewObject | bit(Kind::kCreateBucket),
     "private,bucket-owner-read,bucket-owner-full-control"},
    {"x-amz-api-version", kAny, "2006-03-01"},
    // Nothing is locked, so there is nothing to bypass.
    {"x-amz-bypass-governance-retention", kDelete},
    {"x-amz-bucket-object-lock-enabled", bit(Kind::kCreateBucket), "false"},
    {"x-amz-checksum-algorithm", kNewObject | kPart | bit(Kind::kDeleteObjects)},
    {"x-amz-checksum-mode", kRead, "ENABLED"},
    {"x-amz-checksum-type", bits(Kind::kCreateUpload, Kind::kCompleteUpload),
     "COMPOSITE,FULL_OBJECT"},
    {"x-amz-content-sha256", kAny},
    {"x-amz-copy-source", kCopy},
    {"x-amz-copy-source-if-match", kCopy},
    {"x-amz-copy-source-if-modified-since", kCopy},
    {"x-amz-copy-source-if-none-match", kCopy},
    {"x-amz-copy-source-if-unmodified-since", kCopy},
    {"x-amz-copy-source-range", bit(Kind::kCopyPart)},
    {"x-amz-create-session-mode", bit(Kind::kCreateSession)},
    {"x-amz-date", kAny},
    {"x-amz-decoded-content-length", kPut | bit(Kind::kUploadPart)},
    {"x-amz-expected-bucket-owner", kAny},
    {"x-amz-if-match-last-modified-time", bit(Kind::kDeleteObject)},
    {"x-amz-if-match-size", bit(Kind::kDeleteObject)},
    {"x-amz-max-parts", bit(Kind::kGetAttributes)},
    {"x-amz-metadata-directive", bit(Kind::kCopyObject), "COPY,REPLACE"},
    {"x-amz-object-attributes", bit(Kind::kGetAttributes)},
    {"x-amz-optional-object-attributes", kList, "RestoreStatus"},  // nothing is ever restored
    {"x-amz-object-ownership", bit(Kind::kCreateBucket), "BucketOwnerEnforced"},
    {"x-amz-part-number-marker", bit(Kind::kGetAttributes)},
    {"x-amz-request-payer", kAny, "requester"},
    {"x-amz-s3session-token", kAny},
    {"x-amz-sdk-checksum-algorithm", kAny},
    {"x-amz-security-token", kAny},
    {"x-amz-source-expected-bucket-owner", kCopy},
    {"x-amz-storage-class", kNewObject,
     "STANDARD,REDUCED_REDUNDANCY,STANDARD_IA,ONEZONE_IA,INTELLIGENT_TIERING,GLACIER_IR,GLACIER,"
     "DEEP_ARCHIVE"},
    {"x-amz-tagging-directive", bit(Kind::kCopyObject), "COPY"},
    {"x-amz-te", kRead},  // a wish for a trailing MD5, which S3 does not grant either
    {"x-amz-trailer", kPut | bit(Kind::kUploadPart)},
    {"x-amz-user-agent", kAny},
    {"x-goog-api-client", kAny},
    {"x-goog-content-sha256", kAny},
    {"x-goog-copy-source", kCopy},
    {"x-goog-date", kAny},
    {"x-goog-hash", kPut | kPart},
    {"x-goog-if-generation-match", kRead | kWhole},
    {"x-goog-storage-class", kNewObject, "STANDARD,NEARLINE,COLDLINE,ARCHIVE"},
    {"x-goog-user-project", kAny},
});

template <std::size_t kCount>
bool is_known(const std::array<Known, kCount>& table, std::string_view name, Kind kind,
              std::string_view value) {
  return std::any_of(table.begin(), table.end(), [&](const Known& known) {
    return (known.kinds & bit(kind)) != 0 && http::equals_ignoring_case(known.name, name) &&
           (known.values.empty() || http::list_contains(known.values, value));
  });
}

bool begins_with(std::string_view name, std::string_view prefix) {
  return http::equals_ignoring_case(name.substr(0, prefix.size()), prefix);
}

/// Other fields are of HTTP itself, or of nobody.
bool has_meaning(std::string_view name) {
  return begins_with(name, "x-amz-") || begins_with(name, "x-goog-") || begins_with(name, "if-") ||
         http::equals_ignoring_case(name, "content-range");
}

bool is_known_field(const http::Field& field, Kind kind) {
  if (begins_with(field.name, "x-amz-meta-")) return ((kNewObject | kPut) & bit(kind)) != 0;
  ChecksumKind ignored;
  if (checksum_kind_of(field.name, ignored)) {
    return ((kPut | bits(Kind::kUploadPart, Kind::kCompleteUpload, Kind::kDeleteObjects)) &
            bit(kind)) != 0;
  }
  // S3 takes "*", any object, as a condition of reads and removals, and refuses it of writes.
  if ((kWhole & bit(kind)) != 0 && http::equals_ignoring_case(field.name, "if-match") &&
      http::list_contains(field.value, "*")) {
    return false;
  }
  return is_known(kFields, field.name, kind, field.value);
}

/// Whether the field says a checksum, or which one will come behind the body.
bool is_checksum(const http::Field& field) {
  ChecksumKind ignored;
  const bool is_trailer = http::equals_ignoring_case(field.name, "x-amz-trailer");
  return checksum_kind_of(is_trailer ? field.value : field.name, ignored);
}

bool is_content_hash(std::string_view text) {
  if (text == "UNSIGNED-PAYLOAD" || text == "STREAMING-UNSIGNED-PAYLOAD-TRAILER" ||
      text == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" ||
      text == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER") {
    return true;
  }
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

S3Code check_value(const http::Field& field, std::string& detail) {
  const bool names_owner =
      http::equals_ignoring_case(field.name, "x-amz-expected-bucket-owner") ||
      http::equals_ignoring_case(field.name, "x-amz-source-expected-bucket-owner");
  if (names_owner && field.value != kOwnerId) return S3Code::kAccessDenied;
  if (http::equals_ignoring_case(field.name, "x-amz-content-sha256") &&
      !is_content_hash(field.value)) {
    detail = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-... or a SHA-256 in hex";
    return S3Code::kInvalidArgument;
  }
  return S3Code::kNone;
}

}  // namespace

S3Code check_allowed(const http::RequestHead& head, const Target& target, std::string& detail) {
  const auto refuse = [&detail](std::string_view what, std::string_view name,
                                std::string_view value) {
    detail = "The simulator does not implement " + std::string(what) + " " + std::string(name) +
             (value.empty() ? "" : " with the value \"" + std::string(value) + "\"") +
             " for this operation.";
    return S3Code::kNotImplemented;
  };
  for (const auto& [name, value] : target.query) {
    if (!is_known(kParameters, name, target.kind, value)) {
      return refuse("the parameter", name, value);
    }
  }
  bool has_checksum = false;
  std::string_view fields = head.fields;
  http::Field field;
  while (http::next_field(fields, field)) {
    if (!has_meaning(field.name)) continue;
    if (!is_known_field(field, target.kind)) return refuse("the field", field.name, field.value);
    if (const S3Code code = check_value(field, detail); code != S3Code::kNone) return code;
    if (is_checksum(field) && std::exchange(has_checksum, true)) {
      detail =
          "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";
      return S3Code::kInvalidRequest;
    }
  }
  return S3Code::kNone;
}

}  // namespace headrace::sim
