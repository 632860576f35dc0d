// GET, HEAD, PUT, copy and delete of objects.
#include <pugixml.hpp>

#include "headrace/status.h"
#include "http/date.h"
#include "http/fields.h"
#include "http/range.h"
#include "http/uri.h"
#include "sim/key_path.h"
#include "sim/service.h"

namespace headrace::sim {
namespace {

/// RFC 9110 section 13.2.2. kNone, kPreconditionFailed, or `is_unchanged` for 304.
S3Code check_read_conditions(const http::RequestHead& head, const OpenFile& file, bool is_changed,
                             bool& is_unchanged) {
  is_unchanged = false;
  const std::string etag = is_changed ? other_etag(file.etag) : file.etag;
  const std::chrono::sys_seconds modified(
      std::chrono::seconds(file.info.modified_ns / 1'000'000'000));
  if (const auto value = head.header("if-match"); !value.empty()) {
    if (!etag_matches(value, etag)) return S3Code::kPreconditionFailed;
  } else if (const auto date = http::parse_http_date(head.header("if-unmodified-since"))) {
    if (modified > *date) return S3Code::kPreconditionFailed;
  }
  if (const auto value = head.header("if-none-match"); !value.empty()) {
    is_unchanged = etag_matches(value, etag);
  } else if (const auto date = http::parse_http_date(head.header("if-modified-since"))) {
    is_unchanged = modified <= *date;
  }
  return S3Code::kNone;
}

WriteCondition write_condition(const http::RequestHead& head) {
  WriteCondition condition;
  condition.if_absent = head.header("if-none-match") == "*";
  condition.if_match = head.header("if-match");
  return condition;
}

std::string copy_document(std::string_view root, const FileInfo& info) {
  std::string out(kXmlHead);
  out += '<';
  out += root;
  out += kXmlNamespace;
  const std::chrono::sys_seconds modified(std::chrono::seconds(info.modified_ns / 1'000'000'000));
  append_xml_element("LastModified", http::format_iso_date(modified), out);
  append_xml_element("ETag", etag_of(info), out);
  out += "</";
  out += root;
  out += '>';
  return out;
}

}  // namespace

S3Code Service::read_object(const http::RequestHead& head, Exchange& exchange) {
  const Target& target = exchange.target;
  Response& response = exchange.response;
  std::shared_ptr<const OpenFile> file;
  if (is_path_key(target.key)) {
    file = files_.open(shared_.storage.natural_path(target.bucket, target.key));
  }
  if (!file) {
    if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
    file = files_.open(
        shared_.storage.hidden_path(target.bucket, "keys/" + escaped_key_path(target.key)));
    if (!file) return S3Code::kNoSuchKey;
  }
  bool is_unchanged = false;
  if (const S3Code code =
          check_read_conditions(head, *file, exchange.fate.is_changed, is_unchanged);
      code != S3Code::kNone) {
    return code;
  }
  response.file = file;
  if (is_unchanged) {
    response.status = 304;
    return S3Code::kNone;
  }
  response.length_bytes = file->info.size_bytes;
  const std::string_view range_field = head.header("range");
  const auto range = range_field.empty() ? std::nullopt : http::parse_range(range_field);
  if (!range) return S3Code::kNone;
  const auto resolved = http::resolve_range(*range, file->info.size_bytes);
  if (!resolved) {
    response.fields += "Content-Range: bytes */" + std::to_string(file->info.size_bytes) + "\r\n";
    return S3Code::kInvalidRange;
  }
  response.status = 206;
  response.offset_bytes = resolved->offset_bytes;
  response.length_bytes = resolved->length_bytes;
  if (exchange.fate.has_no_range) return S3Code::kNone;
  const std::uint64_t shift = exchange.fate.has_wrong_range ? resolved->length_bytes : 0;
  response.fields += "Content-Range: bytes ";
  response.fields += std::to_string(resolved->offset_bytes + shift);
  response.fields += '-';
  response.fields += std::to_string(resolved->offset_bytes + shift + resolved->length_bytes - 1);
  response.fields += '/';
  response.fields += std::to_string(file->info.size_bytes);
  response.fields += "\r\n";
  return S3Code::kNone;
}

S3Code Service::put_object(const http::RequestHead& head, Exchange& exchange) {
  const Target& target = exchange.target;
  const std::string_view none_match = head.header("if-none-match");
  if (!none_match.empty() && none_match != "*") return S3Code::kNotImplemented;
  FileInfo info;
  const S3Code code = shared_.storage.commit(std::move(exchange.file), target.bucket, target.key,
                                             write_condition(head), 0, info);
  if (code != S3Code::kNone) return code;
  exchange.response.fields += "ETag: " + etag_of(info) + "\r\n" + exchange.body->echo();
  return S3Code::kNone;
}

S3Code Service::open_copy_source(const http::RequestHead& head,
                                 std::shared_ptr<const OpenFile>& out) {
  auto decoded = http::decode(head.header("x-amz-copy-source"));
  if (!decoded) return S3Code::kInvalidArgument;
  std::string_view source = *decoded;
  if (source.starts_with('/')) source.remove_prefix(1);
  source = source.substr(0, source.find("?versionId="));
  const std::size_t slash = source.find('/');
  if (slash == std::string_view::npos || slash + 1 == source.size())
    return S3Code::kInvalidArgument;
  const std::string_view bucket = source.substr(0, slash);
  if (!shared_.storage.bucket_exists(bucket)) return S3Code::kNoSuchBucket;
  FileInfo info;
  const auto path = shared_.storage.find(bucket, source.substr(slash + 1), info);
  out = path ? files_.open(*path) : nullptr;
  if (!out) return S3Code::kNoSuchKey;
  const std::string_view match = head.header("x-amz-copy-source-if-match");
  const std::string_view none_match = head.header("x-amz-copy-source-if-none-match");
  if ((!match.empty() && !etag_matches(match, out->etag)) ||
      (!none_match.empty() && etag_matches(none_match, out->etag))) {
    return S3Code::kPreconditionFailed;
  }
  return S3Code::kNone;
}

S3Code Service::copy_object(const http::RequestHead& head, Exchange& exchange) {
  if (exchange.fate.has_error_in_body) return refuse_in_body(head, exchange);
  const Target& target = exchange.target;
  std::shared_ptr<const OpenFile> source;
  if (const S3Code code = open_copy_source(head, source); code != S3Code::kNone) return code;
  TemporaryFile file;
  if (const S3Code code = shared_.storage.create_temporary(target.bucket, file);
      code != S3Code::kNone) {
    return code;
  }
  if (!append_file_range(source->fd.get(), 0, source->info.size_bytes, file.fd())) {
    return S3Code::kInternalError;
  }
  FileInfo info;
  const S3Code code = shared_.storage.commit(std::move(file), target.bucket, target.key,
                                             write_condition(head), 0, info);
  if (code != S3Code::kNone) return code;
  set_xml(copy_document("CopyObjectResult", info), exchange.response);
  return S3Code::kNone;
}

S3Code Service::delete_object(Exchange& exchange) {
  exchange.response.status = 204;
  return shared_.storage.remove(exchange.target.bucket, exchange.target.key);
}

S3Code Service::delete_objects(Exchange& exchange) {
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  constexpr std::size_t kMaxKeys = 1000;  // S3's limit of a batch
  const std::string empty;
  const std::string& text = exchange.body ? exchange.body->memory() : empty;
  pugi::xml_document document;
  if (!document.load_buffer(text.data(), text.size(),
                            pugi::parse_default | pugi::parse_ws_pcdata_single)) {
    return S3Code::kMalformedXml;
  }
  const pugi::xml_node root = document.child("Delete");
  const bool is_quiet = std::string_view(root.child_value("Quiet")) == "true";
  std::string out(kXmlHead);
  out += "<DeleteResult";
  out += kXmlNamespace;
  std::size_t count = 0;
  for (const pugi::xml_node& object : root.children("Object")) {
    const std::string_view key = object.child_value("Key");
    if (key.empty() || ++count > kMaxKeys) return S3Code::kMalformedXml;
    const S3Code code = key.size() > kMaxKeyBytes
                            ? S3Code::kKeyTooLong
                            : shared_.storage.remove(exchange.target.bucket, key);
    if (code != S3Code::kNone) {
      out += "<Error>";
      append_xml_element("Key", key, out);
      append_xml_element("Code", error_text(code).name, out);
      append_xml_element("Message", error_text(code).message, out);
      out += "</Error>";
    } else if (!is_quiet) {
      out += "<Deleted>";
      append_xml_element("Key", key, out);
      out += "</Deleted>";
    }
  }
  if (count == 0) return S3Code::kMalformedXml;
  out += "</DeleteResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

}  // namespace headrace::sim
