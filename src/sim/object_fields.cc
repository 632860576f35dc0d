#include "sim/object_fields.h"

#include <sys/xattr.h>

#include <algorithm>
#include <array>

#include "base/list_item.h"
#include "base/strings.h"
#include "http/fields.h"

namespace headrace::sim {
namespace {

constexpr char kFieldsAttribute[] = "user.headrace.fields";
constexpr std::size_t kMaxMetadataBytes = 2048;  // S3's limit of names and values
constexpr std::size_t kMaxFieldsBytes = 3000;    // ext4 holds 4 KiB of attributes in all
constexpr std::string_view kMetadataPrefix = "x-amz-meta-";
constexpr std::string_view kDefaultType = "binary/octet-stream";

// As answers spell them, and the query parameters that replace them.
constexpr std::array<std::string_view, 6> kKept = {"Content-Type",        "Cache-Control",
                                                   "Content-Disposition", "Content-Encoding",
                                                   "Content-Language",    "Expires"};
constexpr std::array<std::string_view, 6> kOverrides = {
    "response-content-type",     "response-cache-control",    "response-content-disposition",
    "response-content-encoding", "response-content-language", "response-expires"};

void append_line(std::string_view name, std::string_view value, std::string& out) {
  out += name;
  out += ": ";
  out += value;
  out += "\r\n";
}

/// aws-chunked is a form of the transfer, not of the object.
std::string without_aws_chunked(std::string_view value) {
  if (!http::list_contains(value, "aws-chunked")) return std::string(value);
  std::string out;
  while (!value.empty()) {
    const std::string_view item = take_item(value);
    if (!item.empty() && !http::equals_ignoring_case(item, "aws-chunked")) {
      if (!out.empty()) out += ',';
      out += item;
    }
  }
  return out;
}

std::size_t metadata_bytes(std::string_view fields) {
  std::size_t total = 0;
  http::Field field;
  while (http::next_field(fields, field)) {
    if (field.name.starts_with(kMetadataPrefix)) {
      total += field.name.size() - kMetadataPrefix.size() + field.value.size();
    }
  }
  return total;
}

/// Values of queries and forms: a line break in one would be a header of the client's making.
std::string on_one_line(std::string_view value) {
  std::string out(value);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
  return out;
}

}  // namespace

S3Code keep_field(std::string_view name, std::string_view raw_value, std::string& out) {
  const std::string lower_name = to_lower(name);
  const std::string value = on_one_line(raw_value);
  if (lower_name.starts_with(kMetadataPrefix)) {
    append_line(lower_name, value, out);
  } else {
    const auto kept = std::find_if(kKept.begin(), kKept.end(), [name](std::string_view known) {
      return http::equals_ignoring_case(known, name);
    });
    if (kept == kKept.end()) return S3Code::kNone;
    const std::string text = *kept == "Content-Encoding" ? without_aws_chunked(value) : value;
    if (!text.empty()) append_line(*kept, text, out);
  }
  const bool fits = out.size() <= kMaxFieldsBytes && metadata_bytes(out) <= kMaxMetadataBytes;
  return fits ? S3Code::kNone : S3Code::kMetadataTooLarge;
}

S3Code kept_fields(const http::RequestHead& head, std::string& out) {
  std::string_view fields = head.fields;
  http::Field field;
  while (http::next_field(fields, field)) {
    if (const S3Code code = keep_field(field.name, field.value, out); code != S3Code::kNone) {
      return code;
    }
  }
  return S3Code::kNone;
}

StorageClass wanted_class(const http::RequestHead& head) {
  const std::string_view google = head.header("x-goog-storage-class");
  const auto wanted =
      storage_class_of(google.empty() ? head.header("x-amz-storage-class") : google);
  return wanted.value_or(StorageClass::kStandard);
}

std::string read_fields(int fd) {
  std::array<char, 4096> text;
  const ssize_t count = ::fgetxattr(fd, kFieldsAttribute, text.data(), text.size());
  return count > 0 ? std::string(text.data(), static_cast<std::size_t>(count)) : std::string();
}

bool write_fields(int fd, std::string_view fields) {
  if (fields.empty() || ::fsetxattr(fd, kFieldsAttribute, fields.data(), fields.size(), 0) == 0) {
    return true;
  }
  http::Field field;
  while (http::next_field(fields, field)) {
    if (field.name != kKept[0]) return false;
  }
  return true;
}

bool overrides_fields(const Target& target) noexcept {
  return std::any_of(target.query.begin(), target.query.end(), [](const auto& parameter) {
    return parameter.first.starts_with("response-");
  });
}

std::string answered_fields(std::string_view fields, const Target& target) {
  std::string out;
  for (std::size_t i = 0; i < kKept.size(); ++i) {
    const auto wanted = target.parameter(kOverrides[i]);
    std::string_view value = http::find_field(fields, kKept[i]);
    const std::string line = on_one_line(wanted.value_or(""));
    if (wanted) value = line;
    if (value.empty() && i == 0) value = kDefaultType;
    if (!value.empty()) append_line(kKept[i], value, out);
  }
  http::Field field;
  while (http::next_field(fields, field)) {
    if (field.name.starts_with(kMetadataPrefix)) append_line(field.name, field.value, out);
  }
  return out;
}

}  // namespace headrace::sim
