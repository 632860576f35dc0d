#include "shard/formats/litdata/litdata_layout.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/strings.h"
#include "shard/codec/json_reader.h"

namespace headrace::detail {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using Kind = LitDataLayout::Kind;

constexpr std::array<std::string_view, 3> kKinds{"items", "tokens", "rows"};
constexpr std::array<std::string_view, 3> kEncryptions{"", "sample", "chunk"};

// Position of a text in a list; -1: not there.
template <std::size_t N>
int find_name(const std::array<std::string_view, N>& names, element from, const char* field) {
  std::string_view text;
  if (from[field].get_string().get(text)) return -1;
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<int>(i);
  }
  return -1;
}

bool read_rows(element root, std::size_t shard_count, LitDataLayout& layout) {
  array schemas, of_shard;
  if (root["schemas"].get_array().get(schemas) || root["schema_of_shard"].get_array().get(of_shard))
    return false;
  for (const element entry : schemas) {
    std::string_view hex, spec;
    RowSchema schema;
    if (entry["message"].get_string().get(hex) || entry["spec"].get_string().get(spec) ||
        !from_hex(hex, schema.message)) {
      return false;
    }
    schema.spec = spec;
    layout.schemas.push_back(std::move(schema));
  }
  for (const element number : of_shard) {
    std::uint64_t index = 0;
    if (number.get_uint64().get(index) || index >= layout.schemas.size()) return false;
    layout.schema_of_shard.push_back(static_cast<std::uint32_t>(index));
  }
  return layout.schema_of_shard.size() == shard_count;
}

}  // namespace

std::string format_litdata_layout(const LitDataLayout& layout) {
  nlohmann::json root;
  root["kind"] = kKinds[static_cast<std::size_t>(layout.kind)];
  root["encryption"] = kEncryptions[static_cast<std::size_t>(layout.encryption)];
  if (layout.kind == Kind::kTokens) root["tokens_per_sample"] = layout.tokens_per_sample;
  if (layout.kind == Kind::kRows) {
    root["schemas"] = nlohmann::json::array();
    for (const RowSchema& schema : layout.schemas)
      root["schemas"].push_back({{"message", to_hex(schema.message)}, {"spec", schema.spec}});
    root["schema_of_shard"] = layout.schema_of_shard;
  }
  return root.dump();
}

Result<LitDataLayout> parse_litdata_layout(std::string_view text, std::size_t shard_count) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const element root, parse_json(parser, text));
  LitDataLayout layout;
  const int kind = find_name(kKinds, root, "kind");
  const int encryption = find_name(kEncryptions, root, "encryption");
  if (kind < 0 || encryption < 0)
    return Status(Code::kCorrupt, "index: its LitData layout names no known kind");
  layout.kind = static_cast<Kind>(kind);
  layout.encryption = static_cast<ChunkEncryption>(encryption);
  const bool is_whole =
      layout.kind == Kind::kItems ||
      (layout.kind == Kind::kTokens &&
       root["tokens_per_sample"].get_uint64().get(layout.tokens_per_sample) == simdjson::SUCCESS) ||
      (layout.kind == Kind::kRows && read_rows(root, shard_count, layout));
  if (!is_whole) return Status(Code::kCorrupt, "index: its LitData layout lacks parts");
  return layout;
}

}  // namespace headrace::detail
