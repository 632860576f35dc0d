// What a group shares has its mode, which no umask may take from it, before it has its name: nobody
// finds it half open.
#include "tier/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "base/errno_status.h"

namespace headrace::tier {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

constexpr mode_t kSharedFolder = S_ISGID | S_IRWXU | S_IRWXG;

int make_for_owner(int parent, const std::string& path) {
  return ::mkdirat(parent, path.c_str(), S_IRWXU) == 0 ? 0 : errno;
}

int make_for_group(int parent, const std::string& path) {
  // Beside it; a slash at the end is none before its name.
  const std::size_t name_at = path.rfind('/', path.size() - 2) + 1;
  const std::string temporary = path.substr(0, name_at) + unfinished_name();
  if (::mkdirat(parent, temporary.c_str(), S_IRWXU) != 0) return errno;
  int error = ::fchmodat(parent, temporary.c_str(), kSharedFolder, 0) == 0 ? 0 : errno;
  if (error == 0 &&
      ::renameat2(parent, temporary.c_str(), parent, path.c_str(), RENAME_NOREPLACE) != 0)
    error = errno;
  if (error != 0) ::unlinkat(parent, temporary.c_str(), AT_REMOVEDIR);
  return error;
}

/// An empty file with the mode of a group's; nothing where there is one.
int make_file_for_group(int folder, const std::string& name) {
  const std::string temporary = unfinished_name();
  const Fd file(::openat(folder, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return errno;
  int error = ::fchmod(file.get(), file_mode(Access::kGroup)) == 0 ? 0 : errno;
  if (error == 0 && ::linkat(folder, temporary.c_str(), folder, name.c_str(), 0) != 0 &&
      errno != EEXIST)
    error = errno;
  ::unlinkat(folder, temporary.c_str(), 0);
  return error;
}

int open_flags(int parent) noexcept {
  // People may name a link; the cache makes none.
  return O_RDONLY | O_DIRECTORY | O_CLOEXEC | (parent != AT_FDCWD ? O_NOFOLLOW : 0);
}

}  // namespace

std::string unfinished_name() {
  std::uint64_t random = 0;
  while (::getrandom(&random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) {
  }
  return std::string(kUnfinished) + std::to_string(random);
}

Access access_of(int folder) noexcept {
  struct stat info {};
  if (::fstat(folder, &info) != 0) return Access::kOwner;
  const bool is_shared = (info.st_mode & S_ISGID) != 0 && (info.st_mode & S_IWGRP) != 0;
  return is_shared ? Access::kGroup : Access::kOwner;
}

Result<Fd> open_folder(int parent, const std::string& path, bool make) {
  Fd folder(::openat(parent, path.c_str(), open_flags(parent)));
  if (!folder && errno == ENOENT && make) return open_folder_for(access_of(parent), parent, path);
  if (!folder) return errno_status(errno, "cache: opening the directory " + path);
  return folder;
}

Result<Fd> open_folder_for(Access access, int parent, const std::string& path) {
  Fd folder(::openat(parent, path.c_str(), open_flags(parent)));
  if (!folder && errno == ENOENT) {
    const int error =
        access == Access::kGroup ? make_for_group(parent, path) : make_for_owner(parent, path);
    if (error != 0 && error != EEXIST)
      return errno_status(error, "cache: making the directory " + path);
    folder = Fd(::openat(parent, path.c_str(), open_flags(parent)));
  }
  if (!folder) return errno_status(errno, "cache: opening the directory " + path);
  return folder;
}

Result<Fd> open_file(int folder, const std::string& name) {
  const int flags = O_RDWR | O_CLOEXEC;
  Fd file(::openat(folder, name.c_str(), flags));
  if (!file && errno == ENOENT && access_of(folder) == Access::kGroup) {
    const int error = make_file_for_group(folder, name);
    if (error != 0) return errno_status(error, "cache: making " + name);
    file = Fd(::openat(folder, name.c_str(), flags));
  } else if (!file && errno == ENOENT) {
    file = Fd(::openat(folder, name.c_str(), flags | O_CREAT, file_mode(Access::kOwner)));
  }
  if (!file) return errno_status(errno, "cache: opening " + name);
  return file;
}

Status visit_names(int directory, const std::function<void(const char*)>& visit) {
  // A description of its own: the position in a directory is shared between copies.
  Fd own(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, CloseDirectory> listing(own ? ::fdopendir(own.get()) : nullptr);
  if (!listing) return errno_status(errno, "cache: reading a directory");
  own.release();
  errno = 0;
  while (const dirent* const entry = ::readdir(listing.get())) {
    visit(entry->d_name);
    errno = 0;
  }
  if (errno != 0) return errno_status(errno, "cache: reading a directory");
  return {};
}

}  // namespace headrace::tier
