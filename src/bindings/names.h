#pragma once
/// \file
/// Enumerators by the names that Python has for them.
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "errors.h"

namespace headrace {

/// The one that `given` names. Raises InvalidArgumentError for another name, and says which there
/// are.
template <class Enum>
Enum by_name(std::string_view option, const std::string& given,
             std::initializer_list<std::pair<std::string_view, Enum>> names) {
  std::string known;
  for (const auto& [name, value] : names) {
    if (name == given) return value;
    known.append(known.empty() ? "" : ", ").append(name);
  }
  raise(Status(Code::kInvalidArgument,
               std::string(option) + "='" + given + "' is unknown; there are " + known));
}

}  // namespace headrace
