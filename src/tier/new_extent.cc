// Invariants:
// - A file has its final name only when it is complete: it is written without a name (O_TMPFILE)
//   and linked, or, where the file system knows no such files, under an unfinished_name(), which
//   then goes (or becomes the final one, where it knows no links either), and locked meanwhile, so
//   that those of the dead are known.
//   Nothing is synchronised: after a loss of power a file may hold anything, and its sums tell.
// - O_DIRECT is a way, never a condition: where it is refused, the same goes through the page
//   cache.
#include "tier/new_extent.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/errno_status.h"
#include "tier/extent_file.h"
#include "tier/file_parts.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

std::size_t whole_pages(std::size_t bytes) noexcept { return bytes / kHeaderBytes * kHeaderBytes; }

/// Whether all of it can go past the page cache.
bool is_direct(const FileParts& parts) noexcept {
  return parts.data.size() >= kDirectBytes && is_at_page(parts.data.data());
}

Status write_all(int fd, const FileParts& parts) {
  const std::size_t whole = whole_pages(parts.data.size());
  IoParts all{iovec{parts.pages.data(), kHeaderBytes}, iovec{parts.data.data(), whole},
              iovec{parts.pages.data() + kHeaderBytes, kHeaderBytes}};
  std::span<iovec> left = std::span(all).first(whole < parts.data.size() ? 3 : 2);
  std::uint64_t at = 0;
  while (!left.empty()) {
    const ssize_t count =
        ::pwritev(fd, left.data(), static_cast<int>(left.size()), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    // Of what is left after a short count, or of this device, not so.
    if (count < 0 && errno == EINVAL && (::fcntl(fd, F_GETFL) & O_DIRECT) != 0 &&
        set_direct(fd, false))
      continue;
    if (count < 0) return errno_status(errno, "writing a cached file");
    at += static_cast<std::uint64_t>(count);
    left = skip(left, static_cast<std::size_t>(count));
  }
  return {};
}

Fd create_file(int directory, const char* path, int flags, bool is_direct) {
  Fd fd(::openat(directory, path, flags | O_RDWR | O_CLOEXEC, 0600));
  // Not in open(): where that is refused, the file has been made all the same.
  if (fd && is_direct) static_cast<void>(set_direct(fd.get(), true));
  return fd;
}

/// False, with errno: its mode could not be set.
bool share_as_folder(int directory, int file) noexcept {
  return access_of(directory) == Access::kOwner || ::fchmod(file, file_mode(Access::kGroup)) == 0;
}

/// As linkat() by descriptor, which wants a privilege; by this path it wants none (open(2),
/// O_TMPFILE). Fails without /proc.
int link_nameless(int file, int directory, const char* name) noexcept {
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", file);
  return ::linkat(AT_FDCWD, path.data(), directory, name, AT_SYMLINK_FOLLOW);
}

/// Says in its times when it came, and whether it counts as read again (ExtentReader::mark_hit()).
void set_times(int file, bool was_hit) noexcept {
  timespec times[2]{};
  times[0].tv_nsec = UTIME_NOW;
  if (was_hit) times[1].tv_nsec = UTIME_NOW;
  ::futimens(file, times);
}

/// 0: the unfinished file has its final name, beside its own one or, on a file system without links
/// (exFAT, many of FUSE), instead of it. There a file of that name is replaced by its equal.
int name_unfinished(int file, int directory, const char* unfinished, const char* name) noexcept {
  if (::linkat(directory, unfinished, directory, name, 0) == 0) return 0;
  const int error = errno;
  if (error == EPERM || error == EOPNOTSUPP || error == EMLINK)
    return ::renameat(directory, unfinished, directory, name);
  // NFS may repeat a call that has been done, and then finds its own name (link(2), BUGS).
  struct stat info {};
  if (error == EEXIST && ::fstat(file, &info) == 0 && info.st_nlink > 1) return 0;
  errno = error;
  return -1;
}

Status naming_status(int linked) {
  return linked == 0 ? Status() : errno_status(errno, "naming a cached file");
}

}  // namespace

