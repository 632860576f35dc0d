#include "shard/formats/raw/raw_layout.h"

#include <nlohmann/json.hpp>

#include "shard/codec/json_reader.h"

namespace headrace::detail {

std::string manifest_layout(const IndexSource& manifest, std::string_view row_layout) {
  return nlohmann::json{{"manifest", {manifest.key, manifest.etag, manifest.size_bytes}},
                        {"rows", row_layout}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<IndexSource> manifest_of(std::string_view layout) {
  if (layout.empty() || layout == kFolderLabels) return std::nullopt;
  simdjson::dom::parser parser;
  const auto root = parse_json(parser, layout);
  if (!root) return std::nullopt;
  std::string_view key, etag;
  IndexSource manifest;
  const auto fields = (*root)["manifest"];
  if (fields.at(0).get_string().get(key) || fields.at(1).get_string().get(etag) ||
      fields.at(2).get_uint64().get(manifest.size_bytes)) {
    return std::nullopt;
  }
  manifest.key = key;
  manifest.etag = etag;
  return manifest;
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
