#pragma once
/// \file
/// Benchmarks over the library: a failure ends the program, and credentials come from the
/// environment.
#include <errno.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "headrace/environment.h"
#include "headrace/status.h"

namespace headrace::bench {

[[noreturn]] inline void die(const Status& status) {
  std::fprintf(stderr, "%s: %.*s\n", program_invocation_short_name,
               static_cast<int>(status.message().size()), status.message().data());
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) die(result.error());
  return *std::move(result);
}

/// That of this process.
inline Environment environment() {
  Environment found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos)
      found.variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return found;
}

}  // namespace headrace::bench
