#include "shard/formats/numpy/shard_rows.h"

#include <string>

#include "shard/codec/json_reader.h"

namespace headrace::detail {
namespace {

bool take_row(simdjson::dom::element entry, std::size_t shard, std::size_t column_count,
              const TakeValue& take) {
  simdjson::dom::array values;
  if (entry.get_array().get(values)) return false;
  std::size_t column = 0;
  for (const simdjson::dom::element value : values) {
    if (column == column_count || !take(shard, column++, value)) return false;
  }
  return column == column_count;
}

}  // namespace

Status bad_shard_rows(std::string_view name) {
  return Status(Code::kCorrupt,
                "index: its " + std::string(name) + " do not lie inside their objects");
}

Status read_shard_rows(std::string_view text, std::string_view name, const IndexView& index,
                       const TakeValue& take) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const simdjson::dom::element root, parse_json(parser, text));
  simdjson::dom::array rows;
  if (root[name].get_array().get(rows)) return bad_shard_rows(name);
  std::size_t shard = 0;
  for (const simdjson::dom::element row : rows) {
    if (shard == index.shards().size() || !take_row(row, shard++, index.columns().size(), take))
      return bad_shard_rows(name);
  }
  return shard == index.shards().size() ? Status() : bad_shard_rows(name);
}

}  // namespace headrace::detail
