#pragma once
/// \file
/// Locks on bytes of one file, between processes. The kernel gives them up when their process dies.
///
/// They are open-file-description locks (fcntl(2)): threads of a process share them, so whoever
/// uses them keeps its own threads apart. What the process forks would, too, and keep them when it
/// is gone: a child of fork() has /dev/null in the place of each file.
///
/// Threads: any.
#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/errno_status.h"
#include "base/fd.h"
#include "headrace/status.h"

namespace headrace::tier {

/// A file that children of fork() do not have.
class UnforkedFd {
 public:
  UnforkedFd() = default;
  explicit UnforkedFd(Fd fd);
  UnforkedFd(UnforkedFd&&) noexcept = default;
  UnforkedFd& operator=(UnforkedFd&& o) noexcept {
    UnforkedFd dying(std::move(*this));
    fd_ = std::move(o.fd_);
    return *this;
  }
  ~UnforkedFd();
  int get() const noexcept { return fd_.get(); }

 private:
  Fd fd_;
};

class FileLocks {
 public:
  FileLocks() = default;
  explicit FileLocks(Fd file) : file_(std::move(file)) {}

  enum class Kind : short { kShared = F_RDLCK, kExclusive = F_WRLCK };

  /// False: somebody else has it. Errors: kUnsupported and others (a file system without locks).
  Result<bool> try_lock(std::uint64_t byte, Kind kind = Kind::kExclusive) const {
    if (set(F_OFD_SETLK, byte, static_cast<short>(kind)) == 0) return true;
    if (errno == EAGAIN || errno == EACCES) return false;
    return errno_status(errno, "locking the cache");
  }
  /// Waits for it, at most about two seconds: its holder may be stopped. Errors: as try_lock(),
  /// kDeadline.
  Status lock(std::uint64_t byte, Kind kind = Kind::kExclusive) const {
    constexpr int kTries = 2000;
    for (int i = 0; i < kTries; ++i) {
      HEADRACE_TRY_ASSIGN(const bool is_mine, try_lock(byte, kind));
      if (is_mine) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Status(Code::kDeadline, "locking the cache: another process holds the lock");
  }
  /// Whether somebody else has a lock on one of bytes [first, first + count). Errors count as no.
  bool is_any_locked(std::uint64_t first, std::uint64_t count) const noexcept {
    struct flock lock = range(first, count, F_WRLCK);
    return count > 0 && ::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  }
  int file() const noexcept { return file_.get(); }
  void unlock(std::uint64_t byte) const noexcept { set(F_OFD_SETLK, byte, F_UNLCK); }

 private:
  static struct flock range(std::uint64_t first, std::uint64_t count, short type) noexcept {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(first);
    lock.l_len = static_cast<off_t>(count);
    return lock;
  }
  int set(int command, std::uint64_t byte, short type) const noexcept {
    struct flock lock = range(byte, 1, type);
    return ::fcntl(file_.get(), command, &lock);
  }

  UnforkedFd file_;
};

}  // namespace headrace::tier
