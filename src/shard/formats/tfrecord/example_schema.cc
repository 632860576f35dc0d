// Examples carry no schema: names, kinds and numbers of values are collected while records pass. A
// column is fixed only when every record that has it had the same number of values; one record
// that was passed over without a look makes that unknown, and the column varies.
//
// - A record is taken whole or not at all (add()), so a broken one leaves no trace.
// - merge() does not depend on the order of the files.
// - Features of two kinds make no column: an error, unless others are chosen by name.
// - The layout is part of the fingerprint: fields that most datasets lack are left out of its
//   text.
#include "shard/formats/tfrecord/example_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "shard/codec/json_reader.h"

namespace headrace::detail {
namespace {

using nlohmann::json;
using simdjson::dom::element;

// With both kinds of features the names say which map they are from.
constexpr std::string_view kContextPrefix = "context.";
constexpr std::string_view kListPrefix = "seq.";
constexpr std::string_view kLengthsSuffix = ".lengths";
constexpr std::string_view kRecordColumn = "record";

std::string_view kind_name(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::kBytes:
      return "bytes";
    case FeatureKind::kFloat:
      return "float";
    case FeatureKind::kInt64:
      return "int64";
    case FeatureKind::kNone:
      break;
  }
  return "nothing";
}

FeatureFacts facts_of(const FeatureView& view, bool is_list) {
  FeatureFacts facts;
  facts.kind = view.kind;
  facts.least = facts.most = is_list ? view.step_count : view.value_count;
  facts.step_least = view.step_least;
  facts.step_most = view.step_most;
  facts.has_steps = is_list && view.step_count > 0;
  facts.is_mixed = view.is_mixed;
  return facts;
}

json facts_to_json(const std::map<std::string, FeatureFacts, std::less<>>& facts) {
  json out = json::array();
  for (const auto& [name, f] : facts) {
    out.push_back({name, static_cast<int>(f.kind), f.least, f.most, f.step_least, f.step_most,
                   f.has_steps, f.is_mixed});
  }
  return out;
}

bool read_facts(element array, std::map<std::string, FeatureFacts, std::less<>>& out) {
  simdjson::dom::array entries;
  if (array.get_array().get(entries)) return false;
  for (const element entry : entries) {
    std::string_view name;
    FeatureFacts f;
    std::uint64_t kind = 0;
    if (entry.at(0).get_string().get(name) || entry.at(1).get_uint64().get(kind) || kind > 3 ||
        entry.at(2).get_uint64().get(f.least) || entry.at(3).get_uint64().get(f.most) ||
        entry.at(4).get_uint64().get(f.step_least) || entry.at(5).get_uint64().get(f.step_most) ||
        entry.at(6).get_bool().get(f.has_steps) || entry.at(7).get_bool().get(f.is_mixed)) {
      return false;
    }
    f.kind = static_cast<FeatureKind>(kind);
    out.emplace(name, f);
  }
  return true;
}

}  // namespace

void FeatureFacts::merge(const FeatureFacts& other) noexcept {
  is_mixed = is_mixed || other.is_mixed ||
             (kind != other.kind && kind != FeatureKind::kNone && other.kind != FeatureKind::kNone);
  if (kind == FeatureKind::kNone) kind = other.kind;
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  if (other.has_steps) {
    step_least = has_steps ? std::min(step_least, other.step_least) : other.step_least;
    step_most = std::max(step_most, other.step_most);
    has_steps = true;
  }
}

void ExampleSchema::merge_into(Facts& facts, const std::string& name, const FeatureFacts& more) {
  const auto [entry, is_new] = facts.try_emplace(name, more);
  if (!is_new) entry->second.merge(more);
}

bool ExampleSchema::add(std::span<const std::byte> record, std::string& why) {
  // A record is known whole before it changes anything: a key may come twice, and the last counts.
  Facts context, lists;
  const bool is_message = read_example(record, [&](const FeatureView& view, bool is_list) {
    Facts& facts = is_list ? lists : context;
    if (!simdjson::validate_utf8(view.key)) {
      why = "the name of a feature is not UTF-8";
      return false;
    }
    const std::string key(view.key);
    facts.erase(key);
    if (view.kind == FeatureKind::kNone && !is_list) return true;
    facts.emplace(key, facts_of(view, is_list));
    return facts.size() <= kMostFeatures;
  });
  if (!is_message) {
    if (why.empty()) why = "not a tf.train.Example";
    return false;
  }
  for (const auto& [name, more] : context) merge_into(context_, name, more);
  for (const auto& [name, more] : lists) merge_into(lists_, name, more);
  if (context_.size() + lists_.size() <= kMostFeatures) return true;
  why = fmt::format("more than {} different features", kMostFeatures);
  return false;
}

