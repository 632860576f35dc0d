// Cutting runs once a sample and allocates nothing: a value is either a view of the line, or a
// view with a writer that turns it into the column's bytes when the batch is filled. What a writer
// does later must not fail; so place() parses numbers and escapes once before, only to see that
// they are good.
#include "shard/formats/text/line_cutter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "shard/codec/json_text.h"
#include "shard/formats/text/field_value.h"

namespace headrace::detail {
namespace {

std::vector<std::string> field_names(const TextLayout& layout) {
  std::vector<std::string> names;
  for (const TextField& field : layout.fields) names.push_back(field.name);
  return names;
}

template <class Number>
void write_number(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  Number value{};
  parse_json_number(text_of(cell.bytes), value);
  std::memcpy(out.data(), &value, sizeof(value));
}
void write_bool(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  out[0] = static_cast<std::byte>(text_of(cell.bytes) == "true" ? 1 : 0);
}
void write_string(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  unescape(text_of(cell.bytes), out);
}

ColumnBytes written(std::string_view text, ColumnBytes::Writer writer, std::uint64_t value_bytes) {
  return {.bytes = bytes_of(text),
          .present = true,
          .writer = writer,
          .value_bytes = value_bytes,
          .context = nullptr};
}

// False when `value` is not of the kind.
bool place(std::string_view value, FieldKind kind, ColumnBytes& out) {
  out = ColumnBytes{};
  if (value == "null") return true;
  switch (kind) {
    case FieldKind::kBool:
      out = written(value, write_bool, 1);
      return value == "true" || value == "false";
    case FieldKind::kInt: {
      std::int64_t number = 0;
      out = written(value, write_number<std::int64_t>, sizeof(number));
      return parse_json_number(value, number);
    }
    case FieldKind::kFloat: {
      double number = 0;
      out = written(value, write_number<double>, sizeof(number));
      return parse_json_number(value, number);
    }
    case FieldKind::kString: {
      if (value.front() != '"') return false;
      const std::string_view inner = value.substr(1, value.size() - 2);
      const auto length = unescaped_bytes(inner);
      if (!length || !is_json_text(inner)) return false;
      // Every escape is longer than what it means.
      out = *length == inner.size() ? written(inner, nullptr, 0)
                                    : written(inner, write_string, *length);
      return true;
    }
    case FieldKind::kNone:
    case FieldKind::kJson:
      break;
  }
  out = written(value, nullptr, 0);
  return true;
}

std::string_view trim_line(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

LineCutter::LineCutter(TextLayout layout)
    : layout_(std::move(layout)),
      names_(field_names(layout_)),
      needs_fields_(std::any_of(layout_.fields.begin(), layout_.fields.end(),
                                [](const TextField& field) { return !field.name.empty(); })) {}

Status LineCutter::cut(std::span<const std::byte> sample, std::span<ColumnBytes> out) const {
  std::fill(out.begin(), out.end(), ColumnBytes{});
  if (layout_.kind == TextKind::kText) {
    out[0] = written(trim_line(text_of(sample)), nullptr, 0);
    return Status();
  }
  const std::string_view line = trim_json_line(text_of(sample));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (layout_.fields[i].name.empty()) out[i] = written(line, nullptr, 0);
  }
  return needs_fields_ ? cut_fields(line, out) : Status();
}

Status LineCutter::cut_fields(std::string_view line, std::span<ColumnBytes> out) const {
  JsonFields fields(line);
  std::string_view name, value;
  while (fields.next(name, value)) {
    const std::int32_t field = name.empty() ? -1 : names_.find(name);
    if (field < 0) continue;
    const auto i = static_cast<std::size_t>(field);
    if (place(value, layout_.fields[i].kind, out[i])) continue;
    return Status(Code::kCorrupt,
                  fmt::format("json lines: field '{}' is no {}, as the first lines had it; read "
                              "whole lines with columns=['json']",
                              name, field_kind_name(layout_.fields[i].kind)));
  }
  return fields.is_whole() ? Status() : Status(Code::kCorrupt, "json lines: not a JSON object");
}

}  // namespace headrace::detail
