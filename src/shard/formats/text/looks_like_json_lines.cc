#include <algorithm>
#include <string_view>

#include "shard/codec/json_text.h"
#include "shard/formats/text/text_driver.h"

namespace headrace::detail {

namespace {

// From the first character that is no blank on.
std::string_view first_text(std::span<const std::byte> head) noexcept {
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

// An object, or the begin of one up to its first name.
bool begins_object(JsonText json) noexcept {
  std::string_view name;
  return json.take('{') && (json.peek() == '}' || (json.take_string(name) && json.take(':')));
}

}  // namespace

bool looks_like_json_array(std::span<const std::byte> head) noexcept {
  JsonText json(first_text(head));
  return json.take('[') && begins_object(json);
}

bool looks_like_json_lines(std::span<const std::byte> head) noexcept {
  const std::string_view text = first_text(head);
  if (text.empty()) return false;
  const std::size_t newline = text.find('\n');
  std::string_view name, value;
  if (newline != std::string_view::npos) {
    // A whole line must be one object.
    JsonFields fields(trim_json_line(text.substr(0, newline)));
    while (fields.next(name, value)) continue;
    return fields.is_whole();
  }
  // The line goes on: an object with a name in front, or nothing.
  return begins_object(JsonText(text));
}

}  // namespace headrace::detail
