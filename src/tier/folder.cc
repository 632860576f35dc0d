#include "tier/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>

#include "base/errno_status.h"

namespace headrace::tier {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

}  // namespace

Result<Fd> open_folder(int parent, const std::string& path, bool make) {
  // People may name a link; the cache makes none.
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (parent != AT_FDCWD ? O_NOFOLLOW : 0);
  Fd folder(::openat(parent, path.c_str(), flags));
  if (!folder && errno == ENOENT && make) {
    if (::mkdirat(parent, path.c_str(), 0700) != 0 && errno != EEXIST)
      return errno_status(errno, "cache: making the directory " + path);
    folder = Fd(::openat(parent, path.c_str(), flags));
  }
  if (!folder) return errno_status(errno, "cache: opening the directory " + path);
  return folder;
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
