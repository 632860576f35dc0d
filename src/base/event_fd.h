#pragma once
/// \file
/// EventFd: by which a thread ends the wait of another in poll(), epoll or io_uring.
///
/// Threads: signal() from any thread.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/fd.h"

namespace headrace {

class EventFd {
 public:
  /// Without one, and errno set, where the process has no descriptor left.
  /// `extra_flags`: 0 for whoever reads it by io_uring, which is to wait.
  explicit EventFd(int extra_flags = EFD_NONBLOCK) noexcept
      : fd_(::eventfd(0, EFD_CLOEXEC | extra_flags)) {}

  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  int get() const noexcept { return fd_.get(); }

  /// From now on it is readable.
  void signal() const noexcept {
    const std::uint64_t one = 1;
    // Fails only where the counter is full: it is readable then.
    static_cast<void>(!::write(fd_.get(), &one, sizeof(one)));
  }

 private:
  Fd fd_;
};

}  // namespace headrace
