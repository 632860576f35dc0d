// GET, HEAD, PUT, copy and delete of objects.
#include <pugixml.hpp>
#include <tuple>

#include "base/strings.h"
#include "headrace/status.h"
#include "http/date.h"
#include "http/fields.h"
#include "http/range.h"
#include "http/uri.h"
#include "sim/google_face.h"
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

/// Objects without parts have one: all of it. Nullopt: no such part.
std::optional<http::ResolvedRange> range_of_part(const ObjectSums& sums, std::uint64_t number,
                                                 std::uint64_t size_bytes) {
  if (sums.part_sizes.empty()) {
    if (number != 1) return std::nullopt;
    return http::ResolvedRange{0, size_bytes};
  }
  if (number > sums.part_sizes.size()) return std::nullopt;
  std::uint64_t begin = 0;
  for (std::uint64_t i = 0; i + 1 < number; ++i) begin += sums.part_sizes[i];
  return http::ResolvedRange{begin, sums.part_sizes[number - 1]};
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
  if (const auto generation = wanted_generation(head);
      exchange.is_google && generation &&
      (*generation != generation_of(file->info) || exchange.fate.is_changed)) {
    return S3Code::kPreconditionFailed;
  }
  response.file = file;
  if (is_unchanged) {
    response.status = 304;
    return S3Code::kNone;
  }
  const S3Code code = serve_range(head, *file, exchange);
  if (code == S3Code::kNone) add_sums(head, *file, exchange);
  return code;
}

/// Sets what part of the file is sent, by Range or partNumber.
S3Code Service::serve_range(const http::RequestHead& head, const OpenFile& file,
                            Exchange& exchange) {
  Response& response = exchange.response;
  const std::uint64_t size_bytes = file.info.size_bytes;
  response.length_bytes = size_bytes;
  std::optional<http::ResolvedRange> resolved;
  if (const auto text = exchange.target.parameter("partNumber")) {
    const auto number = parse_decimal<std::uint64_t>(*text);
    if (!number || *number < 1) return S3Code::kInvalidArgument;
    resolved = range_of_part(sums_from_text(file.sums), *number, size_bytes);
    if (!resolved) return S3Code::kInvalidPartNumber;
    if (file.info.part_count > 0) {
      response.fields += "x-amz-mp-parts-count: " + std::to_string(file.info.part_count) + "\r\n";
    }
    if (size_bytes == 0) return S3Code::kNone;
  } else {
    const std::string_view range_field = head.header("range");
    const auto range = range_field.empty() ? std::nullopt : http::parse_range(range_field);
    if (!range) return S3Code::kNone;
    resolved = http::resolve_range(*range, size_bytes);
  }
  if (!resolved) {
    response.fields += "Content-Range: bytes */" + std::to_string(size_bytes) + "\r\n";
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
  response.fields += std::to_string(size_bytes);
  response.fields += "\r\n";
  return S3Code::kNone;
}

/// With x-amz-checksum-mode: the sum of the object, or of the part that is exactly what is sent.
void Service::add_sums(const http::RequestHead& head, const OpenFile& file, Exchange& exchange) {
  if (head.header("x-amz-checksum-mode").empty() || file.sums.empty()) return;
  const ObjectSums sums = sums_from_text(file.sums);
  Response& response = exchange.response;
  if (sums.field.empty()) return;
  std::string value = sums.value;
  bool is_composite = sums.is_composite;
  if (response.status == 206 && response.length_bytes != file.info.size_bytes) {
    const auto part = sums.part_at(response.offset_bytes, response.length_bytes);
    if (!part || sums.part_values.empty()) return;
    value = sums.part_values[*part];
    is_composite = false;
  }
  if (exchange.fate.has_wrong_checksum) value[0] = value[0] == 'A' ? 'B' : 'A';
  response.fields += sums.field + ": " + value + "\r\nx-amz-checksum-type: ";
  response.fields += is_composite ? "COMPOSITE\r\n" : "FULL_OBJECT\r\n";
}

bool Service::wants_redirect(const Exchange& exchange) const {
  const Kind kind = exchange.target.kind;
  return shared_.options.redirect_reads && exchange.address_index == 0 &&
         (kind == Kind::kGetObject || kind == Kind::kHeadObject);
}

S3Code Service::redirect(const http::RequestHead& head, Exchange& exchange) {
  const Target& target = exchange.target;
  const std::uint64_t count = shared_.options.address_count - 1;
  const std::uint64_t index = 1 + hash_text(target.key, hash_text(target.bucket)) % count;
  exchange.response.status = 307;
  exchange.response.fields += "Location: " + std::string(shared_.options.tls ? "https" : "http") +
                              "://" + shared_.address_names[index] + std::string(head.target) +
                              (head.query.empty() ? "?" : "&") + std::string(kTicketParameter) +
                              "=" + ticket_of(target.bucket, target.key) + "\r\n";
  return S3Code::kNone;
}

std::string ticket_of(std::string_view bucket, std::string_view key) {
  const std::uint64_t hash = hash_text(key, hash_text(bucket, 77));
  return std::to_string(hash);
}

WriteCondition Service::write_condition(const http::RequestHead& head,
                                        const Exchange& exchange) const {
  WriteCondition condition;
  condition.if_absent = head.header("if-none-match") == "*";
  condition.if_match = head.header("if-match");
  if (exchange.is_google) {
    const auto generation = wanted_generation(head);
    if (generation == 0) {
      condition.if_absent = true;
    } else {
      condition.if_generation = generation;
    }
  }
  return condition;
}

void Service::add_written_fields(const FileInfo& info, const ObjectSums& sums,
                                 Exchange& exchange) const {
  if (exchange.is_google) append_google_fields(info, to_text(sums), exchange.response.fields);
}

S3Code Service::put_object(const http::RequestHead& head, Exchange& exchange) {
  const Target& target = exchange.target;
  const std::string_view none_match = head.header("if-none-match");
  if (!none_match.empty() && none_match != "*") return S3Code::kNotImplemented;
  FileInfo info;
  ObjectSums sums;
  std::tie(sums.field, sums.value) = exchange.body->stored_sum();
  write_sums(exchange.file.fd(), sums);
  const S3Code code = shared_.storage.commit(std::move(exchange.file), target.bucket, target.key,
                                             write_condition(head, exchange), 0, info);
  if (code != S3Code::kNone) return code;
  exchange.response.fields += "ETag: " + etag_of(info) + "\r\n" + exchange.body->echo();
  add_written_fields(info, sums, exchange);
  return S3Code::kNone;
}

S3Code Service::open_copy_source(const http::RequestHead& head,
                                 std::shared_ptr<const OpenFile>& out) {
  const std::string_view google = head.header("x-goog-copy-source");
  auto decoded = http::decode(google.empty() ? head.header("x-amz-copy-source") : google);
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
  ObjectSums sums = sums_from_text(source->sums);
  sums.part_sizes.clear();
  sums.part_values.clear();
  if (!sums.is_composite) write_sums(file.fd(), sums);
  FileInfo info;
  const S3Code code = shared_.storage.commit(std::move(file), target.bucket, target.key,
                                             write_condition(head, exchange), 0, info);
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
