// Multipart uploads. An upload is a folder of the bucket's hidden folder: uploads/<id>/ with the
// file "key" and one file a part, "part-00001".
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <pugixml.hpp>

#include "base/random.h"
#include "base/strings.h"
#include "http/date.h"
#include "http/fields.h"
#include "http/range.h"
#include "sim/service.h"

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
  char text[2048];
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

}  // namespace

S3Code Service::find_upload(const Exchange& exchange, std::string& folder) const {
  const Target& target = exchange.target;
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  const std::string_view id = target.parameter("uploadId").value_or("");
  if (!is_upload_id(id)) return S3Code::kNoSuchUpload;
  folder = shared_.storage.hidden_path(target.bucket, "uploads/") + std::string(id);
  return read_small_file(folder + "/key") == target.key ? S3Code::kNone : S3Code::kNoSuchUpload;
}

S3Code Service::create_upload(Exchange& exchange) {
  const Target& target = exchange.target;
  if (const S3Code code = require_bucket(exchange); code != S3Code::kNone) return code;
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  Random random(static_cast<std::uint64_t>(now.tv_sec * 1'000'000'000LL + now.tv_nsec) +
                shared_.next_id.fetch_add(1, std::memory_order_relaxed));
  char id[33];
  std::snprintf(id, sizeof id, "%016llx%016llx", static_cast<unsigned long long>(random.next()),
                static_cast<unsigned long long>(random.next()));
  const std::string file =
      shared_.storage.hidden_path(target.bucket, "uploads/") + std::string(id) + "/key";
  if (!make_parent_folders(file) || !write_file(file, target.key)) return S3Code::kInternalError;
  std::string out;
  open_element("InitiateMultipartUploadResult", out);
  append_xml_element("Bucket", target.bucket, out);
  append_xml_element("Key", target.key, out);
  append_xml_element("UploadId", id, out);
  out += "</InitiateMultipartUploadResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

S3Code Service::upload_part(const http::RequestHead& head, Exchange& exchange) {
  std::string folder;
  if (const S3Code code = find_upload(exchange, folder); code != S3Code::kNone) return code;
  if (exchange.fate.has_error_in_body) return refuse_in_body(head, exchange);
  const auto number = part_number_of(exchange.target.parameter("partNumber").value_or(""));
  if (!number) return S3Code::kInvalidArgument;
  const bool is_copy = exchange.target.kind == Kind::kCopyPart;
  if (is_copy) {
    std::shared_ptr<const OpenFile> source;
    S3Code code = open_copy_source(head, source);
    if (code == S3Code::kNone) {
      code = shared_.storage.create_temporary(exchange.target.bucket, exchange.file);
    }
    if (code != S3Code::kNone) return code;
    http::ResolvedRange range{0, source->info.size_bytes};
    if (const auto text = head.header("x-amz-copy-source-range"); !text.empty()) {
      const auto spec = http::parse_range(text);
      const auto resolved =
          spec ? http::resolve_range(*spec, source->info.size_bytes) : std::nullopt;
      if (!resolved) return S3Code::kInvalidRange;
      range = *resolved;
    }
    if (!append_file_range(source->fd.get(), range.offset_bytes, range.length_bytes,
                           exchange.file.fd())) {
      return S3Code::kInternalError;
    }
  }
  FileInfo info;
  if (!stat_object(exchange.file.path(), info) ||
      ::rename(exchange.file.path().c_str(), part_path(folder, *number).c_str()) != 0) {
    return S3Code::kNoSuchUpload;  // completed or aborted meanwhile
  }
  exchange.file.release();
  if (!is_copy) {
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
  out += "</CopyPartResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

/// Checks the list of parts and puts them together in exchange.file.
S3Code Service::assemble(const std::string& folder, std::string_view text, Exchange& exchange,
                         std::uint32_t& part_count) {
  pugi::xml_document document;
  if (!document.load_buffer(text.data(), text.size())) return S3Code::kMalformedXml;
  std::vector<std::pair<std::string, std::uint64_t>> parts;  // path, size
  std::uint32_t last_number = 0;
  for (const pugi::xml_node& part : document.child("CompleteMultipartUpload").children("Part")) {
    const auto number = part_number_of(trim(part.child_value("PartNumber")));
    if (!number) return S3Code::kMalformedXml;
    if (*number <= last_number) return S3Code::kInvalidPartOrder;
    last_number = *number;
    if (!parts.empty() && parts.back().second < kMinPartBytes) return S3Code::kEntityTooSmall;
    std::string path = part_path(folder, *number);
    FileInfo info;
    if (!stat_object(path, info) || !etag_matches(trim(part.child_value("ETag")), etag_of(info))) {
      return S3Code::kInvalidPart;
    }
    parts.emplace_back(std::move(path), info.size_bytes);
  }
  if (parts.empty()) return S3Code::kMalformedXml;
  part_count = static_cast<std::uint32_t>(parts.size());
  if (const S3Code code = shared_.storage.create_temporary(exchange.target.bucket, exchange.file);
      code != S3Code::kNone) {
    return code;
  }
  for (const auto& [path, size_bytes] : parts) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return S3Code::kInvalidPart;
    if (!append_file_range(fd.get(), 0, size_bytes, exchange.file.fd()))
      return S3Code::kInternalError;
  }
  return S3Code::kNone;
}

S3Code Service::complete_upload(const http::RequestHead& head, Exchange& exchange) {
  const Target& target = exchange.target;
  std::string folder;
  if (const S3Code code = find_upload(exchange, folder); code != S3Code::kNone) return code;
  if (exchange.fate.has_error_in_body) return refuse_in_body(head, exchange);
  std::uint32_t part_count = 0;
  const std::string_view text = exchange.body ? exchange.body->memory() : std::string_view();
  if (const S3Code code = assemble(folder, text, exchange, part_count); code != S3Code::kNone) {
    return code;
  }
  WriteCondition condition;
  condition.if_absent = head.header("if-none-match") == "*";
  condition.if_match = head.header("if-match");
  FileInfo info;
  const S3Code code = shared_.storage.commit(std::move(exchange.file), target.bucket, target.key,
                                             condition, part_count, info);
  if (code != S3Code::kNone) return code;
  remove_folder(folder);
  std::string out;
  open_element("CompleteMultipartUploadResult", out);
  append_xml_element("Location", "/" + target.bucket + "/" + target.key, out);
  append_xml_element("Bucket", target.bucket, out);
  append_xml_element("Key", target.key, out);
  append_xml_element("ETag", etag_of(info), out);
  out += "</CompleteMultipartUploadResult>";
  set_xml(std::move(out), exchange.response);
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
  append_xml_element("Bucket", target.bucket, out);
  append_xml_element("Key", target.key, out);
  append_xml_element("UploadId", *target.parameter("uploadId"), out);
  append_xml_element("IsTruncated", "false", out);
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
  for (const std::uint32_t number : numbers) {
    FileInfo info;
    if (!stat_object(part_path(folder, number), info)) continue;
    out += "<Part>";
    append_xml_element("PartNumber", std::to_string(number), out);
    append_xml_element("ETag", etag_of(info), out);
    append_xml_element("Size", std::to_string(info.size_bytes), out);
    out += "</Part>";
  }
  out += "</ListPartsResult>";
  set_xml(std::move(out), exchange.response);
  return S3Code::kNone;
}

}  // namespace headrace::sim
