#include "shard/text/line_cutter.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/endian.h"
#include "shard/text/json_text.h"

namespace headrace::detail {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<std::string> field_names(const TextLayout& layout) {
  std::vector<std::string> names;
  for (const TextField& field : layout.fields) names.push_back(field.name);
  return names;
}

std::size_t skip_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
  return at;
}

// RFC 8259, section 6; from_chars takes more: "007", "1.", "inf".
bool is_json_number(std::string_view text) {
  const std::size_t first = text.starts_with('-') ? 1 : 0;
  std::size_t at = skip_digits(text, first);
  if (at == first || (text[first] == '0' && at > first + 1)) return false;
  if (at < text.size() && text[at] == '.') {
    const std::size_t fraction = at + 1;
    at = skip_digits(text, fraction);
    if (at == fraction) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    std::size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    at = skip_digits(text, exponent);
    if (at == exponent) return false;
  }
  return at == text.size();
}

// What JSON allows between quotes, escapes aside.
bool is_json_text(std::string_view inner) {
  return std::none_of(inner.begin(), inner.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20; }) &&
         simdjson::validate_utf8(inner);
}

template <class Number>
bool parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && is_json_number(text);
}

template <class Number>
void write_number(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  Number value{};
  parse_number(text_of(cell.bytes), value);
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
      return parse_number(value, number);
    }
    case FieldKind::kFloat: {
      double number = 0;
      out = written(value, write_number<double>, sizeof(number));
      return parse_number(value, number);
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

std::string_view trim_blanks(std::string_view text) {
  constexpr std::string_view kAround = " \t\r\n";
  // Some writers put a byte order mark before the first line.
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(kAround);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kAround) - first + 1);
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
  const std::string_view line = trim_blanks(text_of(sample));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (layout_.fields[i].name.empty()) out[i] = written(line, nullptr, 0);
  }
  return needs_fields_ ? cut_fields(line, out) : Status();
}

Status LineCutter::cut_fields(std::string_view line, std::span<ColumnBytes> out) const {
  const auto broken = [] { return Status(Code::kCorrupt, "json lines: not a JSON object"); };
  std::array<std::byte, 256> buffer;
  JsonText text(line);
  if (!text.take('{')) return broken();
  bool is_first = true;
  while (text.peek() != '}') {
    std::string_view name, value;
    if (!is_first && !text.take(',')) return broken();
    is_first = false;
    if (!text.take_string(name) || !text.take(':') || !text.take_value(value)) return broken();
    if (name.find('\\') != std::string_view::npos) {
      const auto length = unescaped_bytes(name);
      if (!length) return broken();
      if (*length > buffer.size()) continue;
      unescape(name, std::span(buffer).first(*length));
      name = text_of(std::span(buffer).first(*length));
    }
    const std::int32_t field = name.empty() ? -1 : names_.find(name);
    if (field < 0) continue;
    const auto i = static_cast<std::size_t>(field);
    if (place(value, layout_.fields[i].kind, out[i])) continue;
    return Status(Code::kCorrupt,
                  fmt::format("json lines: field '{}' is no {}, as the first lines had it; read "
                              "whole lines with columns=['json']",
                              name, field_kind_name(layout_.fields[i].kind)));
  }
  text.take('}');
  return text.peek() == '\0' ? Status() : broken();
}

}  // namespace headrace::detail
