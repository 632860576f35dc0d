#include "shard/formats/mds/mds_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "shard/codec/json_text.h"

namespace headrace::detail {
namespace {

void write_unescaped(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  unescape(text_of(cell.bytes), out);
}

// False when a string has a broken escape.
bool place(std::string_view value, ColumnBytes& out) {
  if (!value.starts_with('"')) {
    out = {bytes_of(value), true};
    return true;
  }
  const std::string_view inner = value.substr(1, value.size() - 2);
  const auto length = unescaped_bytes(inner);
  if (!length) return false;
  out = {bytes_of(inner), true};
  // Every escape is longer than what it means.
  if (*length != inner.size()) {
    out.writer = write_unescaped;
    out.value_bytes = *length;
  }
  return true;
}

std::vector<std::string> names_of(const std::vector<Column>& columns) {
  std::vector<std::string> names;
  for (const Column& column : columns) names.push_back(column.name);
  return names;
}

Status no_object() { return Status(Code::kCorrupt, "its line is no JSON object"); }

}  // namespace

MdsLineCutter::MdsLineCutter(MdsSplit split, const std::vector<Column>& columns)
    : split_(std::move(split)), names_(names_of(columns)) {}

Status MdsLineCutter::cut(std::span<const std::byte> sample, std::span<ColumnBytes> out) const {
  std::string_view line = text_of(sample);
  if (line.ends_with(split_.newline)) line.remove_suffix(split_.newline.size());
  return split_.kind == MdsSplit::Kind::kJson ? cut_json(line, out) : cut_fields(line, out);
}

Status MdsLineCutter::cut_fields(std::string_view line, std::span<ColumnBytes> out) const {
  std::size_t c = 0;
  while (c < out.size()) {
    const std::size_t end = line.find(split_.separator);
    out[c++] = {bytes_of(line.substr(0, end)), true};
    if (end == std::string_view::npos) break;
    line.remove_prefix(end + split_.separator.size());
    if (c == out.size()) return Status(Code::kCorrupt, "its line has more fields than columns");
  }
  if (c < out.size())
    return Status(Code::kCorrupt, fmt::format("its line has {} fields of {}", c, out.size()));
  return Status();
}

Status MdsLineCutter::cut_json(std::string_view line, std::span<ColumnBytes> out) const {
  std::fill(out.begin(), out.end(), ColumnBytes{});
  std::array<std::byte, 256> buffer;
  std::size_t found = 0;
  JsonText text(line);
  if (!text.take('{')) return no_object();
  for (bool is_first = true; text.peek() != '}'; is_first = false) {
    std::string_view name, value;
    if (!is_first && !text.take(',')) return no_object();
    if (!text.take_string(name) || !text.take(':') || !text.take_value(value)) return no_object();
    if (name.find('\\') != std::string_view::npos) {
      const auto length = unescaped_bytes(name);
      if (!length) return no_object();
      if (*length > buffer.size()) continue;
      unescape(name, std::span(buffer).first(*length));
      name = text_of(std::span(buffer).first(*length));
    }
    const std::int32_t column = names_.find(name);
    if (column < 0) continue;
    ColumnBytes& cell = out[static_cast<std::size_t>(column)];
    if (!cell.present) ++found;
    if (!place(value, cell)) return no_object();
  }
  text.take('}');
  if (text.peek() != '\0') return no_object();
  if (found < out.size()) return Status(Code::kCorrupt, "its line lacks a column");
  return Status();
}

}  // namespace headrace::detail