void seal_extent(const ExtentInfo& info, const FileParts& parts, const SealKey* key) {
  make_header(info, parts.data, parts.pages.first(kHeaderBytes), key);
  const auto rest = parts.data.subspan(whole_pages(parts.data.size()));
  const auto last = parts.pages.subspan(kHeaderBytes);
  const auto end = std::copy(rest.begin(), rest.end(), last.begin());
  std::fill(end, last.end(), std::byte{0});
}

bool remove_if_dead(int directory, const char* unfinished) {
  Fd fd(::openat(directory, unfinished, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return errno == ENOENT;
  const auto is_dead = FileLocks(std::move(fd)).try_lock(0);
  return is_dead && *is_dead && (::unlinkat(directory, unfinished, 0) == 0 || errno == ENOENT);
}

Result<Fd> make_nameless(int directory, bool is_direct) {
  Fd fd = create_file(directory, ".", O_TMPFILE, is_direct);
  if (!fd || !share_as_folder(directory, fd.get()))
    return errno_status(errno, "making a cached file");
  return fd;
}

Status show_nameless(int file, int directory, const ExtentName& name, bool was_hit) {
  set_times(file, was_hit);
  return naming_status(link_nameless(file, directory, file_name(name).c_str()));
}

NewExtent::NewExtent(Fd directory, FileLocks file, std::string temporary)
    : directory_(std::move(directory)), file_(std::move(file)), temporary_(std::move(temporary)) {}

NewExtent::NewExtent(NewExtent&& other) noexcept
    : directory_(std::move(other.directory_)),
      file_(std::move(other.file_)),
      temporary_(std::exchange(other.temporary_, {})) {}

NewExtent::~NewExtent() {
  if (!temporary_.empty()) ::unlinkat(directory_.get(), temporary_.c_str(), 0);
}

bool NewExtent::can_be_nameless(int directory) {
  // More than once, since another process may take a probe for what a dead one has left.
  for (int i = 0; i < 3; ++i) {
    auto fd = make_nameless(directory, false);
    if (!fd) return false;
    const std::string probe = unfinished_name();
    FileLocks file(*std::move(fd));
    static_cast<void>(file.try_lock(0));
    if (link_nameless(file.file(), directory, probe.c_str()) != 0) return false;
    file = FileLocks();
    if (::unlinkat(directory, probe.c_str(), 0) == 0) return true;
  }
  return false;
}

Result<NewExtent> NewExtent::make(Fd directory, bool is_direct, bool is_nameless) {
  if (is_nameless) {
    auto fd = make_nameless(directory.get(), is_direct);
    if (fd) return NewExtent(std::move(directory), FileLocks(*std::move(fd)), {});
  }
  std::string temporary = unfinished_name();
  Fd fd = create_file(directory.get(), temporary.c_str(), O_CREAT | O_EXCL, is_direct);
  if (!fd) return errno_status(errno, "making a cached file");
  NewExtent extent(std::move(directory), FileLocks(std::move(fd)), std::move(temporary));
  static_cast<void>(extent.file_.try_lock(0));
  if (!share_as_folder(extent.directory_.get(), extent.file_.file()))
    return errno_status(errno, "making a cached file");
  return extent;
}

Result<NewExtent> NewExtent::write(Fd directory, const FileParts& parts, bool is_nameless) {
  HEADRACE_TRY_ASSIGN(auto extent, make(std::move(directory), is_direct(parts), is_nameless));
  HEADRACE_TRY(write_all(extent.file_.file(), parts));
  return extent;
}

Status NewExtent::publish(const ExtentName& name, bool was_hit) const {
  if (temporary_.empty()) return show_nameless(file_.file(), directory_.get(), name, was_hit);
  set_times(file_.file(), was_hit);
  return naming_status(
      name_unfinished(file_.file(), directory_.get(), temporary_.c_str(), file_name(name).c_str()));
}

}  // namespace headrace::tier
