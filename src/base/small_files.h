#pragma once
/// \file
/// SmallFiles: a disk that is full, for tests.
///
/// Threads: one at a time.
#include <sys/resource.h>

#include <csignal>
#include <cstdint>

#include "base/check.h"

namespace headrace {

/// While it lives, no file of this process is written at or behind `bytes`: EFBIG.
class SmallFiles {
 public:
  explicit SmallFiles(std::uint64_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    HEADRACE_CHECK(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    rlimit small = before_;
    small.rlim_cur = bytes;
    HEADRACE_CHECK(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, old_handler_);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_{};
  void (*const old_handler_)(int);
};

}  // namespace headrace
