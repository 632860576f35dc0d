#include "base/base64.h"

#include <algorithm>
#include <cstdint>

namespace headrace {
namespace {

int base64_value(char c) noexcept {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

/// Number of '=' signs at the end, at most 2; 0 for an empty text.
std::size_t padding_of(std::string_view text) noexcept {
  if (text.ends_with("==")) return 2;
  return text.ends_with('=') ? 1 : 0;
}

}  // namespace

void append_base64(std::span<const std::byte> bytes, std::string& out) {
  const std::size_t begin = out.size();
  out.resize(begin + (bytes.size() + 2) / 3 * 4);
  encode_base64(bytes, std::span(out).subspan(begin));
}

void encode_base64(std::span<const std::byte> bytes, std::span<char> out) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::size_t at = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < count ? static_cast<std::uint32_t>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out[at++] = j <= count ? kAlphabet[group >> (18 - 6 * j) & 63] : '=';
    }
  }
}

void append_base64(std::string_view bytes, std::string& out) {
  append_base64(std::as_bytes(std::span(bytes.data(), bytes.size())), out);
}

std::optional<std::string> decode_base64(std::string_view text) {
  std::string out(text.size() / 4 * 3, '\0');
  out.resize(out.size() - std::min(out.size(), padding_of(text)));
  if (!decode_base64(text, std::as_writable_bytes(std::span(out)))) return std::nullopt;
  return out;
}

bool decode_base64(std::string_view text, std::span<std::byte> out) noexcept {
  const std::size_t padding = padding_of(text);
  if (text.size() % 4 != 0 || out.size() != text.size() / 4 * 3 - padding) return false;
  std::uint32_t group = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int value = i >= text.size() - padding ? 0 : base64_value(text[i]);
    if (value < 0) return false;
    group = group << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0 && at < out.size(); shift -= 8)
      out[at++] = static_cast<std::byte>(group >> shift & 255);
    group = 0;
  }
  return true;
}

std::string base64(std::string_view bytes) {
  std::string out;
  append_base64(bytes, out);
  return out;
}

std::string base64_url(std::string_view bytes) {
  std::string out = base64(bytes);
  out.resize(out.size() - padding_of(out));
  std::replace(out.begin(), out.end(), '+', '-');
  std::replace(out.begin(), out.end(), '/', '_');
  return out;
}

}  // namespace headrace
