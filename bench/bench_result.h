#pragma once
/// \file
/// Benchmarks over the library: a failure ends the program.
#include <errno.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

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

}  // namespace headrace::bench
