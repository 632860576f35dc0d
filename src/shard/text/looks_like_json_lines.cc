#include <string_view>

#include "shard/build.h"
#include "shard/text/json_text.h"

namespace headrace::detail {

bool looks_like_json_lines(std::span<const std::byte> head) noexcept {
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return false;
  text.remove_prefix(first);
  const std::size_t newline = text.find('\n');
  std::string_view line = text.substr(0, newline);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
  JsonText json(line);
  if (newline != std::string_view::npos) {
    // A whole line must be one object.
    std::string_view value;
    return line.front() == '{' && json.take_value(value) && value.size() == line.size();
  }
  // The line goes on: an object with a name in front, or nothing.
  std::string_view name;
  return json.take('{') && (json.peek() == '}' || (json.take_string(name) && json.take(':')));
}

}  // namespace headrace::detail
