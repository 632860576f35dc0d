// GET, HEAD, PUT, copy and delete of objects.
//
// Each request opens its file once, and headers, range, sums and bytes all come from that
// descriptor: a file that is replaced meanwhile cannot mix two versions in one answer. Natural
// paths come first, then the hidden folder that holds keys which are no paths; the bucket is
// looked at only when neither is there.
//
// A write goes to a temporary file with its metadata and sums already beside it, and commit()
// checks the condition and publishes it in one step. Nothing of a refused write is ever seen.
// Faults that a test asks for (exchange.fate) are put in where the answer is made, not in front of
// it: a wrong range or sum must be in an answer that is right in everything else.
#include <algorithm>
#include <array>
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
#include "sim/object_fields.h"
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

/// The conditions of a removal besides the ETag; empty texts: none. False when malformed.
bool parse_removal(std::string_view modified, std::string_view size, WriteCondition& condition) {
  if (!modified.empty()) {
    auto time = http::parse_http_date(modified);
    if (!time) time = http::parse_iso_date(modified);
    if (!time) return false;
    condition.if_modified_s = time->time_since_epoch().count();
  }
  if (!size.empty()) {
    condition.if_size_bytes = parse_decimal<std::uint64_t>(size);
    if (!condition.if_size_bytes) return false;
  }
  return true;
}

bool has_body_sum(const http::RequestHead& head) {
  if (!head.header("content-md5").empty()) return true;
  std::string_view fields = head.fields;
  http::Field field;
  ChecksumKind ignored;
  while (http::next_field(fields, field)) {
    if (checksum_kind_of(field.name, ignored)) return true;
  }
  return false;
}

/// Nothing is deleted of a batch that asks for more than is known.
S3Code check_batch(const pugi::xml_node& root) {
  constexpr std::size_t kMaxKeys = 1000;  // S3's
  constexpr std::array<std::string_view, 5> kKnown = {"Key", "VersionId", "ETag",
                                                      "LastModifiedTime", "Size"};
  std::size_t count = 0;
  for (const pugi::xml_node& object : root.children("Object")) {
    if (*object.child_value("Key") == '\0' || ++count > kMaxKeys) return S3Code::kMalformedXml;
    for (const pugi::xml_node& child : object.children()) {
      if (child.type() == pugi::node_element &&
          std::find(kKnown.begin(), kKnown.end(), child.name()) == kKnown.end()) {
        return S3Code::kNotImplemented;
      }
    }
  }
  return count == 0 ? S3Code::kMalformedXml : S3Code::kNone;
}

}  // namespace

S3Code Service::open_object(const Target& target, std::shared_ptr<const OpenFile>& out) {
  if (is_path_key(target.key)) {
    out = files_.open(shared_.storage.natural_path(target.bucket, target.key));
  }
  if (out) return S3Code::kNone;
  if (!shared_.storage.bucket_exists(target.bucket)) return S3Code::kNoSuchBucket;
  out = files_.open(
      shared_.storage.hidden_path(target.bucket, "keys/" + escaped_key_path(target.key)));
  return out ? S3Code::kNone : S3Code::kNoSuchKey;
}

