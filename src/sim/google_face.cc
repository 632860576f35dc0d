#include "sim/google_face.h"

#include "base/list_item.h"
#include "base/strings.h"
#include "http/fields.h"
#include "sim/object_sums.h"

namespace headrace::sim {

std::string_view bearer_token(const http::RequestHead& head) noexcept {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view value = head.header("authorization");
  return value.starts_with(kScheme) ? value.substr(kScheme.size()) : std::string_view();
}

bool is_google_request(const http::RequestHead& head) noexcept {
  return !bearer_token(head).empty();
}

std::uint64_t generation_of(const FileInfo& info) noexcept {
  return static_cast<std::uint64_t>(info.modified_ns);
}

std::optional<std::uint64_t> wanted_generation(const http::RequestHead& head) {
  const std::string_view text = head.header("x-goog-if-generation-match");
  if (text.empty()) return std::nullopt;
  // Nothing has the largest number: a malformed one matches nothing.
  return parse_decimal<std::uint64_t>(text).value_or(UINT64_MAX);
}

std::string_view crc32c_of_hash(std::string_view field) noexcept {
  constexpr std::string_view kName = "crc32c=";
  while (!field.empty()) {
    const std::string_view item = take_item(field);
    if (item.starts_with(kName)) return item.substr(kName.size());
  }
  return {};
}

void append_google_fields(const FileInfo& info, std::string_view sums, std::string& out) {
  out += "x-goog-generation: " + std::to_string(generation_of(info)) + "\r\n";
  out += "x-goog-stored-content-length: " + std::to_string(info.size_bytes) + "\r\n";
  out += "x-goog-stored-content-encoding: identity\r\n";
  out += "x-goog-storage-class: " + std::string(name_of(info.tag.storage_class)) + "\r\n";
  const ObjectSums stored = sums_from_text(sums);
  if (stored.field == "x-amz-checksum-crc32c" && !stored.is_composite) {
    out += "x-goog-hash: crc32c=" + stored.value + "\r\n";
  }
}

}  // namespace headrace::sim
