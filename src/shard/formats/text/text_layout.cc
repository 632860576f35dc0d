// Fields are learned from the first lines of each file, then merged over the files: kinds that
// differ become the text of the value (kJson), but for integers and floats, which become float64.
// The order of the files must not matter, so merged() is symmetric.
//
// Once some file's lines are no objects, or there are too many fields, the whole line is the only
// column. The layout is part of the fingerprint (the index's layout), so its text must come out
// the same for the same data: fields are kept in a sorted map.
#include "shard/formats/text/text_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shard/codec/json_reader.h"
#include "shard/codec/json_text.h"
#include "shard/formats/text/field_value.h"

namespace headrace::detail {
namespace {

using simdjson::dom::element;

constexpr std::string_view kTextColumn = "text";
constexpr std::string_view kLineColumn = "json";
constexpr std::string_view kNoObject = "is not one whole JSON object";

using Kinds = std::map<std::string, FieldKind, std::less<>>;

FieldKind merged(FieldKind a, FieldKind b) {
  if (a == b || b == FieldKind::kNone) return a;
  if (a == FieldKind::kNone) return b;
  const bool are_numbers = (a == FieldKind::kInt || a == FieldKind::kFloat) &&
                           (b == FieldKind::kInt || b == FieldKind::kFloat);
  return are_numbers ? FieldKind::kFloat : FieldKind::kJson;
}

constexpr FieldKind kKinds[] = {FieldKind::kNone,  FieldKind::kBool,   FieldKind::kInt,
                                FieldKind::kFloat, FieldKind::kString, FieldKind::kJson};

bool parse_kind(std::string_view name, FieldKind& out) {
  for (const FieldKind kind : kKinds) {
    if (field_kind_name(kind) != name) continue;
    out = kind;
    return true;
  }
  return false;
}

void merge_kind(Kinds& kinds, std::string_view name, FieldKind kind) {
  FieldKind& mine = kinds.try_emplace(std::string(name), FieldKind::kNone).first->second;
  mine = merged(mine, kind);
}

// Takes the fields of a line; what is wrong with it, or nothing.
std::string add_fields(std::string_view line, Kinds& kinds) {
  JsonFields fields(line);
  std::string_view name, value;
  while (fields.next(name, value)) {
    if (name.empty()) continue;  // A column has a name; the whole line still has the value.
    if (!simdjson::validate_utf8(name)) return "has a field whose name is not UTF-8";
    const auto kind = kind_of_value(value);
    if (!kind) return fmt::format("has a field '{}' whose value is no JSON", name);
    merge_kind(kinds, name, *kind);
  }
  return std::string(fields.is_whole() ? "" : kNoObject);
}

Column field_column(const TextField& field) {
  Column column;
  column.name = field.name.empty() ? kLineColumn : std::string_view(field.name);
  column.encoding = "json";
  if (field.name.empty()) return column;
  switch (field.kind) {
    case FieldKind::kBool:
      column.encoding = column.dtype = "bool";
      column.fixed_size_bytes = 1;
      break;
    case FieldKind::kInt:
      column.encoding = column.dtype = "int64";
      column.fixed_size_bytes = 8;
      break;
    case FieldKind::kFloat:
      column.encoding = column.dtype = "float64";
      column.fixed_size_bytes = 8;
      break;
    case FieldKind::kString:
      column.encoding = "str";
      break;
    case FieldKind::kNone:
    case FieldKind::kJson:
      break;
  }
  return column;
}

}  // namespace

std::string_view field_kind_name(FieldKind kind) noexcept {
  constexpr std::string_view kNames[] = {"null", "bool", "int", "float", "str", "json"};
  return kNames[static_cast<std::size_t>(kind)];
}

void TextFields::begin(std::string_view line, std::uint64_t number) {
  are_objects = trim_json_line(line).starts_with('{');
  if (!are_objects) problem = fmt::format("line {} {}", number, kNoObject);
}

bool TextFields::add(std::string_view line, std::uint64_t number) {
  const std::string fault = add_fields(trim_json_line(line), kinds);
  if (!fault.empty()) problem = fmt::format("line {} {}", number, fault);
  are_objects = are_objects && kinds.size() <= kMostFields;
  return are_objects && fault.empty();
}

void TextFields::merge(const TextFields& other) {
  are_objects = are_objects && other.are_objects;
  for (const auto& [name, kind] : other.kinds) merge_kind(kinds, name, kind);
  are_objects = are_objects && kinds.size() <= kMostFields;
  if (!are_objects) kinds.clear();
}

std::string TextFields::to_text() const {
  nlohmann::json out = nlohmann::json::object();
  if (are_objects)
    for (const auto& [name, kind] : kinds) out[name] = field_kind_name(kind);
  return nlohmann::json{{"objects", are_objects}, {"kinds", out}, {"problem", problem}}.dump();
}

Result<TextFields> TextFields::from_text(std::string_view text) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const element root, parse_json(parser, text));
  TextFields fields;
  simdjson::dom::object kinds;
  std::string_view problem;
  if (root["objects"].get_bool().get(fields.are_objects) || root["kinds"].get_object().get(kinds) ||
      root["problem"].get_string().get(problem)) {
    return Status(Code::kCorrupt, "text: not the fields of a file");
  }
  fields.problem = problem;
  bool is_right = true;
  for (const auto& [name, value] : kinds) {
    std::string_view kind;
    is_right = is_right && !value.get_string().get(kind) &&
               parse_kind(kind, fields.kinds[std::string(name)]);
  }
  if (!is_right) return Status(Code::kCorrupt, "text: not the fields of a file");
  return fields;
}