S3Code Service::read_object(const http::RequestHead& head, Exchange& exchange) {
  Response& response = exchange.response;
  std::shared_ptr<const OpenFile> file;
  if (const S3Code code = open_object(exchange.target, file); code != S3Code::kNone) return code;
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
  const bool is_get = exchange.target.kind == Kind::kGetObject;
  if (is_get && is_archived(file->info.tag.storage_class)) return S3Code::kInvalidObjectState;
  response.file = file;
  if (overrides_fields(exchange.target)) {
    response.kept_fields = answered_fields(file->stored, exchange.target);
  }
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
    if (!head.header("range").empty()) {
      exchange.error_detail = "Cannot specify both Range header and partNumber query parameter";
      return S3Code::kInvalidRequest;
    }
    const auto number = parse_decimal<std::uint64_t>(*text);
    if (!number || *number < 1) return S3Code::kInvalidArgument;
    resolved = range_of_part(sums_from_text(file.sums), *number, size_bytes);
    if (!resolved) return S3Code::kInvalidPartNumber;
    if (const std::uint32_t count = file.info.tag.part_count; count > 0) {
      response.fields += "x-amz-mp-parts-count: " + std::to_string(count) + "\r\n";
    }
    // No byte range can be written for an empty object: it is answered whole, with 200.
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
  // A sum of the object does not fit a range; S3 leaves it out, unless the range is a part.
  if (response.status == 206 && response.length_bytes != file.info.size_bytes) {
    const auto part = sums.part_at(response.offset_bytes, response.length_bytes);
    if (!part || sums.part_values.empty()) return;
    value = sums.part_values[*part];
  }
  if (exchange.fate.has_wrong_checksum) value[0] = value[0] == 'A' ? 'B' : 'A';
  response.fields += sums.field + ": " + value + "\r\nx-amz-checksum-type: ";
  response.fields += sums.is_composite ? "COMPOSITE\r\n" : "FULL_OBJECT\r\n";
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
  condition.if_none_match = head.header("if-none-match");
  condition.if_match = head.header("if-match");
  if (exchange.is_google) {
    const auto generation = wanted_generation(head);
    if (generation == 0) {
      condition.if_none_match = "*";
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
  std::string fields;
  if (const S3Code code = kept_fields(head, fields); code != S3Code::kNone) return code;
  FileInfo info;
  ObjectSums sums;
  std::tie(sums.field, sums.value) = exchange.body->stored_sum();
  if (const S3Code code = keep_beside(exchange.file.fd(), fields, sums, exchange);
      code != S3Code::kNone) {
    return code;
  }
  const S3Code code = shared_.storage.commit(std::move(exchange.file), target.bucket, target.key,
                                             write_condition(head, exchange),
                                             {exchange.body->md5(), 0, wanted_class(head)}, info);
  if (code != S3Code::kNone) return code;
  exchange.response.fields += "ETag: " + etag_of(info) + "\r\n" + exchange.body->echo();
  add_written_fields(info, sums, exchange);
  return S3Code::kNone;
}

S3Code Service::keep_beside(int fd, std::string_view fields, const ObjectSums& sums,
                            Exchange& exchange) {
  if (!write_fields(fd, fields)) {
    exchange.error_detail =
        "The file system of the served directory keeps no user attributes, so metadata would be "
        "lost.";
    return S3Code::kNotImplemented;
  }
  write_sums(fd, sums, fields.size());
  return S3Code::kNone;
}

S3Code Service::open_copy_source(const http::RequestHead& head,
                                 std::shared_ptr<const OpenFile>& out) {
  const std::string_view google = head.header("x-goog-copy-source");
  const std::string_view escaped = google.empty() ? head.header("x-amz-copy-source") : google;
  // Before it is decoded: "%3FversionId=" belongs to the key.
  const std::size_t version = escaped.find("?versionId=");
  if (version != std::string_view::npos && escaped.substr(version) != "?versionId=null") {
    return S3Code::kNotImplemented;
  }
  auto decoded = http::decode(escaped.substr(0, version));
  if (!decoded) return S3Code::kInvalidArgument;
  std::string_view source = *decoded;
  if (source.starts_with('/')) source.remove_prefix(1);
  const std::size_t slash = source.find('/');
  if (slash == std::string_view::npos || slash + 1 == source.size())
    return S3Code::kInvalidArgument;
  const std::string_view bucket = source.substr(0, slash);
  if (!shared_.storage.bucket_exists(bucket)) return S3Code::kNoSuchBucket;
  FileInfo info;
  const auto path = shared_.storage.find(bucket, source.substr(slash + 1), info);
  out = path ? files_.open(*path) : nullptr;
  if (!out) return S3Code::kNoSuchKey;
  const std::chrono::sys_seconds modified(
      std::chrono::seconds(out->info.modified_ns / 1'000'000'000));
  const std::string_view match = head.header("x-amz-copy-source-if-match");
  const std::string_view none_match = head.header("x-amz-copy-source-if-none-match");
  const auto since = http::parse_http_date(head.header("x-amz-copy-source-if-modified-since"));
  const auto until = http::parse_http_date(head.header("x-amz-copy-source-if-unmodified-since"));
  const bool is_refused = (!match.empty() && !etag_matches(match, out->etag)) ||
                          (!none_match.empty() && etag_matches(none_match, out->etag)) ||
                          (none_match.empty() && since && modified <= *since) ||
                          (match.empty() && until && modified > *until);
  if (is_refused) return S3Code::kPreconditionFailed;
  return is_archived(out->info.tag.storage_class) ? S3Code::kInvalidObjectState : S3Code::kNone;
}

/// Stores with the copy what the source or the request says of it.
S3Code Service::copy_fields(const http::RequestHead& head, Exchange& exchange,
                            const OpenFile& source, int fd) {
  std::string fields = source.stored;
  if (head.header("x-amz-metadata-directive") == "REPLACE") {
    fields.clear();
    if (const S3Code code = kept_fields(head, fields); code != S3Code::kNone) return code;
  }
  ObjectSums sums = sums_from_text(source.sums);
  sums.part_sizes.clear();
  sums.part_values.clear();
  // The copy has no parts, and a sum of parts says nothing of it.
  if (sums.is_composite) sums = ObjectSums();
  if (const auto wanted = head.header("x-amz-checksum-algorithm"); !wanted.empty()) {
    ChecksumKind kind;
    const std::string field = "x-amz-checksum-" + to_lower(wanted);
    if (!checksum_kind_of(field, kind)) return S3Code::kInvalidRequest;
    if (sums.field != field) sums = {field, sum_of_file(kind, fd).value_or(""), false, {}, {}};
  }
  return keep_beside(fd, fields, sums, exchange);
}

S3Code Service::check_copied_size(std::uint64_t size_bytes, Exchange& exchange) {
  if (exchange.is_google || size_bytes <= kMaxPutBytes) return S3Code::kNone;
  exchange.error_detail =
      "The specified copy source is larger than the maximum allowable size for a copy source: " +
      std::to_string(kMaxPutBytes);
  return S3Code::kInvalidRequest;
}

S3Code Service::copy_object(const http::RequestHead& head, Exchange& exchange) {
  if (exchange.fate.has_error_in_body) return refuse_in_body(head, exchange);
  const Target& target = exchange.target;
  std::shared_ptr<const OpenFile> source;
  if (const S3Code code = open_copy_source(head, source); code != S3Code::kNone) return code;
  if (const S3Code code = check_copied_size(source->info.size_bytes, exchange);
      code != S3Code::kNone) {
    return code;
  }
  FileInfo present;
  const StorageClass storage_class = wanted_class(head);
  if (head.header("x-amz-metadata-directive") != "REPLACE" &&
      storage_class == source->info.tag.storage_class &&
      shared_.storage.find(target.bucket, target.key, present) && present == source->info) {
    exchange.error_detail =
        "This copy request is illegal because it is trying to copy an object to itself without "
        "changing the object's metadata or storage class.";
    return S3Code::kInvalidRequest;
  }
  TemporaryFile file;
  if (const S3Code code = shared_.storage.create_temporary(target.bucket, file);
      code != S3Code::kNone) {
    return code;
  }
  if (!append_file_range(source->fd.get(), 0, source->info.size_bytes, file.fd())) {
    return S3Code::kInternalError;
  }
  if (const S3Code code = copy_fields(head, exchange, *source, file.fd()); code != S3Code::kNone) {
    return code;
  }
  FileInfo info;
  VersionTag tag;  // the MD5 of what came in parts is not known: no MD5 rather than reading it all
  if (source->info.tag.part_count == 0) tag.md5 = source->info.tag.md5;
  tag.storage_class = storage_class;
  const S3Code code = shared_.storage.commit(std::move(file), target.bucket, target.key,
                                             write_condition(head, exchange), tag, info);
  if (code != S3Code::kNone) return code;
  set_xml(copy_document("CopyObjectResult", info), exchange.response);
  return S3Code::kNone;
}

S3Code Service::delete_object(const http::RequestHead& head, Exchange& exchange) {
  WriteCondition condition;
  condition.if_match = head.header("if-match");
  if (!parse_removal(head.header("x-amz-if-match-last-modified-time"),
                     head.header("x-amz-if-match-size"), condition)) {
    return S3Code::kInvalidArgument;
  }
  exchange.response.status = 204;
  return shared_.storage.remove(exchange.target.bucket, exchange.target.key, condition);
}

S3Code Service::delete_one(const std::string& bucket, const pugi::xml_node& object) {
  const std::string_view key = object.child_value("Key");
  if (key.size() > kMaxKeyBytes) return S3Code::kKeyTooLong;
  const std::string_view version = object.child_value("VersionId");
  if (!version.empty() && version != "null") return S3Code::kNotImplemented;
  WriteCondition condition;
  condition.if_match = object.child_value("ETag");
  if (!parse_removal(object.child_value("LastModifiedTime"), object.child_value("Size"),
                     condition)) {
    return S3Code::kInvalidArgument;
  }
  return shared_.storage.remove(bucket, key, condition);
}

S3Code Service::delete_objects(const http::RequestHead& head, Exchange& exchange) {
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  if (!exchange.is_google && !has_body_sum(head)) {
    exchange.error_detail =
        "Missing required header for this request: Content-MD5 OR x-amz-checksum-*";
    return S3Code::kInvalidRequest;
  }
  const std::string empty;
  const std::string& text = exchange.body ? exchange.body->memory() : empty;
  pugi::xml_document document;
  if (!document.load_buffer(text.data(), text.size(),
                            pugi::parse_default | pugi::parse_ws_pcdata_single)) {
    return S3Code::kMalformedXml;
  }
  const pugi::xml_node root = document.child("Delete");
  if (const S3Code code = check_batch(root); code != S3Code::kNone) return code;
  const bool is_quiet = std::string_view(root.child_value("Quiet")) == "true";
  std::string out(kXmlHead);
  out += "<DeleteResult";
  out += kXmlNamespace;
  for (const pugi::xml_node& object : root.children("Object")) {
    const S3Code code = delete_one(exchange.target.bucket, object);
    if (code != S3Code::kNone) {
      out += "<Error>";
      append_xml_element("Key", object.child_value("Key"), out);
      append_xml_element("Code", error_text(code).name, out);
      append_xml_element("Message", error_text(code).message, out);
      out += "</Error>";
    } else if (!is_quiet) {
      out += "<Deleted>";
      append_xml_element("Key", object.child_value("Key"), out);
      out += "</Deleted>";
    }
  }
  out += "</DeleteResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

}  // namespace headrace::sim
