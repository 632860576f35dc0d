#include "shard/formats/table/table_layout.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "shard/codec/json_reader.h"

namespace headrace::detail {
namespace {

constexpr std::array<std::string_view, 3> kKindNames{"parquet", "ipc", "lance"};
constexpr std::string_view kHiveNull = "__HIVE_DEFAULT_PARTITION__";

Status corrupt() { return Status(Code::kCorrupt, "dataset index: a damaged layout of a table"); }

Result<TableHead> parse_head(simdjson::dom::element entry, TableKind kind) {
  TableHead head;
  std::string_view bytes, spec;
  simdjson::dom::array chosen;
  if (entry["head"].get_string().get(bytes) || entry["spec"].get_string().get(spec) ||
      entry["leaves"].get_array().get(chosen) || !from_hex(bytes, head.bytes)) {
    return corrupt();
  }
  head.spec = spec;
  if (kind == TableKind::kParquet) {
    HEADRACE_TRY_ASSIGN(head.leaves, parquet_leaves(head.bytes));
  }
  for (const simdjson::dom::element item : chosen) {
    std::uint64_t leaf = 0;
    if (item.get_uint64().get(leaf) || leaf >= head.leaves.size() ||
        (!head.chosen.empty() && leaf <= head.chosen.back())) {
      return corrupt();
    }
    head.chosen.push_back(static_cast<std::uint32_t>(leaf));
  }
  return head;
}

// "name=value" components of the directories of a key.
template <class Take>
void each_partition(std::string_view key, const Take& take) {
  for (std::size_t slash = key.find('/'); slash != std::string_view::npos; slash = key.find('/')) {
    const std::string_view part = key.substr(0, slash);
    key.remove_prefix(slash + 1);
    const std::size_t equals = part.find('=');
    if (equals != std::string_view::npos && equals > 0)
      take(part.substr(0, equals), part.substr(equals + 1));
  }
}

}  // namespace

std::string_view table_kind_name(TableKind kind) noexcept {
  return kKindNames[static_cast<std::size_t>(kind)];
}

Status check_table_kind(TableKind kind, std::string_view wanted) {
  const std::string_view format = kind == TableKind::kIpc ? "arrow" : table_kind_name(kind);
  if (wanted.empty() || wanted == format) return Status();
  return Status(Code::kInvalidArgument,
                fmt::format("format='{}', but this is a table of format '{}'", wanted, format));
}

std::string write_table_layout(const TableLayout& layout) {
  nlohmann::json heads = nlohmann::json::array();
  for (const TableHead& head : layout.heads)
    heads.push_back({{"head", to_hex(head.bytes)}, {"spec", head.spec}, {"leaves", head.chosen}});
  nlohmann::json root = {{"kind", table_kind_name(layout.kind)},
                         {"heads", std::move(heads)},
                         {"partitions", layout.partitions}};
  if (!layout.where.empty()) root["where"] = layout.where;
  return root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<TableLayout> parse_table_layout(std::string_view json) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const auto root, parse_json(parser, json));
  TableLayout layout;
  std::string_view kind;
  simdjson::dom::array heads, partitions;
  if (root["kind"].get_string().get(kind) || root["heads"].get_array().get(heads) ||
      root["partitions"].get_array().get(partitions)) {
    return corrupt();
  }
  const auto found = std::find(kKindNames.begin(), kKindNames.end(), kind);
  if (found == kKindNames.end()) return corrupt();
  layout.kind = static_cast<TableKind>(found - kKindNames.begin());
  for (const simdjson::dom::element entry : heads) {
    HEADRACE_TRY_ASSIGN(TableHead head, parse_head(entry, layout.kind));
    layout.heads.push_back(std::move(head));
  }
  for (const simdjson::dom::element entry : partitions) {
    std::string_view name;
    if (entry.get_string().get(name)) return corrupt();
    layout.partitions.emplace_back(name);
  }
  return layout;
}

bool partition_value(std::string_view key, std::string_view name, std::string& value) {
  bool found = false;
  each_partition(key, [&](std::string_view part, std::string_view text) {
    if (part != name || found) return;
    found = text != kHiveNull;
    value.clear();
    for (std::size_t i = 0; i < text.size(); ++i) {
      const int high = text[i] == '%' && i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = high >= 0 ? hex_value(text[i + 2]) : -1;
      value.push_back(low >= 0 ? static_cast<char>(high << 4 | low) : text[i]);
      if (low >= 0) i += 2;
    }
  });
  return found;
}

std::vector<std::string> partition_names(std::string_view key) {
  std::vector<std::string> names;
  each_partition(key, [&](std::string_view name, std::string_view) { names.emplace_back(name); });
  return names;
}

}  // namespace headrace::detail