Status ExampleSchema::merge(const ExampleSchema& other) {
  has_unseen_ = has_unseen_ || other.has_unseen_;
  for (const auto& [name, facts] : other.context_) merge_into(context_, name, facts);
  for (const auto& [name, facts] : other.lists_) merge_into(lists_, name, facts);
  if (context_.size() + lists_.size() <= kMostFeatures) return Status();
  return Status(Code::kUnsupported, fmt::format("more than {} different features", kMostFeatures));
}

std::string ExampleSchema::to_text() const {
  return json{facts_to_json(context_), facts_to_json(lists_), has_unseen_}.dump();
}

Result<ExampleSchema> ExampleSchema::from_text(std::string_view text) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const element root, parse_json(parser, text));
  ExampleSchema schema;
  element context, lists;
  if (root.at(0).get(context) || root.at(1).get(lists) || !read_facts(context, schema.context_) ||
      !read_facts(lists, schema.lists_) || root.at(2).get_bool().get(schema.has_unseen_)) {
    return Status(Code::kCorrupt, "tfrecord: not the facts of a schema");
  }
  return schema;
}

namespace {

// A column without a kind has several.
Result<ExampleLayout> refuse_mixed(const ExampleLayout& layout) {
  for (const FeatureColumn& column : layout.columns) {
    if (column.kind != FeatureKind::kNone) continue;
    return Status(Code::kUnsupported,
                  fmt::format("feature '{}' has values of different kinds; leave it out by naming "
                              "the others with columns=[...], or read whole records with "
                              "columns=['record']",
                              column.feature));
  }
  return layout;
}

}  // namespace

Result<ExampleLayout> ExampleSchema::layout(const std::vector<std::string>& chosen) const {
  ExampleLayout layout{
      .is_records = false, .is_complete = true, .is_sequence = !lists_.empty(), .columns = {}};
  const auto fixed = [this](std::uint64_t least, std::uint64_t most) {
    return least == most && most > 0 && !has_unseen_ ? static_cast<std::int64_t>(most) : -1;
  };
  for (const auto& [name, facts] : context_) {
    if (facts.kind == FeatureKind::kNone) continue;
    layout.columns.push_back({.feature = name,
                              .kind = facts.is_mixed ? FeatureKind::kNone : facts.kind,
                              .count = fixed(facts.least, facts.most)});
  }
  for (const auto& [name, facts] : lists_) {
    // A list that never held a value: floats as good as any, and none of them.
    FeatureKind kind = facts.kind == FeatureKind::kNone ? FeatureKind::kFloat : facts.kind;
    if (facts.is_mixed) kind = FeatureKind::kNone;
    FeatureColumn column{.feature = name,
                         .is_list = true,
                         .kind = kind,
                         .count = fixed(facts.least, facts.most),
                         .step_count = fixed(facts.step_least, facts.step_most)};
    // Lists of different lengths do not make a rectangle.
    if (column.step_count < 0) column.count = -1;
    layout.columns.push_back(column);
    if (column.step_count == 1 || (column.step_count > 0 && kind != FeatureKind::kBytes)) continue;
    column.part = FeatureColumn::Part::kLengths;
    column.kind = FeatureKind::kInt64;
    layout.columns.push_back(column);
  }
  const std::vector<Column> names = example_columns(layout);
  std::set<std::string_view> different;
  for (const Column& column : names) {
    if (different.insert(column.name).second) continue;
    return Status(Code::kUnsupported,
                  fmt::format("two features make a column '{}'; read whole records with "
                              "columns=['record']",
                              column.name));
  }
  if (chosen.empty()) return refuse_mixed(layout);
  std::vector<FeatureColumn> kept;
  for (const std::string& name : chosen) {
    const auto found =
        std::find_if(names.begin(), names.end(), [&](const Column& c) { return c.name == name; });
    if (found == names.end()) {
      std::vector<std::string_view> known;
      for (const Column& column : names) known.push_back(column.name);
      return Status(Code::kInvalidArgument,
                    fmt::format("no feature '{}'; there are: {} (or 'record' for whole records)",
                                name, fmt::join(known, ", ")));
    }
    kept.push_back(layout.columns[static_cast<std::size_t>(found - names.begin())]);
  }
  layout.is_complete = false;
  layout.columns = std::move(kept);
  return refuse_mixed(layout);
}

