#pragma once
/// \file
/// Taking names of files apart. Pure; nothing is allocated.
///
/// Threads: functions.
#include <algorithm>
#include <string_view>

namespace headrace::detail {

/// Behind the last '/'.
inline std::string_view base_name(std::string_view key) noexcept {
  return key.substr(key.rfind('/') + 1);
}

/// Takes `prefix` off the front of `text`; false when it is not there.
inline bool take_prefix(std::string_view& text, std::string_view prefix) noexcept {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Takes one digit or more off the front of `text`.
inline bool take_digits(std::string_view& text) noexcept {
  const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(count);
  return count > 0;
}

}  // namespace headrace::detail
