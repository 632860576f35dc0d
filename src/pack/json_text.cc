#include "pack/json_text.h"

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

}  // namespace headrace::pack_detail
