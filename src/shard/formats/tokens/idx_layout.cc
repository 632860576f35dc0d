#include "shard/formats/tokens/idx_layout.h"

#include <nlohmann/json.hpp>

#include "shard/codec/json_reader.h"

namespace headrace::detail {

std::string idx_key(std::string_view key) {
  return std::string(key.substr(0, key.size() - std::string_view(".bin").size())) + ".idx";
}

std::string format_idx_layout(const std::vector<IndexSource>& files) {
  if (files.empty()) return {};
  nlohmann::json list = nlohmann::json::array();
  for (const IndexSource& file : files) list.push_back({file.key, file.etag, file.size_bytes});
  return nlohmann::json{{"idx", std::move(list)}}.dump(-1, ' ', false,
                                                       nlohmann::json::error_handler_t::replace);
}

Result<std::vector<IndexSource>> parse_idx_layout(std::string_view text) {
  const auto corrupt = [] {
    return Status(Code::kCorrupt, "dataset index: a broken list of .idx files");
  };
  std::vector<IndexSource> files;
  if (text.empty()) return files;
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const simdjson::dom::element root, parse_json(parser, text));
  simdjson::dom::array list;
  if (root["idx"].get_array().get(list)) return corrupt();
  for (const simdjson::dom::element entry : list) {
    std::string_view key, etag;
    std::uint64_t size_bytes = 0;
    if (entry.at(0).get_string().get(key) || entry.at(1).get_string().get(etag) ||
        entry.at(2).get_uint64().get(size_bytes)) {
      return corrupt();
    }
    files.push_back({std::string(key), std::string(etag), size_bytes});
  }
  return files;
}

}  // namespace headrace::detail
