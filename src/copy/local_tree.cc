// A file appears under its name whole or not at all: it is written under another name in the same
// directory and renamed. Who writes a temporary file holds a lock on it, which the kernel drops
// with the process; so "nobody has locked it" means that its owner is dead, and it may be removed.
//
// Layout of a .part file: the bytes of the file to be, at their places; at the next multiple of 4
// KiB a page that says which copy this is; behind it, for each part, its CRC-32C and a mark that
// says that it is there. publish() cuts the file at its size, which takes page and records off.
//
// - A record is written after its part. A crash of the machine may keep one and lose the other, so
//   parts found are read and compared before they are believed.
// - The mark of a part depends on its number and is never 0: zeros, as fallocate() leaves them,
//   mean "not there".
#include "copy/local_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/errno_status.h"
#include "base/random.h"
#include "base/read_at.h"
#include "store/file/file_io.h"
#include "store/file/file_key.h"

namespace headrace::copy_detail {
namespace {

constexpr std::size_t kMostOpenDirectories = 128;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::string_view kMagic = "HRPART01";
constexpr std::string_view kPartialSuffix = ".part";
// Nobody comes back for what was left longer ago.
constexpr std::time_t kAbandonedSeconds = 7 * 24 * 3600;
// Piece in which parts of an earlier run are read again.
constexpr std::size_t kCheckBytes = 1 << 20;

std::string_view name_of(std::string_view key) { return key.substr(key.rfind('/') + 1); }

bool is_partial_name(std::string_view name) {
  return name.starts_with(file::kHiddenPrefix) && name.ends_with(kPartialSuffix);
}

/// Removes what dead runs left: temporary files, and parts that nobody came back for.
void remove_leftovers(const std::string& path) {
  DIR* const entries = ::opendir(path.c_str());
  if (entries == nullptr) return;
  const int directory = ::dirfd(entries);
  while (const dirent* entry = ::readdir(entries)) {
    const char* const name = entry->d_name;
    const bool is_partial = is_partial_name(name);
    if (!is_partial && !is_temporary_name(name)) continue;
    const Fd fd(::openat(directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    struct stat info {};
    if (is_partial && (::fstat(fd.get(), &info) != 0 ||
                       info.st_mtim.tv_sec > ::time(nullptr) - kAbandonedSeconds)) {
      continue;
    }
    ::unlinkat(directory, name, 0);
  }
  ::closedir(entries);
}

std::string make_temporary_name() {
  std::uint64_t bits = 0;
  if (::getentropy(&bits, sizeof bits) != 0) bits = static_cast<std::uint64_t>(::getpid());
  std::string name = ".headrace-";
  for (int i = 0; i < 10; ++i, bits >>= 5) name += "abcdefghijklmnopqrstuvwxyz012345"[bits & 31];
  return name + ".tmp";
}

std::string partial_name(std::string_view name) {
  std::uint64_t hash = name.size();
  for (const char c : name) hash = mix64(hash ^ static_cast<unsigned char>(c));
  std::string text = ".headrace-";
  for (int i = 0; i < 16; ++i, hash >>= 4) text += "0123456789abcdef"[hash & 15];
  return text.append(kPartialSuffix);
}

Status write_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset_bytes,
                std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_status(errno, "write " + std::string(what));
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset_bytes += static_cast<std::uint64_t>(count);
  }
  return {};
}

/// Of a temporary file: who removes it after a crash, or goes on with it, has to open it.
constexpr mode_t kOwnersMode = S_IRUSR | S_IWUSR;

/// Permissions of the file that will be replaced; nullopt when there is none.
std::optional<mode_t> mode_of(int directory, const std::string& name) {
  struct stat info {};
  if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(info.st_mode)) {
    return std::nullopt;
  }
  return info.st_mode & 0777;
}

/// Gives it the permissions of what it replaces, or takes those that its source does not have; as
/// far as the file system knows such. \pre whoever created it has left out the umask's
void set_mode(int fd, std::optional<mode_t> replaced, std::uint32_t mode) noexcept {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return;
  const mode_t now = info.st_mode & 0777;
  const mode_t wanted = replaced ? *replaced : now & mode;
  if (wanted != now) static_cast<void>(::fchmod(fd, wanted));
}

/// rename() to a name that must be free.
int rename_to_free(int directory, const std::string& from, const std::string& to) {
  const int result = ::renameat2(directory, from.c_str(), directory, to.c_str(), RENAME_NOREPLACE);
  // File systems that know no such flag.
  if (result == 0 || (errno != EINVAL && errno != ENOSYS)) return result;
  if (::linkat(directory, from.c_str(), directory, to.c_str(), 0) == 0)
    return ::unlinkat(directory, from.c_str(), 0);
  if (errno == EEXIST || errno == ENOENT) return -1;
  // Nor links.
  struct stat info {};
  if (::fstatat(directory, to.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    errno = EEXIST;
    return -1;
  }
  return ::renameat(directory, from.c_str(), directory, to.c_str());
}

/// Permissions, time and durability, then the name.
Status publish_file(const Directory& directory, int fd, const std::string& from,
                    std::string_view name, const PublishOptions& options, bool* is_lost) {
  // A string_view into a key that ends there is terminated only by chance.
  const std::string to(name);
  const auto path = [&] { return directory.path + "/" + to; };
  if (options.modified_unix_s != 0) {
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                               {.tv_sec = options.modified_unix_s, .tv_nsec = 0}};
    if (::futimens(fd, times) != 0) return errno_status(errno, "set the time of " + path());
  }
  set_mode(fd, mode_of(directory.fd.get(), to), options.mode);
  if (options.is_synced && ::fsync(fd) != 0) return errno_status(errno, "fsync " + path());
  HEADRACE_TRY(check_replaceable(directory.fd.get(), to, path()));
  const int result = options.if_absent ? rename_to_free(directory.fd.get(), from, to)
                                       : ::renameat(directory.fd.get(), from.c_str(),
                                                    directory.fd.get(), to.c_str());
  if (result == 0) {
    return options.is_synced ? file::sync_directory(directory.fd.get(), directory.path) : Status();
  }
  const int error = errno;
  if (error == ENOENT && is_lost != nullptr) *is_lost = true;
  if (error == EEXIST && options.if_absent)
    return Status(Code::kChanged, path() + ": the file exists");
  if (error == EISDIR || error == ENOTEMPTY || error == EEXIST) {
    return Status(Code::kUnsupported, "a directory is in the way of file " + path());
  }
  return errno_status(error, "publish " + path());
}

}  // namespace

