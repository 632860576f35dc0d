#pragma once
/// \file
/// Lists in one text, as header fields and settings have them: "a, b". Pure.
#include <algorithm>
#include <string_view>

#include "base/strings.h"

namespace headrace {

/// Takes the first item off a list, and the separator behind it. Without the spaces and tabs around
/// it; it may be empty.
constexpr std::string_view take_item(std::string_view& list, char separator = ',') noexcept {
  const std::size_t end = std::min(list.find(separator), list.size());
  const std::string_view item = trim(list.substr(0, end));
  list.remove_prefix(std::min(end + 1, list.size()));
  return item;
}

}  // namespace headrace
