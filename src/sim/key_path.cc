#include "sim/key_path.h"

#include <algorithm>

#include "http/uri.h"

namespace headrace::sim {
namespace {

constexpr std::size_t kMaxComponentBytes = 255;  // NAME_MAX
constexpr std::size_t kPieceChars = 200;

bool is_alnum(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

bool is_path_key(std::string_view key) noexcept {
  if (key.empty()) return false;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('/', begin), key.size());
    const std::string_view part = key.substr(begin, end - begin);
    if (part.empty() || part.size() > kMaxComponentBytes || part.front() == '.') return false;
    if (part.find('\0') != std::string_view::npos) return false;
    begin = end + 1;
  }
  return true;
}

std::string escaped_key_path(std::string_view key) {
  const std::string escaped = http::encode(key, http::Slash::kEscape);
  std::string out;
  for (std::size_t begin = 0; begin < escaped.size(); begin += kPieceChars) {
    out.append(escaped, begin, kPieceChars);
    out += begin + kPieceChars < escaped.size() ? "+/" : "=";
  }
  return out;
}

std::optional<std::string> key_of_escaped_path(std::string_view path) {
  std::string escaped;
  while (true) {
    const std::size_t slash = path.find('/');
    std::string_view part = path.substr(0, slash);
    const char mark = slash == std::string_view::npos ? '=' : '+';
    if (part.size() < 2 || part.back() != mark) return std::nullopt;
    escaped += part.substr(0, part.size() - 1);
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  Result<std::string> key = http::decode(escaped);
  if (!key) return std::nullopt;
  return *std::move(key);
}

bool is_bucket_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 63 || !is_alnum(name.front())) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_alnum(c) || c == '.' || c == '-' || c == '_'; });
}

bool is_new_bucket_name(std::string_view name) noexcept {
  if (name.size() < 3 || name.size() > 63 || name.starts_with("xn--")) return false;
  bool is_address = true;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    const bool is_edge = i == 0 || i + 1 == name.size();
    if (!is_plain && (is_edge || (c != '.' && c != '-'))) return false;
    if (c == '.' && (name[i - 1] == '.' || name[i - 1] == '-' || name[i + 1] == '-')) return false;
    is_address = is_address && (c == '.' || (c >= '0' && c <= '9'));
  }
  return !is_address || std::count(name.begin(), name.end(), '.') != 3;
}

}  // namespace headrace::sim