namespace {

void describe_values(const FeatureColumn& feature, Column& column) {
  const bool is_one = feature.is_list ? false : feature.count == 1;
  if (feature.kind == FeatureKind::kBytes) {
    column.encoding = is_one ? "bytes" : "list[bytes]";
    return;
  }
  const bool is_float = feature.kind == FeatureKind::kFloat;
  const std::string dtype = is_float ? "float32" : "int64";
  if (feature.count < 0) {
    column.encoding = "ndarray:" + dtype;
    return;
  }
  column.dtype = dtype;
  column.encoding = dtype;
  column.fixed_size_bytes = static_cast<std::uint64_t>(feature.count) * (is_float ? 4 : 8);
  if (!is_one) column.shape.push_back(static_cast<std::uint64_t>(feature.count));
  if (feature.is_list && feature.step_count > 1) {
    column.shape.push_back(static_cast<std::uint64_t>(feature.step_count));
    column.fixed_size_bytes *= static_cast<std::uint64_t>(feature.step_count);
  }
  if (!column.shape.empty())
    column.encoding = fmt::format("ndarray:{}:{}", dtype, fmt::join(column.shape, ","));
}

}  // namespace

std::vector<Column> example_columns(const ExampleLayout& layout) {
  std::vector<Column> columns;
  if (layout.is_records) {
    columns.emplace_back().name = kRecordColumn;
    columns.back().encoding = "bytes";
    return columns;
  }
  for (const FeatureColumn& feature : layout.columns) {
    Column& column = columns.emplace_back();
    if (layout.is_sequence) column.name = feature.is_list ? kListPrefix : kContextPrefix;
    column.name += feature.feature;
    if (feature.part == FeatureColumn::Part::kLengths) {
      column.name += kLengthsSuffix;
      column.encoding = "ndarray:int64";
    } else {
      describe_values(feature, column);
    }
  }
  return columns;
}

std::string layout_to_json(const ExampleLayout& layout) {
  json columns = json::array();
  for (const FeatureColumn& column : layout.columns) {
    columns.push_back({{"feature", column.feature},
                       {"list", column.is_list},
                       {"lengths", column.part == FeatureColumn::Part::kLengths},
                       {"kind", kind_name(column.kind)},
                       {"count", column.count},
                       {"step_count", column.step_count}});
  }
  json out{{"records", layout.is_records},
           {"complete", layout.is_complete},
           {"columns", std::move(columns)}};
  // Only where it is so: the layout is part of a fingerprint, and most records have no lists.
  if (layout.is_sequence) out["sequence"] = true;
  return out.dump();
}

Result<ExampleLayout> parse_example_layout(std::string_view text) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const element root, parse_json(parser, text));
  ExampleLayout layout;
  simdjson::dom::array columns;
  if (root["records"].get_bool().get(layout.is_records) ||
      root["complete"].get_bool().get(layout.is_complete) ||
      root["columns"].get_array().get(columns)) {
    return Status(Code::kCorrupt, "tfrecord: the index has no layout of records");
  }
  bool is_sequence = false;
  layout.is_sequence = !root["sequence"].get_bool().get(is_sequence) && is_sequence;
  for (const element entry : columns) {
    FeatureColumn column;
    std::string_view name, kind;
    bool is_lengths = false;
    if (entry["feature"].get_string().get(name) || entry["list"].get_bool().get(column.is_list) ||
        entry["lengths"].get_bool().get(is_lengths) || entry["kind"].get_string().get(kind) ||
        entry["count"].get_int64().get(column.count) ||
        entry["step_count"].get_int64().get(column.step_count)) {
      return Status(Code::kCorrupt, "tfrecord: the index has a broken layout of records");
    }
    column.feature = name;
    for (const auto k : {FeatureKind::kBytes, FeatureKind::kFloat, FeatureKind::kInt64})
      if (kind == kind_name(k)) column.kind = k;
    if (is_lengths) column.part = FeatureColumn::Part::kLengths;
    layout.columns.push_back(std::move(column));
  }
  return layout;
}

}  // namespace headrace::detail
