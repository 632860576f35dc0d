#include "shard/formats/numpy/row_layout.h"

#include <nlohmann/json.hpp>

#include "shard/formats/numpy/shard_rows.h"

namespace headrace::detail {
namespace {

constexpr const char* kName = "columns";

}  // namespace

std::string format_row_layout(const RowLayout& layout) {
  nlohmann::json root;
  root[kName] = layout;
  return root.dump();
}

Result<RowLayout> parse_row_layout(std::string_view text, const IndexView& index) {
  RowLayout layout(index.shards().size());
  HEADRACE_TRY(read_shard_rows(
      text, kName, index, [&](std::size_t shard, std::size_t column, simdjson::dom::element value) {
        const ShardRecord& record = index.shards()[shard];
        const std::uint64_t width = index.columns()[column].fixed_size_bytes;
        std::uint64_t at = 0, length = 0;
        if (value.get_uint64().get(at) ||
            __builtin_mul_overflow(record.sample_count, width, &length) ||
            at > record.stored_bytes || length > record.stored_bytes - at)
          return false;
        layout[shard].push_back(at);
        return true;
      }));
  return layout;
}

}  // namespace headrace::detail
