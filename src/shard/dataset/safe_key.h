#pragma once
/// \file
/// Whether a file name that a manifest gives stays inside its dataset. Pure.
#include <algorithm>
#include <string_view>

namespace headrace::detail {

/// True for a relative name without NUL and without a `..` part.
inline bool is_safe_key(std::string_view name) noexcept {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos)
    return false;
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('/'));
    if (part == "..") return false;
    name.remove_prefix(std::min(part.size() + 1, name.size()));
  }
  return true;
}

}  // namespace headrace::detail
