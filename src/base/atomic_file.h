#pragma once
/// \file
/// Publishing files so that a reader sees the old content or the new, never a part, whenever the
/// writer dies.
///
/// A temporary file (".headrace-xxxxxxxxxx.tmp") in the directory of the target is locked while its
/// writer lives; the kernel drops the lock when the process dies, in any container. So what can be
/// locked is left over and may be removed.
///
/// Threads: any. No fsync: a machine that loses power may lose the newest file, a process that dies
/// does not.
#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "headrace/status.h"

namespace headrace {

/// A file on its way to be published; removed when destroyed before publish().
class TemporaryFile {
 public:
  /// Creates and locks one in `directory`, which must exist, with the permissions `mode` as far as
  /// the umask leaves them. Errors: of errno_status().
  static Result<TemporaryFile> create(const std::string& directory, mode_t mode = 0666);
  TemporaryFile(TemporaryFile&& o) noexcept
      : fd_(std::move(o.fd_)), path_(std::exchange(o.path_, {})) {}
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  ~TemporaryFile();

  int fd() const noexcept { return fd_.get(); }
  const std::string& path() const noexcept { return path_; }
  /// Writes all of `bytes` at the file's position. Errors: of errno_status().
  Status write(std::span<const std::byte> bytes);
  /// Gives it its name, replacing what has it; or, with `if_absent`, kChanged when the name is
  /// taken. Errors: of check_replaceable(), of errno_status(); nothing is published then.
  Status publish(const std::string& path, bool if_absent = false);

 private:
  TemporaryFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Fd fd_;
  std::string path_;  // empty once published
};

/// kUnsupported when a file that takes this name would take it from a device, a fifo, a socket or a
/// link to one: rename() asks nobody, and the machine is without its /dev/null. `directory`: as for
/// openat(). Whether it is a directory is left to rename().
Status check_replaceable(int directory, const std::string& name, const std::string& path);

/// True for names that TemporaryFile gives.
bool is_temporary_name(std::string_view name) noexcept;

/// Removes the temporary files that dead writers left in `directory`; errors are ignored. Reads the
/// whole directory.
void remove_stale_temporaries(const std::string& directory) noexcept;

/// Replaces the content of `path` by `bytes` at once. Creates no directories. Errors: of
/// errno_status().
Status atomic_write_file(const std::string& path, std::string_view bytes);

/// atomic_write_file() of a file that only its owner may read and write.
Status atomic_write_private_file(const std::string& path, std::string_view bytes);

/// Makes `path` and the directories above it that are missing, for their owner alone. Errors are
/// left to who uses the directory.
void make_private_directories(const std::string& path) noexcept;

}  // namespace headrace