Result<std::shared_ptr<const Directory>> LocalTree::directory_of(std::string_view key) {
  HEADRACE_TRY(file::check_key(key));
  const std::size_t slash = key.rfind('/');
  const std::string relative(key.substr(0, slash == std::string_view::npos ? 0 : slash));
  {
    MutexLock lock(mutex_);
    const auto it = open_.find(relative);
    if (it != open_.end()) return it->second;
  }
  std::string path = relative.empty() ? root_ : root_ + "/" + relative;
  HEADRACE_TRY(file::make_directories(path));
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd && errno == ENOTDIR)
    return Status(Code::kUnsupported, "a file is in the way of directory " + path);
  if (!fd) return errno_status(errno, "open directory " + path);
  remove_leftovers(path);
  std::shared_ptr<const Directory> directory(new Directory{std::move(path), std::move(fd)});
  MutexLock lock(mutex_);
  // Those in use stay open: their writers share them.
  if (open_.size() == kMostOpenDirectories) open_.clear();
  return open_.emplace(relative, std::move(directory)).first->second;
}

SmallFileWriter::SmallFileWriter(LocalTree& tree)
    : tree_(tree), temporary_name_(make_temporary_name()) {}

Status SmallFileWriter::write(std::string_view key, std::span<const std::byte> bytes,
                              const PublishOptions& options) {
  const std::string_view name = name_of(key);
  const std::string_view above = key.substr(0, key.size() - name.size());
  if (directory_ == nullptr || directory_key_ != above) {
    directory_ = nullptr;
    HEADRACE_TRY_ASSIGN(directory_, tree_.directory_of(key));
    directory_key_ = above;
  } else {
    HEADRACE_TRY(file::check_key(key));
  }
  // Another process may take the temporary file for a leftover between its creation and its lock.
  for (int i = 0;; ++i) {
    bool is_lost = false;
    Status status = write_once(name, bytes, options, is_lost);
    if (status.ok() || !is_lost || i == 3) return status;
  }
}

