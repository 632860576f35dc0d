// Long operations go in pieces, with a look at the interrupt between them, so that a cancel or a
// deadline ends them within milliseconds.
//
// A file may be written to while it is read. A read compares size and time of the open file before
// and after; a change between is kChanged, never a mixture of two versions.
#include "store/file/file_io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/errno_status.h"
#include "store/file/file_key.h"

namespace headrace::file {
namespace {

// Between two looks at cancel and deadline: 4 MiB are 1 ms from the page cache, 40 ms from a slow
// disk.
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

Status shrank() { return Status(Code::kChanged, "the file became shorter while it was read"); }

}  // namespace

Result<Fd> open_object(const std::string& path, struct stat& info) {
  // O_NONBLOCK: opening a fifo must not wait for its writer. No effect on files.
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return errno_status(errno, "open " + path);
  if (::fstat(fd.get(), &info) != 0) return errno_status(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return Status(Code::kNotFound, path + " is not a file");
  return fd;
}

Status read_exactly(int fd, std::uint64_t offset_bytes, std::span<std::byte> bytes,
                    const Interrupt& interrupt) {
  while (!bytes.empty()) {
    HEADRACE_TRY(interrupt.check());
    const ssize_t count = ::pread(fd, bytes.data(), std::min(bytes.size(), kPieceBytes),
                                  static_cast<off_t>(offset_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_status(errno, "read");
    if (count == 0) return shrank();
    offset_bytes += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Status check_empty(int fd) {
  char first = 0;
  const ssize_t count = ::pread(fd, &first, 1, 0);
  if (count == 0) return {};
  if (count < 0) return errno_status(errno, "read");
  return Status(Code::kUnsupported,
                "the file has bytes, but its size is 0: only a stream can be made of it");
}

Status sync_directory(int directory, const std::string& path) {
  // File systems that cannot (EINVAL) have nothing to synchronise.
  if (::fsync(directory) == 0 || errno == EINVAL) return {};
  return errno_status(errno, "fsync " + path);
}

Status check_unchanged(int fd, const struct stat& before) {
  struct stat now {};
  if (::fstat(fd, &now) != 0) return errno_status(errno, "stat");
  const bool is_same = now.st_size == before.st_size &&
                       now.st_mtim.tv_sec == before.st_mtim.tv_sec &&
                       now.st_mtim.tv_nsec == before.st_mtim.tv_nsec;
  return is_same ? Status() : Status(Code::kChanged, "the file was written to while it was read");
}

Status write_all(TemporaryFile& file, std::span<const std::byte> bytes,
                 const Interrupt& interrupt) {
  while (!bytes.empty()) {
    HEADRACE_TRY(interrupt.check());
    const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    HEADRACE_TRY(file.write(piece));
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

Status append_file(TemporaryFile& file, int from, std::uint64_t size_bytes,
                   const Interrupt& interrupt) {
  off_t offset = 0;
  bool can_share = true;
  while (static_cast<std::uint64_t>(offset) < size_bytes) {
    HEADRACE_TRY(interrupt.check());
    const std::size_t piece =
        std::min<std::uint64_t>(size_bytes - static_cast<std::uint64_t>(offset), kPieceBytes);
    const ssize_t count = can_share ? ::copy_file_range(from, &offset, file.fd(), nullptr, piece, 0)
                                    : ::sendfile(file.fd(), from, &offset, piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && can_share) {
      can_share =
          false;  // across file systems, or unsupported: sendfile() reports what is really wrong
      continue;
    }
    if (count < 0) return errno_status(errno, "copy to " + file.path());
    if (count == 0) return shrank();
  }
  return {};
}

Result<Fd> open_real_parent(const std::string& root, std::string_view key) {
  Fd fd(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno_status(errno, "open directory " + root);
  for (std::size_t start = 0, slash = 0; (slash = key.find('/', start)) != std::string_view::npos;
       start = slash + 1) {
    const std::string name(key.substr(start, slash - start));
    // Component by component, each without following links: a path that was checked as a whole may
    // be exchanged between the check and the use.
    Fd below(::openat(fd.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!below) {
      const int error = errno;
      const std::string path = root + "/" + std::string(key.substr(0, slash));
      struct stat info {};
      if (::fstatat(fd.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISLNK(info.st_mode)) {
        return Status(Code::kUnsupported,
                      path + " is a symbolic link: nothing is deleted through it");
      }
      return errno_status(error, "open directory " + path);
    }
    fd = std::move(below);
  }
  return fd;
}

Status make_directories(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return {};
  if (errno == ENOTDIR)
    return Status(Code::kUnsupported, "a file is in the way of directory " + path);
  if (errno != ENOENT) return errno_status(errno, "create directory " + path);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0)
    return errno_status(ENOENT, "create directory " + path);
  HEADRACE_TRY(make_directories(path.substr(0, slash)));
  if (::mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return {};
  if (errno == ENOTDIR)
    return Status(Code::kUnsupported, "a file is in the way of directory " + path);
  return errno_status(errno, "create directory " + path);
}

void remove_directory(const std::string& path) noexcept {
  DIR* const entries = ::opendir(path.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    if (entry->d_name[0] != '.' || is_temporary_name(entry->d_name)) {
      ::unlinkat(::dirfd(entries), entry->d_name, 0);
    }
  }
  ::closedir(entries);
  ::rmdir(path.c_str());
}

}  // namespace headrace::file
