#include "shard/formats/numpy/row_layout.h"

#include <nlohmann/json.hpp>

#include "shard/codec/json_reader.h"

namespace headrace::detail {

std::string format_row_layout(const RowLayout& layout) {
  nlohmann::json root;
  root["columns"] = layout;
  return root.dump();
}

Result<RowLayout> parse_row_layout(std::string_view text, const IndexView& index) {
  const auto corrupt = [] {
    return Status(Code::kCorrupt, "index: its columns do not lie inside their objects");
  };
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const simdjson::dom::element root, parse_json(parser, text));
  simdjson::dom::array shards;
  if (root["columns"].get_array().get(shards)) return corrupt();
  RowLayout layout;
  for (const simdjson::dom::element entry : shards) {
    simdjson::dom::array offsets;
    if (entry.get_array().get(offsets) || layout.size() == index.shards().size()) return corrupt();
    const ShardRecord& shard = index.shards()[layout.size()];
    std::vector<std::uint64_t> columns;
    for (const simdjson::dom::element offset : offsets) {
      if (columns.size() == index.columns().size()) return corrupt();
      const std::uint64_t width = index.columns()[columns.size()].fixed_size_bytes;
      std::uint64_t at = 0, length = 0;
      if (offset.get_uint64().get(at) ||
          __builtin_mul_overflow(shard.sample_count, width, &length) || at > shard.stored_bytes ||
          length > shard.stored_bytes - at) {
        return corrupt();
      }
      columns.push_back(at);
    }
    if (columns.size() != index.columns().size()) return corrupt();
    layout.push_back(std::move(columns));
  }
  return layout.size() == index.shards().size() ? Result<RowLayout>(std::move(layout)) : corrupt();
}

}  // namespace headrace::detail
