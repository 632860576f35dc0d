#include "shard/formats/litdata/data_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "shard/codec/json_reader.h"
#include "shard/formats/mds/mds_index.h"

namespace headrace::detail {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;

Status corrupt(std::string_view what) {
  return Status(Code::kCorrupt, fmt::format("data_spec: {}", what));
}

std::string key_text(element key, std::size_t position) {
  std::string_view text;
  if (key.get_string().get(text) == simdjson::SUCCESS) return std::string(text);
  std::int64_t number = 0;
  if (key.get_int64().get(number) == simdjson::SUCCESS) return std::to_string(number);
  return std::to_string(position);
}

// Keys of a node's children. The context of a dict or OrderedDict is JSON text of the list of its
// keys, of a defaultdict an object that holds it; other nodes (tuples, lists, named tuples) have
// positions.
std::vector<std::string> child_names(element node, std::size_t count) {
  std::vector<std::string> names;
  std::string_view context;
  simdjson::dom::parser parser;
  if (node["context"].get_string().get(context) == simdjson::SUCCESS) {
    if (auto parsed = parse_json(parser, context)) {
      array keys;
      const bool has_keys = parsed->get_array().get(keys) == simdjson::SUCCESS ||
                            (*parsed)["dict_context"].get_array().get(keys) == simdjson::SUCCESS;
      if (has_keys && keys.size() == count) {
        for (const element key : keys) names.push_back(key_text(key, names.size()));
        return names;
      }
    }
  }
  for (std::size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

// Depth is bounded by kJsonDepth.
Status walk(element node, const std::string& path, std::vector<std::string>& leaves) {
  element type;
  array children;
  if (node["type"].get(type) || node["children_spec"].get_array().get(children))
    return corrupt("a node lacks its type or children");
  if (type.is_null()) {
    if (leaves.size() == kMostColumns) {
      return Status(Code::kUnsupported,
                    fmt::format("data_spec: more than {} leaves", kMostColumns));
    }
    leaves.push_back(path.empty() ? "data" : path);
    return Status();
  }
  const std::vector<std::string> names = child_names(node, children.size());
  std::size_t i = 0;
  for (const element child : children) {
    HEADRACE_TRY(walk(child, path.empty() ? names[i] : path + "." + names[i], leaves));
    ++i;
  }
  return Status();
}

Status check_unique(const std::vector<std::string>& names) {
  std::vector<std::string_view> sorted(names.begin(), names.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return Status();
  return Status(Code::kUnsupported, fmt::format("data_spec: two leaves are named '{}'", *twice));
}

}  // namespace

Result<std::vector<std::string>> parse_data_spec(std::string_view json) {
  simdjson::dom::parser parser;
  auto root = parse_json(parser, json);
  if (!root) return std::move(root).error().annotate("data_spec");
  array pair;
  if (root->get_array().get(pair) || pair.size() != 2) return corrupt("not [version, tree]");
  std::vector<std::string> leaves;
  HEADRACE_TRY(walk(pair.at(1).value_unsafe(), "", leaves));
  if (leaves.empty()) return Status(Code::kUnsupported, "data_spec: samples without any value");
  HEADRACE_TRY(check_unique(leaves));
  return leaves;
}

}  // namespace headrace::detail
