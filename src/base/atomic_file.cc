#include "base/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/errno_status.h"

namespace headrace {
namespace {

constexpr std::string_view kPrefix = ".headrace-";
constexpr std::string_view kSuffix = ".tmp";
constexpr std::size_t kRandomChars = 10;

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Not mkostemp(): its files have mode 0600, but objects follow the umask as those of any other
// program do.
Fd create_unique(const std::string& directory, mode_t mode, std::string& path) {
  while (true) {
    std::uint64_t bits = 0;
    if (::getentropy(&bits, sizeof bits) != 0) return Fd();
    path = directory + "/" + std::string(kPrefix);
    for (std::size_t i = 0; i < kRandomChars; ++i, bits >>= 5)
      path += "abcdefghijklmnopqrstuvwxyz012345"[bits & 31];
    path += kSuffix;
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (fd || errno != EEXIST) return fd;
  }
}

}  // namespace

Status check_replaceable(int directory, const std::string& name, const std::string& path) {
  struct stat info {};
  if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return {};
  bool is_file = S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
  if (S_ISLNK(info.st_mode)) {
    // /dev/stdout leads into /proc, whatever the stream is.
    char target[6] = {};
    is_file = ::readlinkat(directory, name.c_str(), target, sizeof target) < 0 ||
              std::string_view(target, sizeof target) != "/proc/";
    if (is_file && ::fstatat(directory, name.c_str(), &info, 0) == 0)
      is_file = S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
  }
  return is_file ? Status() : Status(Code::kUnsupported, path + " is no file; use `-` for stdout");
}

bool is_temporary_name(std::string_view name) noexcept {
  return name.size() == kPrefix.size() + kRandomChars + kSuffix.size() &&
         name.starts_with(kPrefix) && name.ends_with(kSuffix);
}

Result<TemporaryFile> TemporaryFile::create(const std::string& directory, mode_t mode) {
  while (true) {
    std::string path;
    Fd fd = create_unique(directory, mode, path);
    if (!fd) return errno_status(errno, "create a temporary file in " + directory);
    // File systems without locks (ENOLCK, EOPNOTSUPP): go on; there nobody can lock it to remove it
    // either.
    static_cast<void>(::flock(fd.get(), LOCK_EX));
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return errno_status(errno, "stat " + path);
    // Someone who cleans up may have locked and removed it before we had our lock.
    if (info.st_nlink == 0) continue;
    return TemporaryFile(std::move(fd), std::move(path));
  }
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Status TemporaryFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_status(errno, "write " + path_);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status TemporaryFile::publish(const std::string& path, bool if_absent) {
  if (if_absent) {
    // link() is the portable way to take a name only when it is free.
    if (::link(path_.c_str(), path.c_str()) != 0) return errno_status(errno, "publish " + path);
    ::unlink(path_.c_str());
  } else {
    HEADRACE_TRY(check_replaceable(AT_FDCWD, path, path));
    if (::rename(path_.c_str(), path.c_str()) != 0) return errno_status(errno, "publish " + path);
  }
  path_.clear();
  return {};
}

void remove_stale_temporaries(const std::string& directory) noexcept {
  DIR* const entries = ::opendir(directory.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = ::readdir(entries)) {
    if (!is_temporary_name(entry->d_name)) continue;
    Fd fd(::openat(::dirfd(entries), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0)
      ::unlinkat(::dirfd(entries), entry->d_name, 0);
  }
  ::closedir(entries);
}

namespace {

Status write_whole(const std::string& path, std::string_view bytes, bool is_private) {
  const std::string directory = directory_of(path);
  remove_stale_temporaries(directory);
  HEADRACE_TRY_ASSIGN(TemporaryFile file, TemporaryFile::create(directory));
  if (is_private && ::fchmod(file.fd(), S_IRUSR | S_IWUSR) != 0)
    return errno_status(errno, "chmod " + path);
  HEADRACE_TRY(file.write(std::as_bytes(std::span(bytes))));
  return file.publish(path);
}

}  // namespace

Status atomic_write_file(const std::string& path, std::string_view bytes) {
  return write_whole(path, bytes, false);
}

Status atomic_write_private_file(const std::string& path, std::string_view bytes) {
  return write_whole(path, bytes, true);
}

void make_private_directories(const std::string& path) noexcept {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    ::mkdir(path.substr(0, end).c_str(), S_IRWXU);
    if (end == std::string::npos) return;
  }
}

}  // namespace headrace
