#pragma once
/// \file
/// The process environment as a value. Nothing below bindings/ reads the real one.
#include <map>
#include <string>

namespace headrace {

/// The process environment as the credential and endpoint rules see it. Captured once by the
/// bindings or main(); tests build their own. Lookup of a missing name is an empty string.
struct Environment {
  std::map<std::string, std::string> variables;
  std::string get(const std::string& name) const {
    auto it = variables.find(name);
    return it == variables.end() ? std::string() : it->second;
  }
};

}  // namespace headrace
