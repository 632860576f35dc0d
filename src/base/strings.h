#pragma once
/// \file
/// The few string functions that several parts need. Pure; ASCII; no locale.
#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headrace {

/// The whole of `text` as a decimal number without sign or spaces; nullopt for anything else or out
/// of range.
template <std::unsigned_integral T>
std::optional<T> parse_decimal(std::string_view text) noexcept {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// What stands between words, ends of lines included.
inline constexpr std::string_view kWhiteSpace = " \t\r\n";

/// Without the characters of `set` at both ends: spaces and tabs, or what else is to go.
constexpr std::string_view trim(std::string_view text, std::string_view set = " \t") noexcept {
  const std::size_t first = text.find_first_not_of(set);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(set) - first + 1);
}

/// As people read sizes: "12 MiB", rounded down.
inline std::string in_mib(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

/// ASCII letters only.
inline std::string to_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// Two lower-case digits a byte.
inline std::string to_hex(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
    out += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
  }
  return out;
}
inline std::string to_hex(std::string_view bytes) {
  return to_hex(std::as_bytes(std::span(bytes)));
}

/// Of a digit in either case; -1 for another character.
constexpr int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// Appends the bytes that `hex` writes with two digits each; false when it is something else.
inline bool from_hex(std::string_view hex, std::string& bytes) {
  if (hex.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = hex_value(hex[i]), low = hex_value(hex[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes.push_back(static_cast<char>(high << 4 | low));
  }
  return true;
}

}  // namespace headrace