Status SmallFileWriter::write_once(std::string_view name, std::span<const std::byte> bytes,
                                   const PublishOptions& options, bool& is_lost) {
  const int directory = directory_->fd.get();
  const mode_t mode = mode_of(directory, std::string(name)).value_or(options.mode) | kOwnersMode;
  const Fd fd(
      ::openat(directory, temporary_name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  if (!fd) return errno_status(errno, "create a file in " + directory_->path);
  static_cast<void>(::flock(fd.get(), LOCK_EX | LOCK_NB));
  Status status = write_at(fd.get(), bytes, 0, name).annotate(directory_->path);
  if (status.ok()) {
    status = publish_file(*directory_, fd.get(), temporary_name_, name, options, &is_lost);
  }
  if (!status.ok()) ::unlinkat(directory, temporary_name_.c_str(), 0);
  return status;
}

PartialFile::PartialFile(std::shared_ptr<const Directory> directory, const Plan& plan)
    : directory_(std::move(directory)),
      plan_(plan),
      name_(name_of(plan.key)),
      temporary_name_(partial_name(name_)),
      is_there_((plan.size_bytes + plan.part_bytes - 1) / plan.part_bytes),
      is_resumable_(!plan.version.empty()) {}

PartialFile::~PartialFile() {
  // Relaxed: whoever destroys it has joined or heard from those who wrote.
  const bool is_kept =
      is_resumable_.load(std::memory_order_relaxed) && has_parts_.load(std::memory_order_relaxed);
  if (fd_ && !is_published_ && !is_kept)
    ::unlinkat(directory_->fd.get(), temporary_name_.c_str(), 0);
}

std::uint64_t PartialFile::length_of(std::size_t index) const noexcept {
  return std::min(plan_.part_bytes, plan_.size_bytes - index * plan_.part_bytes);
}

std::uint64_t PartialFile::state_offset() const noexcept {
  return (plan_.size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

/// Everything that makes the parts those of this copy, as one page.
std::string PartialFile::header() const {
  std::string text(kMagic);
  text += " " + std::to_string(plan_.size_bytes) + " " + std::to_string(plan_.part_bytes) + " " +
          plan_.version.substr(0, kPageBytes / 4) + " " + name_;
  text.resize(kPageBytes, '\0');
  return text;
}

Result<std::unique_ptr<PartialFile>> PartialFile::open(LocalTree& tree, const Plan& plan,
                                                       const std::stop_token& stop) {
  HEADRACE_TRY_ASSIGN(auto directory, tree.directory_of(plan.key));
  std::unique_ptr<PartialFile> file(new PartialFile(std::move(directory), plan));
  HEADRACE_TRY(file->open_file());
  std::string found(kPageBytes, '\0');
  const bool is_continued =
      file->is_resumable_ &&
      read_all_at(file->fd(), file->state_offset(), std::as_writable_bytes(std::span(found))) &&
      found == file->header();
  HEADRACE_TRY(is_continued ? file->load_parts(stop) : file->lay_out());
  return file;
}

Status PartialFile::open_file() {
  while (true) {
    const int directory = directory_->fd.get();
    const mode_t mode = mode_of(directory, name_).value_or(plan_.mode) | kOwnersMode;
    Fd fd(::openat(directory, temporary_name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                   mode));
    if (!fd) return errno_status(errno, "create " + path());
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      return Status(Code::kUnavailable, "another process is copying to " + path());
    struct stat ours {
    }, named{};
    if (::fstat(fd.get(), &ours) != 0) return errno_status(errno, "stat " + path());
    // Its last owner may have published or removed it between our open and our lock.
    if (::fstatat(directory, temporary_name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
        named.st_ino != ours.st_ino) {
      continue;
    }
    fd_ = std::move(fd);
    // Past the page cache where possible: a large copy must not push out what others need.
    direct_ = Fd(::openat(directory, temporary_name_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
    return {};
  }
}

Status PartialFile::write_bytes(std::span<const std::byte> bytes, std::uint64_t offset_bytes) {
  const bool is_aligned = offset_bytes % kPageBytes == 0 &&
                          reinterpret_cast<std::uintptr_t>(bytes.data()) % kPageBytes == 0;
  std::size_t done = 0;
  while (direct_ && is_aligned && bytes.size() - done >= kPageBytes) {
    const std::size_t whole = (bytes.size() - done) / kPageBytes * kPageBytes;
    const ssize_t count = ::pwrite(direct_.get(), bytes.data() + done, whole,
                                   static_cast<off_t>(offset_bytes + done));
    if (count < 0 && errno == EINTR) continue;
    // Refused, or cut in the middle of a page: the other way tells what is really wrong.
    if (count <= 0) break;
    done += static_cast<std::size_t>(count) / kPageBytes * kPageBytes;
    if (static_cast<std::size_t>(count) < kPageBytes) break;
  }
  return write_at(fd(), bytes.subspan(done), offset_bytes + done, path());
}

Status PartialFile::lay_out() {
  if (::ftruncate(fd(), 0) != 0) return errno_status(errno, "truncate " + path());
  const auto size = static_cast<off_t>(plan_.size_bytes);
  struct statfs system {};
  if (::fstatfs(fd(), &system) == 0 && system.f_type == TMPFS_MAGIC) {
    // Memory: to make room is to clear pages that are then written anyway.
    direct_ = Fd();
    const auto page = static_cast<std::uint64_t>(system.f_bsize);
    if (system.f_blocks > 0 && plan_.size_bytes / page > system.f_bavail)
      return errno_status(ENOSPC, "make room for " + path());
    if (::ftruncate(fd(), size) != 0) return errno_status(errno, "extend " + path());
    return write_header();
  }
  // Room for all of it now: a full disk is told before anything is moved, and extents are long.
  if (::fallocate(fd(), 0, 0, size) != 0) {
    if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)
      return errno_status(errno, "make room for " + path());
    if (::ftruncate(fd(), size) != 0) return errno_status(errno, "extend " + path());
  }
  return write_header();
}

Status PartialFile::write_header() {
  if (!is_resumable_) return {};
  const std::string state = header();
  return write_at(fd(), std::as_bytes(std::span(state)), state_offset(), path());
}

namespace {

struct PartRecord {
  std::uint32_t crc = 0;
  std::uint32_t mark = 0;
};

std::uint32_t mark_of(std::size_t index) noexcept {
  return static_cast<std::uint32_t>(mix64(index + 1)) | 1U;
}

}  // namespace

Status PartialFile::load_parts(const std::stop_token& stop) {
  std::vector<PartRecord> records(part_count());
  // A shorter read leaves zeros: those parts are not there.
  static_cast<void>(::pread(fd(), records.data(), records.size() * sizeof(PartRecord),
                            static_cast<off_t>(state_offset() + kPageBytes)));
  has_parts_ = true;  // stopped before it knows, it leaves what it found
  bool is_any_there = false;
  std::vector<std::byte> piece(kCheckBytes);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].mark != mark_of(i)) continue;
    std::uint32_t crc = 0;
    std::uint64_t done = 0;
    const std::uint64_t length = length_of(i);
    for (bool is_read = true; is_read && done < length;) {
      if (stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
      const auto bytes =
          std::span(piece).first(std::min<std::uint64_t>(kCheckBytes, length - done));
      is_read = read_all_at(fd(), i * plan_.part_bytes + done, bytes);
      if (!is_read) break;
      crc = crc32c(bytes, crc);
      done += bytes.size();
    }
    is_there_[i] = done == length && crc == records[i].crc;
    is_any_there |= is_there_[i];
  }
  has_parts_ = is_any_there;
  return {};
}

Status PartialFile::write_part(std::size_t index, std::span<const std::byte> bytes) {
  HEADRACE_TRY(write_bytes(bytes, index * plan_.part_bytes));
  // Relaxed: see the destructor.
  if (!is_resumable_.load(std::memory_order_relaxed)) return {};
  const PartRecord record{crc32c(bytes), mark_of(index)};
  HEADRACE_TRY(write_at(fd(), std::as_bytes(std::span(&record, 1)),
                        state_offset() + kPageBytes + index * sizeof(PartRecord), path()));
  has_parts_.store(true, std::memory_order_relaxed);
  return {};
}

Status PartialFile::publish(const PublishOptions& options) {
  if (::ftruncate(fd(), static_cast<off_t>(plan_.size_bytes)) != 0)
    return errno_status(errno, "truncate " + path());
  HEADRACE_TRY(publish_file(*directory_, fd(), temporary_name_, name_, options, nullptr));
  is_published_ = true;
  return {};
}

Status read_file(int fd, int direct, std::uint64_t offset_bytes, std::span<std::byte> bytes) {
  std::size_t done = 0;
  bool is_cached = direct >= 0, is_direct = direct >= 0;
  while (done < bytes.size()) {
    std::byte* const to = bytes.data() + done;
    const auto at = static_cast<off_t>(offset_bytes + done);
    const std::size_t left = bytes.size() - done;
    ssize_t count = 0;
    if (is_cached) {
      iovec piece{.iov_base = to, .iov_len = left};
      count = ::preadv2(fd, &piece, 1, at, RWF_NOWAIT);
      is_cached = false;  // whatever it took
      if (count <= 0) continue;
    } else if (is_direct) {
      const bool is_aligned = static_cast<std::uint64_t>(at) % kPageBytes == 0 &&
                              reinterpret_cast<std::uintptr_t>(to) % kPageBytes == 0;
      count = is_aligned && left >= kPageBytes
                  ? ::pread(direct, to, left / kPageBytes * kPageBytes, at)
                  : -1;
      if (count < static_cast<ssize_t>(kPageBytes)) is_direct = false;
      if (count < 0) continue;
    } else {
      count = ::pread(fd, to, left, at);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno_status(errno, "read");
      if (count == 0) return Status(Code::kChanged, "the file became shorter while it was read");
    }
    done += static_cast<std::size_t>(count);
  }
  return {};
}

}  // namespace headrace::copy_detail
