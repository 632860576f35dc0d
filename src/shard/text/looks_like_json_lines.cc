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
  std::string_view name, value;
  if (newline != std::string_view::npos) {
    // A whole line must be one object.
    JsonFields fields(trim_json_line(text.substr(0, newline)));
    while (fields.next(name, value)) continue;
    return fields.is_whole();
  }
  // The line goes on: an object with a name in front, or nothing.
  JsonText json(text);
  return json.take('{') && (json.peek() == '}' || (json.take_string(name) && json.take(':')));
}

}  // namespace headrace::detail
