// Answers come from any server that calls itself S3, so each document must have the root that was
// asked for, and every key the prefix that was asked for; else it is kCorrupt. A key without the
// prefix must not be shortened: it would name another object. Lists of uploads alone may have more
// than was asked for, as some stores know no prefix there.
//
// Keys in answers are escaped as in forms where the server says so (EncodingType), since XML 1.0
// cannot hold all of them. Keys in requests cannot be escaped so: fits_xml() says which go in a
// DeleteObjects.
#include "store/s3/s3_xml.h"

#include <pugixml.hpp>

#include "base/strings.h"
#include "http/date.h"
#include "http/uri.h"
#include "store/s3/s3_checksum.h"

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

void append_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
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
      case '\r':  // parsers turn a bare one into a line feed
        out += "&#13;";
        break;
      case '\n':
        out += "&#10;";
        break;
      case '\t':
        out += "&#9;";
        break;
      default:
        out.push_back(c);
    }
  }
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
  // The cheap look first: every answer of some calls passes here.
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
    // A page that says it is not the last and does not say what follows: taken for the last, it
    // would make a part of the bucket look like all of it.
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

Result<UploadedPart> parse_copied_part(std::string_view body, ChecksumKind kind) {
  pugi::xml_document document;
  const pugi::xml_node root =
      load(body, document) ? document.child("CopyPartResult") : pugi::xml_node();
  UploadedPart part;
  part.etag = with_quotes(root.child_value("ETag"));
  if (part.etag.empty()) return corrupt("result of a copy");
  const std::string element(checksum_element(kind));
  if (!element.empty()) part.checksum = root.child_value(element.c_str());
  return part;
}

bool fits_xml(std::string_view key) noexcept {
  for (std::size_t i = 0; i < key.size();) {
    const auto lead = static_cast<unsigned char>(key[i]);
    if (lead < 0x20 && lead != '\t' && lead != '\n' && lead != '\r') return false;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    // UTF-8 as RFC 3629 has it, less the two points that XML leaves out (fffe, ffff).
    const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || i + size > key.size()) return false;
    std::uint32_t point = lead & (0xffU >> (size + 1));
    for (std::size_t k = 1; k < size; ++k) {
      const auto next = static_cast<unsigned char>(key[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3f);
    }
    const bool is_surrogate = point >= 0xd800 && point < 0xe000;
    const bool is_overlong = (size == 3 && point < 0x800) || (size == 4 && point < 0x10000);
    if (is_surrogate || is_overlong || point > 0x10ffff || point == 0xfffe || point == 0xffff)
      return false;
    i += size;
  }
  return true;
}

std::string format_complete(std::span<const UploadedPart> parts, ChecksumKind kind) {
  std::string body = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const UploadedPart& part : parts) {
    body += "<Part><PartNumber>" + std::to_string(part.part_number) + "</PartNumber><ETag>";
    append_escaped(part.etag, body);
    body += "</ETag>";
    if (kind != ChecksumKind::kNone && !part.checksum.empty()) {
      const std::string element(checksum_element(kind));
      body += "<" + element + ">";
      append_escaped(part.checksum, body);
      body += "</" + element + ">";
    }
    body += "</Part>";
  }
  return body + "</CompleteMultipartUpload>";
}

Result<PartPage> parse_parts(std::string_view body, ChecksumKind kind) {
  pugi::xml_document document;
  const pugi::xml_node root =
      load(body, document) ? document.child("ListPartsResult") : pugi::xml_node();
  if (!root) return corrupt("list of parts");
  const std::string element(checksum_element(kind));
  PartPage page;
  for (const pugi::xml_node& node : root.children("Part")) {
    UploadedPart part;
    const auto number = parse_decimal<std::uint32_t>(node.child_value("PartNumber"));
    part.etag = with_quotes(node.child_value("ETag"));
    if (!number || part.etag.empty()) return corrupt("list of parts");
    part.part_number = *number;
    part.size_bytes = parse_decimal<std::uint64_t>(node.child_value("Size")).value_or(0);
    if (!element.empty()) part.checksum = node.child_value(element.c_str());
    page.parts.push_back(std::move(part));
  }
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    page.next_marker =
        parse_decimal<std::uint32_t>(root.child_value("NextPartNumberMarker")).value_or(0);
    if (page.next_marker == 0 && !page.parts.empty())
      page.next_marker = page.parts.back().part_number;
  }
  return page;
}

Result<UploadPage> parse_uploads(std::string_view body, std::string_view root_prefix) {
  pugi::xml_document document;
  const pugi::xml_node root =
      load(body, document) ? document.child("ListMultipartUploadsResult") : pugi::xml_node();
  if (!root) return corrupt("list of uploads");
  const bool is_escaped = std::string_view(root.child_value("EncodingType")) == "url";
  UploadPage page;
  for (const pugi::xml_node& node : root.children("Upload")) {
    PendingUpload upload;
    HEADRACE_TRY_ASSIGN(upload.key, key_text(node.child_value("Key"), is_escaped));
    upload.upload_id = node.child_value("UploadId");
    if (upload.key.empty() || upload.upload_id.empty()) return corrupt("list of uploads");
    if (const auto started = http::parse_iso_date(node.child_value("Initiated")))
      upload.started_unix_s = started->time_since_epoch().count();
    // Some stores take no prefix here.
    if (!std::string_view(upload.key).starts_with(root_prefix)) continue;
    upload.key.erase(0, root_prefix.size());
    if (!upload.key.empty()) page.uploads.push_back(std::move(upload));
  }
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    HEADRACE_TRY_ASSIGN(page.next_key_marker,
                        key_text(root.child_value("NextKeyMarker"), is_escaped));
    page.next_id_marker = root.child_value("NextUploadIdMarker");
  }
  return page;
}

std::string format_delete(std::span<const std::string> keys) {
  std::string body =
      "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>";
  for (const std::string& key : keys) {
    body += "<Object><Key>";
    append_escaped(key, body);
    body += "</Key></Object>";
  }
  return body + "</Delete>";
}

Result<std::vector<DeleteFailure>> parse_delete(std::string_view body) {
  pugi::xml_document document;
  std::vector<DeleteFailure> failures;
  const pugi::xml_node root =
      load(body, document) ? document.child("DeleteResult") : pugi::xml_node();
  if (!root) return corrupt("result of a deletion");
  for (const pugi::xml_node& node : root.children("Error")) {
    DeleteFailure failure;
    failure.key = node.child_value("Key");
    failure.error.code = node.child_value("Code");
    failure.error.message = node.child_value("Message");
    failures.push_back(std::move(failure));
  }
  return failures;
}

}  // namespace headrace::s3
