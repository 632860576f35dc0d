#pragma once
/// \file
/// Reading small JSON documents that others wrote: simdjson with a bounded depth.
#include <simdjson.h>

#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"

namespace headrace::detail {

/// Deepest nesting that any manifest here has is 5; more is somebody else's file.
inline constexpr std::size_t kJsonDepth = 32;

/// Parses `text` into `parser` (which owns the document). Errors: kCorrupt.
inline Result<simdjson::dom::element> parse_json(simdjson::dom::parser& parser,
                                                 std::string_view text) {
  // simdjson hands a null pointer on to memcpy.
  if (text.empty()) return Status(Code::kCorrupt, "JSON: empty");
  if (auto error = parser.allocate(text.size() + 64, kJsonDepth); error) {
    return Status(Code::kCorrupt, std::string("JSON: ") + simdjson::error_message(error));
  }
  simdjson::dom::element root;
  if (auto error = parser.parse(text.data(), text.size(), true).get(root); error) {
    return Status(Code::kCorrupt, std::string("JSON: ") + simdjson::error_message(error));
  }
  return root;
}

/// Appends the strings of a list; false when it is something else.
inline bool read_strings(simdjson::dom::element list, std::vector<std::string>& out) {
  simdjson::dom::array entries;
  if (list.get_array().get(entries)) return false;
  for (const simdjson::dom::element entry : entries) {
    std::string_view text;
    if (entry.get_string().get(text)) return false;
    out.emplace_back(text);
  }
  return true;
}

}  // namespace headrace::detail
