#pragma once
// What the examples share: the environment as a value, and the end of main().
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "headrace/environment.h"
#include "headrace/status.h"

/// The library reads no environment variable by itself: a program hands it those that it wants
/// endpoints, regions and credentials to be found by.
inline headrace::Environment process_environment() {
  headrace::Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

/// The exit status of a program that ended with `status`.
inline int report(const headrace::Status& status) {
  if (status.ok()) return 0;
  const std::string_view code = code_name(status.code());
  std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(code.size()), code.data(),
               static_cast<int>(status.message().size()), status.message().data());
  return 1;
}
