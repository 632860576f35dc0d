// As store/s3/s3_xml.cc, with generations for versions. An entry without a generation is an error:
// a read could not say which version it means.
#include "store/gcs/gcs_xml.h"

#include <pugixml.hpp>

#include "base/strings.h"
#include "http/date.h"
#include "http/uri.h"

namespace headrace::gcs {
namespace {

bool load(std::string_view body, pugi::xml_document& document) {
  const std::size_t start = body.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return false;
  body.remove_prefix(start);
  return static_cast<bool>(document.load_buffer(body.data(), body.size(),
                                                pugi::parse_default | pugi::parse_ws_pcdata_single,
                                                pugi::encoding_utf8));
}

/// The root of that name. Errors: kCorrupt.
Result<pugi::xml_node> load_root(std::string_view body, const char* name,
                                 pugi::xml_document& document) {
  const bool is_whole = load(body, document);
  const pugi::xml_node root = document.child(name);
  if (!is_whole || root.empty()) {
    return Status(Code::kCorrupt, std::string("the store's answer is not a ") + name +
                                      "; check that the endpoint is Google Cloud Storage");
  }
  return root;
}

/// Keys are escaped as in forms ('+' is a space) where the answer says EncodingType "url".
Result<std::string> key_text(const char* text, bool is_escaped) {
  if (!is_escaped) return std::string(text);
  auto key = http::decode(text, http::Plus::kSpace);
  if (!key)
    return Status(Code::kCorrupt,
                  "listing with a badly escaped key: " + std::string(key.error().message()));
  return key;
}

bool is_escaped(const pugi::xml_node& root) {
  return std::string_view(root.child_value("EncodingType")) == "url";
}

/// Cuts the root prefix off. Errors: kCorrupt when it is not there.
Status make_relative(std::string& key, std::string_view root_prefix) {
  if (!std::string_view(key).starts_with(root_prefix))
    return Status(Code::kCorrupt, "listing with \"" + key + "\", which was not asked for");
  key.erase(0, root_prefix.size());
  return {};
}

Result<ObjectInfo> parse_object(const pugi::xml_node& node, bool has_escapes) {
  ObjectInfo object;
  HEADRACE_TRY_ASSIGN(object.key, key_text(node.child_value("Key"), has_escapes));
  const auto size = parse_decimal<std::uint64_t>(node.child_value("Size"));
  object.etag = node.child_value("Generation");
  if (object.key.empty() || !size || object.etag.empty())
    return Status(Code::kCorrupt, "listing with an entry without key, size or generation");
  object.size_bytes = *size;
  if (const auto modified = http::parse_iso_date(node.child_value("LastModified")))
    object.modified_unix_s = modified->time_since_epoch().count();
  return object;
}

void append_escaped(std::string_view text, std::string& out) {
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML 1.0 forbids most of these even so; the store then refuses the request.
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "&#" + std::to_string(static_cast<int>(c)) + ";";
        } else {
          out.push_back(c);
        }
    }
  }
}

}  // namespace

bool is_error_body(std::string_view body) {
  if (body.find("<Error") == std::string_view::npos) return false;
  pugi::xml_document document;
  load(body, document);
  return !document.child("Error").empty();
}

Result<ListPage> parse_list(std::string_view body, std::string_view root_prefix) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node root, load_root(body, "ListBucketResult", document));
  const bool has_escapes = is_escaped(root);
  ListPage page;
  for (const pugi::xml_node& node : root.children("Contents")) {
    HEADRACE_TRY_ASSIGN(ObjectInfo object, parse_object(node, has_escapes));
    HEADRACE_TRY(make_relative(object.key, root_prefix));
    if (!object.key.empty()) page.objects.push_back(std::move(object));
  }
  for (const pugi::xml_node& node : root.children("CommonPrefixes")) {
    HEADRACE_TRY_ASSIGN(std::string prefix, key_text(node.child_value("Prefix"), has_escapes));
    HEADRACE_TRY(make_relative(prefix, root_prefix));
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
  HEADRACE_TRY_ASSIGN(const pugi::xml_node root,
                      load_root(body, "InitiateMultipartUploadResult", document));
  std::string id = root.child_value("UploadId");
  if (id.empty()) return Status(Code::kCorrupt, "the store's answer has no UploadId");
  return id;
}

std::string format_complete(std::span<const UploadedPart> parts) {
  std::string body = "<CompleteMultipartUpload>";
  for (const UploadedPart& part : parts) {
    body += "<Part><PartNumber>" + std::to_string(part.part_number) + "</PartNumber><ETag>";
    append_escaped(part.etag, body);
    body += "</ETag></Part>";
  }
  return body + "</CompleteMultipartUpload>";
}

std::string format_delete(std::span<const std::string> keys) {
  std::string body = "<Delete>";
  for (const std::string& key : keys) {
    body += "<Object><Key>";
    append_escaped(key, body);
    body += "</Key></Object>";
  }
  return body + "</Delete>";
}

Result<std::vector<DeleteFailure>> parse_delete(std::string_view body) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node root, load_root(body, "DeleteResult", document));
  std::vector<DeleteFailure> failures;
  for (const pugi::xml_node& node : root.children("Error")) {
    failures.push_back(
        {node.child_value("Key"), node.child_value("Code"), node.child_value("Message")});
  }
  return failures;
}

Result<PartPage> parse_parts(std::string_view body) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node root, load_root(body, "ListPartsResult", document));
  PartPage page;
  for (const pugi::xml_node& node : root.children("Part")) {
    const auto number = parse_decimal<std::uint32_t>(node.child_value("PartNumber"));
    const auto size = parse_decimal<std::uint64_t>(node.child_value("Size"));
    std::string etag = node.child_value("ETag");
    if (!number || !size || etag.empty())
      return Status(Code::kCorrupt, "a part without number, size or ETag");
    page.parts.push_back({*number, std::move(etag), *size});
  }
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    page.next = root.child_value("NextPartNumberMarker");
    if (page.next.empty()) return Status(Code::kCorrupt, "truncated list of parts without marker");
  }
  return page;
}

Result<UploadPage> parse_uploads(std::string_view body) {
  pugi::xml_document document;
  HEADRACE_TRY_ASSIGN(const pugi::xml_node root,
                      load_root(body, "ListMultipartUploadsResult", document));
  const bool has_escapes = is_escaped(root);
  UploadPage page;
  for (const pugi::xml_node& node : root.children("Upload")) {
    PendingUpload upload;
    HEADRACE_TRY_ASSIGN(upload.key, key_text(node.child_value("Key"), has_escapes));
    upload.upload_id = node.child_value("UploadId");
    if (upload.key.empty() || upload.upload_id.empty())
      return Status(Code::kCorrupt, "an upload without key or id");
    if (const auto started = http::parse_iso_date(node.child_value("Initiated")))
      upload.started_unix_s = started->time_since_epoch().count();
    page.uploads.push_back(std::move(upload));
  }
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    HEADRACE_TRY_ASSIGN(page.next_key, key_text(root.child_value("NextKeyMarker"), has_escapes));
    page.next_upload_id = root.child_value("NextUploadIdMarker");
    if (page.next_key.empty())
      return Status(Code::kCorrupt, "truncated list of uploads without marker");
  }
  return page;
}

}  // namespace headrace::gcs
