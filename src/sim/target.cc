// What a request means is decided here once, from method, path and query, in the order of S3's own
// documentation: a bucket in the host name or in the first part of the path, the rest is the key,
// and subresources (?uploads, ?uploadId=) choose among operations of the same method. Parameters
// that none of them has are refused by the list in allowed.cc: a client that puts ?acl must not
// overwrite the object.
//
// Bucket and key are decoded after the path has been split: "%2F" belongs to a name and is no
// separator.
#include "sim/target.h"

#include <algorithm>
#include <array>

#include "http/fields.h"
#include "sim/key_path.h"

namespace headrace::sim {
namespace {

constexpr std::string_view kAdminPrefix = "/_headrace/";
// Google's metadata server.
constexpr std::string_view kMetadataPrefix = "/computeMetadata/";

bool has(const Target& target, std::string_view name) { return target.parameter(name).has_value(); }

S3Code set_kind(Target& target, Kind kind) {
  target.kind = kind;
  return S3Code::kNone;
}

S3Code service_kind(std::string_view method, Target& target) {
  if (method == "GET") return set_kind(target, Kind::kListBuckets);
  return S3Code::kMethodNotAllowed;
}

S3Code bucket_kind(const http::RequestHead& head, Target& target) {
  const std::string_view method = head.method;
  if (method == "GET") {
    if (has(target, "location")) return set_kind(target, Kind::kGetLocation);
    if (has(target, "uploads")) return set_kind(target, Kind::kListUploads);
    if (has(target, "session")) return set_kind(target, Kind::kCreateSession);
    if (has(target, "versioning")) return set_kind(target, Kind::kGetVersioning);
    if (has(target, "versions")) return set_kind(target, Kind::kListVersions);
    return set_kind(target, Kind::kListObjects);
  }
  if (method == "HEAD") return set_kind(target, Kind::kHeadBucket);
  if (method == "PUT") return set_kind(target, Kind::kCreateBucket);
  if (method == "DELETE") return set_kind(target, Kind::kDeleteBucket);
  if (method == "POST" && has(target, "delete")) return set_kind(target, Kind::kDeleteObjects);
  if (method == "POST" && head.header("content-type").starts_with("multipart/form-data")) {
    return set_kind(target, Kind::kPostForm);
  }
  return method == "POST" ? S3Code::kNotImplemented : S3Code::kMethodNotAllowed;
}

S3Code object_kind(const http::RequestHead& head, Target& target) {
  const std::string_view method = head.method;
  const bool is_upload = has(target, "uploadId");
  if (method == "GET") {
    if (has(target, "attributes")) return set_kind(target, Kind::kGetAttributes);
    return set_kind(target, is_upload ? Kind::kListParts : Kind::kGetObject);
  }
  if (method == "HEAD") return set_kind(target, Kind::kHeadObject);
  if (method == "PUT") {
    const bool is_copy =
        !head.header("x-amz-copy-source").empty() || !head.header("x-goog-copy-source").empty();
    if (is_upload) return set_kind(target, is_copy ? Kind::kCopyPart : Kind::kUploadPart);
    return set_kind(target, is_copy ? Kind::kCopyObject : Kind::kPutObject);
  }
  if (method == "DELETE") {
    return set_kind(target, is_upload ? Kind::kAbortUpload : Kind::kDeleteObject);
  }
  if (method == "POST") {
    if (is_upload) return set_kind(target, Kind::kCompleteUpload);
    if (has(target, "uploads")) return set_kind(target, Kind::kCreateUpload);
    return S3Code::kNotImplemented;
  }
  return S3Code::kMethodNotAllowed;
}

/// "bucket" of "bucket.localhost:9000"; empty for other hosts.
std::string_view bucket_of_host(std::string_view host) {
  constexpr std::string_view kSuffix = ".localhost";
  const std::size_t colon = host.rfind(':');
  if (colon != std::string_view::npos) host = host.substr(0, colon);
  if (host.size() <= kSuffix.size() || !host.ends_with(kSuffix)) return {};
  return host.substr(0, host.size() - kSuffix.size());
}

}  // namespace

std::string_view kind_name(Kind kind) noexcept {
  constexpr std::array<std::string_view, static_cast<std::size_t>(Kind::kCount)> kKindNames = {
      "get_object",     "head_object",   "put_object",    "copy_object",    "delete_object",
      "delete_objects", "list_objects",  "list_versions", "list_buckets",   "head_bucket",
      "create_bucket",  "delete_bucket", "get_location",  "get_versioning", "get_attributes",
      "post_form",      "create_upload", "upload_part",   "copy_part",      "complete_upload",
      "abort_upload",   "list_parts",    "list_uploads",  "create_session", "admin",
      "invalid"};
  return kKindNames[static_cast<std::size_t>(kind)];
}

bool is_directory_bucket(std::string_view bucket) noexcept { return bucket.ends_with("--x-s3"); }

std::optional<std::string_view> Target::parameter(std::string_view name) const noexcept {
  for (const auto& [key_text, value] : query) {
    if (key_text == name) return value;
  }
  return std::nullopt;
}

bool is_directory_list(const Target& target) noexcept {
  const std::string_view prefix = target.parameter("prefix").value_or("");
  const std::string_view delimiter = target.parameter("delimiter").value_or("");
  return (prefix.empty() || prefix.ends_with('/')) && (delimiter.empty() || delimiter == "/") &&
         target.parameter("start-after").value_or("").empty();
}

S3Code parse_target(const http::RequestHead& head, Target& out) {
  out.kind = Kind::kInvalid;
  out.bucket.clear();
  out.key.clear();
  out.query.clear();
  if (head.path.starts_with(kMetadataPrefix)) {
    out.kind = Kind::kAdmin;
    out.key = head.path.substr(1);
    return S3Code::kNone;
  }
  if (head.path.starts_with(kAdminPrefix)) {
    out.kind = Kind::kAdmin;
    out.key = head.path.substr(kAdminPrefix.size());
    return S3Code::kNone;
  }
  if (!head.query.empty()) {
    auto query = http::parse_query(head.query);
    if (!query) return S3Code::kInvalidArgument;
    out.query = *std::move(query);
  }
  std::string_view rest = head.path.substr(1);
  std::string_view bucket = bucket_of_host(head.host);
  if (bucket.empty()) {
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    bucket = rest.substr(0, slash);
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  auto decoded_bucket = http::decode(bucket);
  auto decoded_key = http::decode(rest);
  if (!decoded_bucket || !decoded_key) return S3Code::kInvalidArgument;
  out.bucket = *std::move(decoded_bucket);
  out.key = *std::move(decoded_key);
  if (out.bucket.empty()) return service_kind(head.method, out);
  if (!is_bucket_name(out.bucket)) return S3Code::kInvalidBucketName;
  if (out.key.size() > kMaxKeyBytes) return S3Code::kKeyTooLong;
  return out.key.empty() ? bucket_kind(head, out) : object_kind(head, out);
}

}  // namespace headrace::sim
