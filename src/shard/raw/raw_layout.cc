#include "shard/raw/raw_layout.h"

#include <nlohmann/json.hpp>

#include "shard/json_reader.h"

namespace headrace::detail {

std::string manifest_layout(const IndexSource& manifest, std::string_view row_layout) {
  return nlohmann::json{{"manifest", {manifest.key, manifest.etag, manifest.size_bytes}},
                        {"rows", row_layout}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::string> row_layout_of(std::string_view layout) {
  if (layout.empty() || layout == kFolderLabels) return std::string();
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const simdjson::dom::element root, parse_json(parser, layout));
  std::string_view rows;
  if (root["rows"].get_string().get(rows))
    return Status(Code::kCorrupt, "raw: the index has a broken layout");
  return std::string(rows);
}

}  // namespace headrace::detail
