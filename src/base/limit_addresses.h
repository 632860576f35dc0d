#pragma once
/// \file
/// limit_addresses(): for tests of what happens where the system refuses memory or threads. In a
/// process of its own (a death test): the limit stays. Sanitizers want addresses of their own.
///
/// Threads: any.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "base/check.h"

namespace headrace {

/// The process gets `more_bytes` of addresses beside those that it has. A thread takes 8 MiB.
inline void limit_addresses(std::uint64_t more_bytes) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + more_bytes;
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  HEADRACE_CHECK(::setrlimit(RLIMIT_AS, &limit) == 0);
}

}  // namespace headrace