Result<TextLayout> make_text_layout(TextKind kind, const TextFields& seen,
                                    const std::vector<std::string>& chosen) {
  TextLayout layout{.kind = kind, .fields = {}};
  std::vector<std::string> known;
  if (kind == TextKind::kText) known.emplace_back(kTextColumn);
  if (kind == TextKind::kJson && seen.are_objects) {
    for (const auto& [name, field_kind] : seen.kinds) {
      layout.fields.push_back({name, field_kind});
      known.push_back(name);
    }
  }
  const bool is_line_known = seen.kinds.count(kLineColumn) != 0 && seen.are_objects;
  if (kind == TextKind::kJson && layout.fields.empty()) layout.fields.push_back({});
  if (kind == TextKind::kJson && !is_line_known) known.emplace_back(kLineColumn);
  if (chosen.empty()) return layout;
  std::vector<TextField> kept;
  for (const std::string& name : chosen) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Status(Code::kInvalidArgument,
                    fmt::format("no column '{}'; there are: {}", name, fmt::join(known, ", ")));
    }
    const auto found = std::find_if(layout.fields.begin(), layout.fields.end(),
                                    [&](const TextField& field) { return field.name == name; });
    kept.push_back(found == layout.fields.end() ? TextField{} : *found);
  }
  if (kind == TextKind::kJson) layout.fields = std::move(kept);
  return layout;
}

std::vector<Column> text_columns(const TextLayout& layout) {
  std::vector<Column> columns;
  if (layout.kind == TextKind::kText) {
    columns.emplace_back().name = kTextColumn;
    columns.back().encoding = "str";
  }
  for (const TextField& field : layout.fields) columns.push_back(field_column(field));
  return columns;
}

std::string layout_to_json(const TextLayout& layout) {
  nlohmann::json fields = nlohmann::json::array();
  for (const TextField& field : layout.fields)
    fields.push_back({field.name, field_kind_name(field.kind)});
  return nlohmann::json{{"lines", layout.kind == TextKind::kJson ? "json" : "text"},
                        {"fields", std::move(fields)}}
      .dump();
}

Result<TextLayout> parse_text_layout(std::string_view json) {
  simdjson::dom::parser parser;
  HEADRACE_TRY_ASSIGN(const element root, parse_json(parser, json));
  TextLayout layout;
  std::string_view lines;
  simdjson::dom::array fields;
  if (root["lines"].get_string().get(lines) || root["fields"].get_array().get(fields))
    return Status(Code::kCorrupt, "text: the index has no layout of lines");
  bool is_right = true;
  layout.kind = lines == "json" ? TextKind::kJson : TextKind::kText;
  is_right = lines == "json" || lines == "text";
  for (const element entry : fields) {
    TextField& field = layout.fields.emplace_back();
    std::string_view name, kind;
    is_right = is_right && !entry.at(0).get_string().get(name) &&
               !entry.at(1).get_string().get(kind) && parse_kind(kind, field.kind);
    field.name = name;
  }
  // Lines of text have no fields, lines of JSON at least themselves.
  is_right = is_right && (layout.kind == TextKind::kJson) == !layout.fields.empty();
  if (!is_right) return Status(Code::kCorrupt, "text: the index has a broken layout of lines");
  return layout;
}

}  // namespace headrace::detail
