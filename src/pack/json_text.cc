#include "pack/json_text.h"

#include <vector>

#include "base/strings.h"
#include "shard/codec/json_text.h"
#include "shard/formats/text/field_value.h"

namespace headrace::pack_detail {
namespace {

/// Anything but an object or an array.
bool take_scalar(detail::JsonText& rest) {
  std::string_view value;
  return rest.take_value(value) && detail::kind_of_value(value).has_value();
}

bool take_name(detail::JsonText& rest) {
  return rest.peek() == '"' && take_scalar(rest) && rest.take(':');
}

}  // namespace

// nlohmann::json keeps object keys sorted; only the separators differ.
std::string python_json(const nlohmann::json& value) {
  std::string out;
  if (value.is_object()) {
    out = "{";
    for (const auto& [key, member] : value.items()) {
      if (out.size() > 1) out += ", ";
      out += nlohmann::json(key).dump(-1, ' ', true) + ": " + python_json(member);
    }
    return out + "}";
  }
  if (value.is_array()) {
    out = "[";
    for (const auto& member : value) {
      if (out.size() > 1) out += ", ";
      out += python_json(member);
    }
    return out + "]";
  }
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// Without recursion: the nesting is the data's.
bool is_json(std::string_view text) {
  detail::JsonText rest(text);
  std::vector<bool> open;  // Of what is open: whether it is an object.
  while (true) {
    const char first = rest.peek();
    const bool is_object = first == '{';
    if (is_object || first == '[') {
      rest.take(first);
      if (!rest.take(is_object ? '}' : ']')) {
        if (is_object && !take_name(rest)) return false;
        open.push_back(is_object);
        continue;
      }
    } else if (!take_scalar(rest)) {
      return false;
    }
    while (!open.empty() && !rest.take(',')) {
      if (!rest.take(open.back() ? '}' : ']')) return false;
      open.pop_back();
    }
    if (open.empty()) return rest.is_at_end();
    if (open.back() && !take_name(rest)) return false;
  }
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMostBytes = 200;
  std::string out;
  for (const char c : text.substr(0, kMostBytes)) {
    const bool is_plain = c >= 0x20 && c < 0x7f;
    out += is_plain ? std::string(1, c) : "\\x" + to_hex(std::as_bytes(std::span(&c, 1)));
  }
  return text.size() > kMostBytes ? out + "..." : out;
}

}  // namespace headrace::pack_detail
