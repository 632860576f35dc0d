// Answers come from any server that calls itself S3 or Google, so every key must have the prefix
// that was asked for; else the answer is kCorrupt. A key without the prefix must not be shortened:
// it would name another object. Lists of uploads alone may have more than was asked for, as some
// stores know no prefix there.
#include "store/vendor/xml_api.h"

#include "base/strings.h"
#include "http/date.h"
#include "http/uri.h"
#include "store/vendor/xml.h"

namespace headrace::vendor {
namespace {

/// Servers that ignore encoding-type=url say so by leaving the element out.
bool has_escaped_keys(const pugi::xml_node& root) {
  return std::string_view(root.child_value("EncodingType")) == "url";
}

/// Keys are escaped as in forms: '+' is a space.
Result<std::string> key_text(const char* text, bool is_escaped) {
  if (!is_escaped) return std::string(text);
  auto key = http::decode(text, http::Plus::kSpace);
  if (!key)
    return Status(Code::kCorrupt,
                  "listing with a badly escaped key: " + std::string(key.error().message()));
  return key;
}

/// A key or prefix without the root's.
Result<std::string> relative_text(const char* text, bool is_escaped, std::string_view root_prefix) {
  HEADRACE_TRY_ASSIGN(std::string key, key_text(text, is_escaped));
  if (!std::string_view(key).starts_with(root_prefix))
    return Status(Code::kCorrupt, "listing with \"" + key + "\", which was not asked for");
  return key.substr(root_prefix.size());
}

std::int64_t seconds_of(const char* iso_date) {
  const auto time = http::parse_iso_date(iso_date);
  return time ? time->time_since_epoch().count() : 0;
}

}  // namespace

bool is_truncated(const pugi::xml_node& root) noexcept {
  return std::string_view(root.child_value("IsTruncated")) == "true";
}

Status check_error_body(HttpProtocol& protocol, const HttpCall& call, const HttpAnswer& answer) {
  if (!is_error_body(answer.body)) return {};
  http::ResponseHead head;
  HEADRACE_TRY_ASSIGN(const std::size_t head_bytes, http::parse_response_head(answer.head, head));
  if (head_bytes == 0) head.status = answer.status;
  return protocol.error_from(call.what, head, answer.body);
}

Result<ListPage> read_list(const pugi::xml_node& root, std::string_view root_prefix,
                           VersionOf version_of) {
  const bool is_escaped = has_escaped_keys(root);
  ListPage page;
  for (const pugi::xml_node& node : root.children("Contents")) {
    const char* key = node.child_value("Key");
    const auto size = parse_decimal<std::uint64_t>(node.child_value("Size"));
    auto version = version_of(node);
    if (*key == '\0' || !size || !version)
      return Status(Code::kCorrupt, "listing with an entry without key, size or version");
    ObjectInfo object;
    HEADRACE_TRY_ASSIGN(object.key, relative_text(key, is_escaped, root_prefix));
    object.size_bytes = *size;
    object.etag = *std::move(version);
    object.modified_unix_s = seconds_of(node.child_value("LastModified"));
    object.storage_class = node.child_value("StorageClass");
    if (!object.key.empty()) page.objects.push_back(std::move(object));
  }
  for (const pugi::xml_node& node : root.children("CommonPrefixes")) {
    HEADRACE_TRY_ASSIGN(std::string prefix,
                        relative_text(node.child_value("Prefix"), is_escaped, root_prefix));
    if (!prefix.empty()) page.common_prefixes.push_back(std::move(prefix));
  }
  if (is_truncated(root)) {
    page.continuation = root.child_value("NextContinuationToken");
    // A page that says it is not the last and does not say what follows: taken for the last, it
    // would make a part of the bucket look like all of it.
    if (page.continuation.empty())
      return Status(Code::kCorrupt, "truncated listing without a continuation token");
  }
  return page;
}

Result<UploadPage> read_uploads(const pugi::xml_node& root, std::string_view root_prefix) {
  const bool is_escaped = has_escaped_keys(root);
  UploadPage page;
  for (const pugi::xml_node& node : root.children("Upload")) {
    PendingUpload upload;
    HEADRACE_TRY_ASSIGN(upload.key, key_text(node.child_value("Key"), is_escaped));
    upload.upload_id = node.child_value("UploadId");
    if (upload.key.empty() || upload.upload_id.empty())
      return Status(Code::kCorrupt, "list of uploads with an entry without key or id");
    upload.started_unix_s = seconds_of(node.child_value("Initiated"));
    if (!upload.key.starts_with(root_prefix)) continue;
    upload.key.erase(0, root_prefix.size());
    if (!upload.key.empty()) page.uploads.push_back(std::move(upload));
  }
  if (is_truncated(root)) {
    HEADRACE_TRY_ASSIGN(page.next_key, key_text(root.child_value("NextKeyMarker"), is_escaped));
    page.next_upload_id = root.child_value("NextUploadIdMarker");
  }
  return page;
}

std::string format_complete(std::string_view opening, std::span<const UploadedPart> parts,
                            std::string_view checksum_element) {
  std::string body(opening);
  for (const UploadedPart& part : parts) {
    body += "<Part><PartNumber>" + std::to_string(part.part_number) + "</PartNumber><ETag>";
    append_escaped(part.etag, body);
    body += "</ETag>";
    if (!checksum_element.empty() && !part.checksum.empty()) {
      body.append("<").append(checksum_element).append(">");
      append_escaped(part.checksum, body);
      body.append("</").append(checksum_element).append(">");
    }
    body += "</Part>";
  }
  return body + "</CompleteMultipartUpload>";
}

std::string format_delete(std::string_view opening, std::span<const std::string> keys) {
  std::string body(opening);
  for (const std::string& key : keys) {
    body += "<Object><Key>";
    append_escaped(key, body);
    body += "</Key></Object>";
  }
  return body + "</Delete>";
}

}  // namespace headrace::vendor
