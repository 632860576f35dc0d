// Multipart uploads. An upload is a folder of the bucket's hidden folder: uploads/<id>/ with the
// file "key" and one file a part, "part-00001".
//
// A part is put in place by rename(), with its tag and sum already beside it, so that parts may
// come in any order, several at a time, and again: the last one counts. Completion takes the parts
// that the request names, in its order, and checks each by its ETag; what else is in the folder
// goes with it. A completion may be repeated: a client that never got the answer asks again, and is
// answered the same as long as the object is still the one that it made (completed_before()).
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <pugixml.hpp>
#include <tuple>

#include "base/random.h"
#include "base/strings.h"
#include "http/date.h"
#include "http/fields.h"
#include "http/range.h"
#include "http/uri.h"
#include "sim/allowed.h"
#include "sim/object_fields.h"
#include "sim/service.h"
#include "sim/upload_sums.h"

namespace headrace::sim {
namespace {

constexpr std::uint32_t kMaxPartNumber = 10'000;     // S3's limit
constexpr std::uint64_t kMinPartBytes = 5ULL << 20;  // S3's limit, except for the last part

std::optional<std::uint32_t> part_number_of(std::string_view text) {
  const auto number = parse_decimal<std::uint64_t>(text);
  if (!number || *number < 1 || *number > kMaxPartNumber) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

std::string part_path(const std::string& folder, std::uint32_t number) {
  char name[24];
  std::snprintf(name, sizeof name, "/part-%05u", number);
  return folder + name;
}

bool is_upload_id(std::string_view id) {
  return id.size() == 32 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool write_file(const std::string& path, std::string_view text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::string read_small_file(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[4096];
  const ssize_t count = fd ? ::read(fd.get(), text, sizeof text) : 0;
  return count > 0 ? std::string(text, static_cast<std::size_t>(count)) : std::string();
}

void remove_folder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

void open_element(std::string_view name, std::string& out) {
  out += kXmlHead;
  out += '<';
  out += name;
  out += kXmlNamespace;
}

/// "ChecksumCRC32C" of "x-amz-checksum-crc32c"; empty for other names.
std::string sum_element(std::string_view field) {
  constexpr std::string_view kPrefix = "x-amz-checksum-";
  if (!field.starts_with(kPrefix)) return {};
  std::string name = "Checksum";
  for (char c : field.substr(kPrefix.size())) {
    name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

/// Of the object that an upload will make.
StorageClass class_of_upload(const std::string& folder) {
  return storage_class_of(read_small_file(folder + "/class")).value_or(StorageClass::kStandard);
}

void append_owners(StorageClass storage_class, std::string& out) {
  out += "<Initiator>" + std::string(kOwnerElement) + "</Initiator><Owner>";
  out += kOwnerElement;
  out += "</Owner>";
  append_xml_element("StorageClass", name_of(storage_class), out);
}

UploadSums sums_of_upload(const std::string& folder) {
  return upload_sums_from_text(read_small_file(folder + "/checksum"));
}

/// False when the request names a sum of the part that is not the one that came with it.
bool sum_matches(const pugi::xml_node& part, const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ObjectSums sums = sums_from_text(fd ? read_sums(fd.get()) : std::string());
  const std::string name = sum_element(sums.field);
  if (name.empty()) return true;
  const std::string_view claimed = trim(part.child_value(name.c_str()));
  return claimed.empty() || claimed == sums.value;
}

/// Of the whole list of a completion. \pre assemble() took it.
S3Code check_listed_sums(std::string_view text, const UploadSums& upload, std::string& detail) {
  pugi::xml_document document;
  document.load_buffer(text.data(), text.size());
  const std::string name = sum_element(upload.field);
  for (const pugi::xml_node& part : document.child("CompleteMultipartUpload").children("Part")) {
    const auto number = part_number_of(trim(part.child_value("PartNumber")));
    const bool has_sum = !trim(part.child_value(name.c_str())).empty();
    const S3Code code = check_listed_sum(upload, number.value_or(0), has_sum, detail);
    if (code != S3Code::kNone) return code;
  }
  return S3Code::kNone;
}

void append_part(const std::string& folder, std::uint32_t number, std::string& out) {
  FileInfo info;
  const std::string path = part_path(folder, number);
  if (!stat_object(path, info)) return;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ObjectSums sums = sums_from_text(fd ? read_sums(fd.get()) : std::string());
  out += "<Part>";
  append_xml_element("PartNumber", std::to_string(number), out);
  append_xml_element("ETag", etag_of(info), out);
  append_xml_element("Size", std::to_string(info.size_bytes), out);
  append_sum_element(sums.field, sums.value, out);
  out += "</Part>";
}

/// "bytes=FIRST-LAST" within the source: S3 takes no other form. Errors: kInvalidArgument,
/// kInvalidRange.
S3Code read_copy_range(std::string_view text, std::uint64_t size_bytes, http::ResolvedRange& out) {
  constexpr std::string_view kUnit = "bytes=";
  if (!text.starts_with(kUnit)) return S3Code::kInvalidArgument;
  text.remove_prefix(kUnit.size());
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return S3Code::kInvalidArgument;
  const auto first = parse_decimal<std::uint64_t>(text.substr(0, dash));
  const auto last = parse_decimal<std::uint64_t>(text.substr(dash + 1));
  if (!first || !last || *first > *last) return S3Code::kInvalidArgument;
  if (*last >= size_bytes) return S3Code::kInvalidRange;
  out = {*first, *last - *first + 1};
  return S3Code::kNone;
}

/// Completes `info`, whose tag is set, from the file of a part, and keeps the tag with it.
bool seal_part(int fd, FileInfo& info) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return false;
  const VersionTag tag = info.tag;
  info = info_of(st);
  info.tag = tag;
  write_seal(fd, info);
  return true;
}

/// What S3 makes of the parts: the MD5 of their MD5s. A part whose MD5 is not known counts with its
/// ETag: no client can know the sum then, and none takes an ETag with "-" for one of the bytes.
void add_part_digest(const FileInfo& part, Checksum& digests) {
  if (part.tag.md5) {
    digests.update({reinterpret_cast<const char*>(part.tag.md5->data()), part.tag.md5->size()});
  } else {
    digests.update(etag_of(part));
  }
}

void answer_completion(const Target& target, const FileInfo& info, const ObjectSums& sums,
                       Response& response) {
  std::string out;
  open_element("CompleteMultipartUploadResult", out);
  append_xml_element("Location", "/" + target.bucket + "/" + target.key, out);
  append_xml_element("Bucket", target.bucket, out);
  append_xml_element("Key", target.key, out);
  append_xml_element("ETag", etag_of(info), out);
  append_sum_element(sums.field, sums.value, out);
  if (!sums.field.empty()) {
    append_xml_element("ChecksumType", sums.is_composite ? "COMPOSITE" : "FULL_OBJECT", out);
  }
  out += "</CompleteMultipartUploadResult>";
  set_xml(std::move(out), response);
}

}  // namespace

void append_sum_element(std::string_view field, std::string_view value, std::string& out) {
  if (const std::string name = sum_element(field); !name.empty()) {
    append_xml_element(name, value, out);
  }
}

S3Code Service::find_upload(const Exchange& exchange, std::string& folder) const {
  const Target& target = exchange.target;
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  const std::string_view id = target.parameter("uploadId").value_or("");
  if (!is_upload_id(id)) return S3Code::kNoSuchUpload;
  folder = shared_.storage.hidden_path(target.bucket, "uploads/") + std::string(id);
  return read_small_file(folder + "/key") == target.key ? S3Code::kNone : S3Code::kNoSuchUpload;
}

S3Code Service::create_upload(const http::RequestHead& head, Exchange& exchange) {
  const Target& target = exchange.target;
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto now_ns = static_cast<std::uint64_t>(now.tv_sec * 1'000'000'000LL + now.tv_nsec);
  Random random(now_ns + shared_.next_id.fetch_add(1, std::memory_order_relaxed));
  // Time first: lists have the uploads of a key in the order of their beginnings, and go on behind
  // an id.
  char id[33];
  std::snprintf(id, sizeof id, "%016llx%016llx", static_cast<unsigned long long>(now_ns),
                static_cast<unsigned long long>(random.next()));
  std::string fields;
  if (const S3Code code = kept_fields(head, fields); code != S3Code::kNone) return code;
  UploadSums sums;
  if (const S3Code code = read_upload_sums(head, sums, exchange.error_detail);
      code != S3Code::kNone) {
    return code;
  }
  if (is_directory_bucket(target.bucket) && head.header("x-amz-checksum-type") == "FULL_OBJECT") {
    return S3Code::kInvalidRequest;
  }
  if (exchange.is_google) sums.is_composite = false;
  const std::string folder =
      shared_.storage.hidden_path(target.bucket, "uploads/") + std::string(id);
  if (!make_parent_folders(folder + "/key") || !write_file(folder + "/fields", fields) ||
      !write_file(folder + "/class", name_of(wanted_class(head))) ||
      !write_file(folder + "/checksum", to_text(sums)) ||
      !write_file(folder + "/key", target.key)) {
    return S3Code::kInternalError;
  }
  if (!sums.field.empty()) {
    exchange.response.fields += "x-amz-checksum-algorithm: ";
    exchange.response.fields += head.header("x-amz-checksum-algorithm");
    exchange.response.fields += "\r\nx-amz-checksum-type: ";
    exchange.response.fields += sums.is_composite ? "COMPOSITE\r\n" : "FULL_OBJECT\r\n";
  }
  std::string out;
  open_element("InitiateMultipartUploadResult", out);
  append_xml_element("Bucket", target.bucket, out);
  append_xml_element("Key", target.key, out);
  append_xml_element("UploadId", id, out);
  out += "</InitiateMultipartUploadResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

/// Copies what the request names into exchange.file.
S3Code Service::copy_part(const http::RequestHead& head, Exchange& exchange, VersionTag& tag) {
  std::shared_ptr<const OpenFile> source;
  if (const S3Code code = open_copy_source(head, source); code != S3Code::kNone) return code;
  if (const S3Code code = shared_.storage.create_temporary(exchange.target.bucket, exchange.file);
      code != S3Code::kNone) {
    return code;
  }
  http::ResolvedRange range{0, source->info.size_bytes};
  if (const auto text = head.header("x-amz-copy-source-range"); !text.empty()) {
    const S3Code code = read_copy_range(text, source->info.size_bytes, range);
    if (code != S3Code::kNone) return code;
  }
  if (const S3Code code = check_copied_size(range.length_bytes, exchange); code != S3Code::kNone) {
    return code;
  }
  const bool is_whole = range.length_bytes == source->info.size_bytes;
  if (is_whole && source->info.tag.part_count == 0) tag.md5 = source->info.tag.md5;
  return append_file_range(source->fd.get(), range.offset_bytes, range.length_bytes,
                           exchange.file.fd())
             ? S3Code::kNone
             : S3Code::kInternalError;
}

/// The sum that came with the part or, where the upload has one, is computed as S3 does.
S3Code Service::sum_part(const std::string& folder, Exchange& exchange, ObjectSums& out) const {
  const UploadSums upload = sums_of_upload(folder);
  const bool is_copy = exchange.target.kind == Kind::kCopyPart;
  if (!is_copy) {
    std::tie(out.field, out.value) = exchange.body->stored_sum();
    const S3Code code = check_part_sum(upload, out.field, exchange.error_detail);
    if (code != S3Code::kNone) return code;
  }
  ChecksumKind kind;
  if (!out.field.empty() || !checksum_kind_of(upload.field, kind)) return S3Code::kNone;
  auto value = sum_of_file(kind, exchange.file.fd());
  if (!value) return S3Code::kInternalError;
  out.field = upload.field;
  out.value = *std::move(value);
  return S3Code::kNone;
}

S3Code Service::upload_part(const http::RequestHead& head, Exchange& exchange) {
  std::string folder;
  if (const S3Code code = find_upload(exchange, folder); code != S3Code::kNone) return code;
  if (exchange.fate.has_error_in_body) return refuse_in_body(head, exchange);
  const auto number = part_number_of(exchange.target.parameter("partNumber").value_or(""));
  if (!number) return S3Code::kInvalidArgument;
  const bool is_copy = exchange.target.kind == Kind::kCopyPart;
  FileInfo info;
  if (is_copy) {
    if (const S3Code code = copy_part(head, exchange, info.tag); code != S3Code::kNone) return code;
  } else {
    info.tag.md5 = exchange.body->md5();
  }
  ObjectSums sums;
  if (const S3Code code = sum_part(folder, exchange, sums); code != S3Code::kNone) return code;
  write_sums(exchange.file.fd(), sums);
  if (!seal_part(exchange.file.fd(), info) ||
      ::rename(exchange.file.path().c_str(), part_path(folder, *number).c_str()) != 0) {
    return S3Code::kNoSuchUpload;  // completed or aborted meanwhile
  }
  exchange.file.release();
  if (!is_copy) {
    add_written_fields(info, sums, exchange);
    exchange.response.fields += "ETag: " + etag_of(info) + "\r\n" + exchange.body->echo();
    return S3Code::kNone;
  }
  std::string out;
  open_element("CopyPartResult", out);
  append_xml_element("LastModified",
                     http::format_iso_date(std::chrono::sys_seconds(
                         std::chrono::seconds(info.modified_ns / 1'000'000'000))),
                     out);
  append_xml_element("ETag", etag_of(info), out);
  append_sum_element(sums.field, sums.value, out);
  out += "</CopyPartResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

/// Checks the list of parts and puts them together in exchange.file.
S3Code Service::assemble(const std::string& folder, std::string_view text, Exchange& exchange,
                         ObjectSums& sums, VersionTag& tag) {
  pugi::xml_document document;
  if (!document.load_buffer(text.data(), text.size())) return S3Code::kMalformedXml;
  std::vector<std::pair<std::string, std::uint64_t>> parts;  // path, size
  std::uint32_t last_number = 0;
  auto digests = Checksum::create(ChecksumKind::kMd5);
  if (!digests) return S3Code::kInternalError;
  for (const pugi::xml_node& part : document.child("CompleteMultipartUpload").children("Part")) {
    const auto number = part_number_of(trim(part.child_value("PartNumber")));
    if (!number) return S3Code::kMalformedXml;
    if (*number <= last_number) return S3Code::kInvalidPartOrder;
    last_number = *number;
    // The part before turns out not to be the last one only now.
    if (!parts.empty() && parts.back().second < kMinPartBytes) return S3Code::kEntityTooSmall;
    std::string path = part_path(folder, *number);
    FileInfo info;
    if (!stat_object(path, info) || !is_same_etag(trim(part.child_value("ETag")), etag_of(info))) {
      return S3Code::kInvalidPart;
    }
    if (!sum_matches(part, path)) return S3Code::kInvalidPart;
    add_part_digest(info, **digests);
    parts.emplace_back(std::move(path), info.size_bytes);
  }
  if (parts.empty()) return S3Code::kMalformedXml;
  if (const S3Code code = shared_.storage.create_temporary(exchange.target.bucket, exchange.file);
      code != S3Code::kNone) {
    return code;
  }
  const std::string digest = (*digests)->finish();
  std::memcpy(tag.md5.emplace().data(), digest.data(), digest.size());
  tag.part_count = static_cast<std::uint32_t>(parts.size());
  for (const auto& [path, size_bytes] : parts) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return S3Code::kInvalidPart;
    const ObjectSums part = sums_from_text(read_sums(fd.get()));
    // Parts with sums of different kinds give no sum of the object.
    if (sums.part_sizes.empty()) sums.field = part.field;
    if (part.field != sums.field) sums.field.clear();
    sums.part_sizes.push_back(size_bytes);
    sums.part_values.push_back(part.value);
    if (!append_file_range(fd.get(), 0, size_bytes, exchange.file.fd()))
      return S3Code::kInternalError;
  }
  return S3Code::kNone;
}

S3Code Service::finish_sums(const std::string& folder, const http::RequestHead& head,
                            Exchange& exchange, ObjectSums& sums) const {
  ChecksumKind kind = ChecksumKind::kCrc32;
  if (!checksum_kind_of(sums.field, kind)) {
    sums.field.clear();
    sums.part_values.clear();
    return S3Code::kNone;
  }
  sums.is_composite = sums_of_upload(folder).is_composite;
  auto value = combine_sums(kind, sums.is_composite, sums.part_values, sums.part_sizes);
  if (!value && kind == ChecksumKind::kCrc32) value = sum_of_file(kind, exchange.file.fd());
  if (!value) return S3Code::kInvalidRequest;
  sums.value = *std::move(value);
  const std::string_view claimed = head.header(sums.field);
  return claimed.empty() || claimed == sums.value ? S3Code::kNone : S3Code::kBadDigest;
}

/// The object, when this upload was completed before with the same parts and is still that one.
std::shared_ptr<const OpenFile> Service::completed_before(const Exchange& exchange,
                                                          std::string_view text) {
  const Target& target = exchange.target;
  const auto upload = shared_.completed_uploads.find(target.parameter("uploadId").value_or(""));
  if (!upload || upload->bucket != target.bucket || upload->key != target.key ||
      upload->parts_hash != hash_text(text)) {
    return nullptr;
  }
  std::shared_ptr<const OpenFile> file;
  const bool is_there = open_object(target, file) == S3Code::kNone && file->etag == upload->etag;
  return is_there ? file : nullptr;
}

S3Code Service::complete_upload(const http::RequestHead& head, Exchange& exchange) {
  const Target& target = exchange.target;
  std::string folder;
  const std::string_view text = exchange.body ? exchange.body->memory() : std::string_view();
  if (const S3Code code = find_upload(exchange, folder); code != S3Code::kNone) {
    const auto file = code == S3Code::kNoSuchUpload ? completed_before(exchange, text) : nullptr;
    if (!file) return code;
    answer_completion(target, file->info, sums_from_text(file->sums), exchange.response);
    return S3Code::kNone;
  }
  if (exchange.fate.has_error_in_body) return refuse_in_body(head, exchange);
  const UploadSums upload = sums_of_upload(folder);
  if (const S3Code code =
          check_completed_type(upload, head.header("x-amz-checksum-type"), exchange.error_detail);
      code != S3Code::kNone) {
    return code;
  }
  ObjectSums sums;
  VersionTag tag;
  if (const S3Code code = assemble(folder, text, exchange, sums, tag); code != S3Code::kNone) {
    return code;
  }
  if (const S3Code code = finish_sums(folder, head, exchange, sums); code != S3Code::kNone) {
    return code;
  }
  // Behind what is wrong, as ceph/s3-tests want it.
  if (const S3Code code = check_listed_sums(text, upload, exchange.error_detail);
      code != S3Code::kNone) {
    return code;
  }
  if (const S3Code code =
          keep_beside(exchange.file.fd(), read_small_file(folder + "/fields"), sums, exchange);
      code != S3Code::kNone) {
    return code;
  }
  tag.storage_class = class_of_upload(folder);
  FileInfo info;
  const S3Code code = shared_.storage.commit(std::move(exchange.file), target.bucket, target.key,
                                             write_condition(head, exchange), tag, info);
  if (code != S3Code::kNone) return code;
  remove_folder(folder);
  shared_.completed_uploads.add(std::string(*target.parameter("uploadId")),
                                {target.bucket, target.key, etag_of(info), hash_text(text)});
  add_written_fields(info, sums, exchange);
  answer_completion(target, info, sums, exchange.response);
  return S3Code::kNone;
}

S3Code Service::abort_upload(Exchange& exchange) {
  std::string folder;
  if (const S3Code code = find_upload(exchange, folder); code != S3Code::kNone) return code;
  remove_folder(folder);
  exchange.response.status = 204;
  return S3Code::kNone;
}

S3Code Service::list_parts(Exchange& exchange) {
  const Target& target = exchange.target;
  std::string folder;
  if (const S3Code code = find_upload(exchange, folder); code != S3Code::kNone) return code;
  std::string out;
  open_element("ListPartsResult", out);
  append_owners(class_of_upload(folder), out);
  append_xml_element("Bucket", target.bucket, out);
  append_xml_element("Key", target.key, out);
  append_xml_element("UploadId", *target.parameter("uploadId"), out);
  const auto marker =
      parse_decimal<std::uint64_t>(target.parameter("part-number-marker").value_or("0"));
  std::error_code error;
  std::filesystem::directory_iterator walk(folder, error);
  std::vector<std::uint32_t> numbers;
  for (; !error && walk != std::filesystem::directory_iterator(); walk.increment(error)) {
    const std::string name = walk->path().filename();
    if (!name.starts_with("part-")) continue;
    const auto number = part_number_of(std::string_view(name).substr(5));
    if (number && *number > marker.value_or(0)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  const auto limit = parse_decimal<std::uint64_t>(target.parameter("max-parts").value_or("1000"));
  if (!limit) return S3Code::kInvalidArgument;
  const bool is_truncated = numbers.size() > std::min<std::uint64_t>(*limit, 1000);
  if (is_truncated) numbers.resize(static_cast<std::size_t>(std::min<std::uint64_t>(*limit, 1000)));
  append_xml_element("IsTruncated", is_truncated ? "true" : "false", out);
  append_xml_element("PartNumberMarker", std::to_string(marker.value_or(0)), out);
  if (is_truncated && !numbers.empty()) {
    append_xml_element("NextPartNumberMarker", std::to_string(numbers.back()), out);
  }
  for (const std::uint32_t number : numbers) append_part(folder, number, out);
  out += "</ListPartsResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

S3Code Service::list_uploads(Exchange& exchange) {
  const Target& target = exchange.target;
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  if (is_directory_bucket(target.bucket) && !is_directory_list(target)) {
    return S3Code::kInvalidRequest;
  }
  const auto limit = parse_decimal<std::uint64_t>(target.parameter("max-uploads").value_or("1000"));
  if (!limit) return S3Code::kInvalidArgument;
  std::pair<std::string, std::string> after(target.parameter("key-marker").value_or(""),
                                            target.parameter("upload-id-marker").value_or(""));
  // A key alone stands for all of its uploads: "~" is behind every id, which are hexadecimal.
  if (after.second.empty() && !after.first.empty()) after.second = "~";
  const std::string prefix(target.parameter("prefix").value_or(""));
  std::vector<std::pair<std::string, std::string>> uploads;  // key, id
  std::error_code error;
  const std::string folder = shared_.storage.hidden_path(target.bucket, "uploads");
  std::filesystem::directory_iterator walk(folder, error);
  for (; !error && walk != std::filesystem::directory_iterator(); walk.increment(error)) {
    std::pair<std::string, std::string> upload(read_small_file(walk->path().string() + "/key"),
                                               walk->path().filename().string());
    if (upload.first.starts_with(prefix) && !upload.first.empty() && upload > after) {
      uploads.push_back(std::move(upload));
    }
  }
  std::sort(uploads.begin(), uploads.end());
  const bool is_truncated = uploads.size() > std::min<std::uint64_t>(*limit, 1000);
  if (is_truncated) uploads.resize(static_cast<std::size_t>(std::min<std::uint64_t>(*limit, 1000)));
  const bool is_encoded = target.parameter("encoding-type") == "url";
  const auto key_text = [&](const std::string& key) {
    return is_encoded ? http::encode(key, http::Slash::kKeep, http::Plus::kSpace) : key;
  };
  std::string out;
  open_element("ListMultipartUploadsResult", out);
  append_xml_element("Bucket", target.bucket, out);
  append_xml_element("Prefix", key_text(prefix), out);
  if (is_encoded) append_xml_element("EncodingType", "url", out);
  append_xml_element("IsTruncated", is_truncated ? "true" : "false", out);
  if (is_truncated && !uploads.empty()) {
    append_xml_element("NextKeyMarker", key_text(uploads.back().first), out);
    append_xml_element("NextUploadIdMarker", uploads.back().second, out);
  }
  for (const auto& [key, id] : uploads) {
    struct stat st {};
    (void)::stat((folder + "/" + id + "/key").c_str(), &st);
    out += "<Upload>";
    append_xml_element("Key", key_text(key), out);
    append_xml_element("UploadId", id, out);
    append_owners(class_of_upload(folder + "/" + id), out);
    append_xml_element(
        "Initiated",
        http::format_iso_date(std::chrono::sys_seconds(std::chrono::seconds(st.st_mtim.tv_sec))),
        out);
    out += "</Upload>";
  }
  out += "</ListMultipartUploadsResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

}  // namespace headrace::sim
