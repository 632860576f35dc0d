#include "store/s3/s3_xml.h"

#include <pugixml.hpp>

#include "base/strings.h"
#include "http/date.h"
#include "http/uri.h"

namespace headrace::s3 {
namespace {

/// False when it is not well-formed; what was read so far stays in `document`.
bool load(std::string_view body, pugi::xml_document& document) {
  // S3 keeps slow answers alive by spaces before the declaration.
  const std::size_t start = body.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return false;
  body.remove_prefix(start);
  return static_cast<bool>(document.load_buffer(body.data(), body.size(),
                                                pugi::parse_default | pugi::parse_ws_pcdata_single,
                                                pugi::encoding_utf8));
}

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, "the store's answer is not a " + std::string(what) +
                                    "; check that the endpoint is an S3 store");
}

/// Keys of listings are escaped as in forms: '+' is a space. Servers that ignore encoding-type=url
/// say so by leaving out the EncodingType element.
Result<std::string> key_text(const char* text, bool is_escaped) {
  if (!is_escaped) return std::string(text);
  auto key = http::decode(text, http::Plus::kSpace);
  if (!key)
    return Status(Code::kCorrupt,
                  "listing with a badly escaped key: " + std::string(key.error().message()));
  return key;
}

Result<ObjectInfo> parse_object(const pugi::xml_node& node, bool is_escaped) {
  ObjectInfo object;
  HEADRACE_TRY_ASSIGN(object.key, key_text(node.child_value("Key"), is_escaped));
  const auto size = parse_decimal<std::uint64_t>(node.child_value("Size"));
  if (object.key.empty() || !size)
    return Status(Code::kCorrupt, "listing with an entry without key or size");
  object.size_bytes = *size;
  object.etag = with_quotes(node.child_value("ETag"));
  if (const auto modified = http::parse_iso_date(node.child_value("LastModified"))) {
    object.modified_unix_s = modified->time_since_epoch().count();
  }
  return object;
}

}  // namespace

std::string with_quotes(std::string_view etag) {
  if (etag.empty() || etag.ends_with('"')) return std::string(etag);
  return "\"" + std::string(etag) + "\"";
}

ErrorBody parse_error_body(std::string_view body) {
  ErrorBody error;
  pugi::xml_document document;
  load(body, document);
  const pugi::xml_node root = document.child("Error");
  error.code = root.child_value("Code");
  error.message = root.child_value("Message");
  error.region = root.child_value("Region");
  error.endpoint = root.child_value("Endpoint");
  error.request_id = root.child_value("RequestId");
  return error;
}

bool is_error_body(std::string_view body) {
  if (body.find("<Error") == std::string_view::npos) return false;
  pugi::xml_document document;
  load(body, document);
  return !document.child("Error").empty();
}

Result<ListPage> parse_list(std::string_view body, std::string_view root_prefix) {
  pugi::xml_document document;
  if (!load(body, document)) return corrupt("listing");
  const pugi::xml_node root = document.child("ListBucketResult");
  if (root.empty()) return corrupt("listing");
  const bool is_escaped = std::string_view(root.child_value("EncodingType")) == "url";
  ListPage page;
  for (const pugi::xml_node& node : root.children("Contents")) {
    HEADRACE_TRY_ASSIGN(ObjectInfo object, parse_object(node, is_escaped));
    if (!std::string_view(object.key).starts_with(root_prefix)) {
      return Status(Code::kCorrupt,
                    "listing with the key \"" + object.key + "\", which was not asked for");
    }
    object.key.erase(0, root_prefix.size());
    if (!object.key.empty()) page.objects.push_back(std::move(object));
  }
  for (const pugi::xml_node& node : root.children("CommonPrefixes")) {
    HEADRACE_TRY_ASSIGN(std::string prefix, key_text(node.child_value("Prefix"), is_escaped));
    if (!std::string_view(prefix).starts_with(root_prefix)) {
      return Status(Code::kCorrupt,
                    "listing with the prefix \"" + prefix + "\", which was not asked for");
    }
    prefix.erase(0, root_prefix.size());
    if (!prefix.empty()) page.common_prefixes.push_back(std::move(prefix));
  }
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    page.continuation = root.child_value("NextContinuationToken");
    if (page.continuation.empty())
      return Status(Code::kCorrupt, "truncated listing without a continuation token");
  }
  return page;
}

Result<std::string> parse_upload_id(std::string_view body) {
  pugi::xml_document document;
  if (!load(body, document)) return corrupt("multipart upload");
  std::string id = document.child("InitiateMultipartUploadResult").child_value("UploadId");
  if (id.empty()) return corrupt("multipart upload");
  return id;
}

Result<std::string> parse_result_etag(std::string_view body) {
  pugi::xml_document document;
  if (!load(body, document)) return corrupt("result of a copy or upload");
  for (const char* name : {"CompleteMultipartUploadResult", "CopyObjectResult"}) {
    if (const pugi::xml_node root = document.child(name))
      return with_quotes(root.child_value("ETag"));
  }
  return corrupt("result of a copy or upload");
}

std::string format_complete(std::span<const UploadedPart> parts) {
  const auto escaped = [](std::string_view text) {
    std::string out;
    for (char c : text) {
      if (c == '&') {
        out += "&amp;";
      } else if (c == '<') {
        out += "&lt;";
      } else if (c == '"') {
        out += "&quot;";
      } else {
        out.push_back(c);
      }
    }
    return out;
  };
  std::string body = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const UploadedPart& part : parts) {
    body += "<Part><PartNumber>" + std::to_string(part.part_number) + "</PartNumber><ETag>" +
            escaped(part.etag) + "</ETag></Part>";
  }
  return body + "</CompleteMultipartUpload>";
}

}  // namespace headrace::s3
