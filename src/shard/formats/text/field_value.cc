#include "shard/formats/text/field_value.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>

#include "shard/codec/json_text.h"

namespace headrace::detail {
namespace {

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

bool is_python_float(std::string_view text) {
  return text == "NaN" || text == "Infinity" || text == "-Infinity";
}

template <class Number>
bool parse_all(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

bool parse_json_number(std::string_view text, std::int64_t& value) noexcept {
  return parse_all(text, value) && is_json_number(text);
}

bool parse_json_number(std::string_view text, double& value) noexcept {
  return parse_all(text, value) && (is_json_number(text) || is_python_float(text));
}

bool is_json_text(std::string_view inner) noexcept {
  return std::none_of(inner.begin(), inner.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20; }) &&
         simdjson::validate_utf8(inner);
}

std::optional<FieldKind> kind_of_value(std::string_view value) noexcept {
  if (value == "null") return FieldKind::kNone;
  if (value == "true" || value == "false") return FieldKind::kBool;
  if (value.front() == '{' || value.front() == '[') return FieldKind::kJson;
  if (value.front() == '"') {
    const std::string_view inner = value.substr(1, value.size() - 2);
    if (!unescaped_bytes(inner) || !is_json_text(inner)) return std::nullopt;
    return FieldKind::kString;
  }
  std::int64_t integer = 0;
  if (parse_json_number(value, integer)) return FieldKind::kInt;
  if (is_python_float(value)) return FieldKind::kFloat;
  if (!is_json_number(value)) return std::nullopt;
  double number = 0;
  const bool is_float = value.find_first_of(".eE") != std::string_view::npos;
  return is_float && parse_json_number(value, number) ? FieldKind::kFloat : FieldKind::kJson;
}

}  // namespace headrace::detail
