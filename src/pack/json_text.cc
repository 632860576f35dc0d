#include "pack/json_text.h"

#include "base/strings.h"

namespace headrace::pack_detail {

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
