// A library to preload (LD_PRELOAD): see disk_faults.h. It stands between a process and the C
// library's calls that take files; each of them asks whether it is to fail, then goes on by
// syscall(2) or to the C library's own.
#include "cache/disk_faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

using headrace::DiskFaults;

DiskFaults* control() {
  static DiskFaults* const mapped = [] {
    const char* const path = std::getenv("HEADRACE_FAULT_CONTROL");
    const int file =
        path == nullptr
            ? -1
            : static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0));
    void* const memory =
        file < 0 ? MAP_FAILED
                 : ::mmap(nullptr, sizeof(DiskFaults), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) ::syscall(SYS_close, file);
    static DiskFaults none{};
    return memory == MAP_FAILED ? &none : static_cast<DiskFaults*>(memory);
  }();
  return mapped;
}

/// Whether a descriptor is of something below the directory.
bool is_below_root(int file) {
  static const char* const root = std::getenv("HEADRACE_FAULT_ROOT");
  if (root == nullptr || file < 0) return false;
  char link[32];
  char path[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const long size = ::syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof(path));
  const std::size_t wanted = std::strlen(root);
  return size >= static_cast<long>(wanted) && std::memcmp(path, root, wanted) == 0;
}

/// True in `share` of 1,000 calls, with errno set.
bool fails(const std::atomic<std::uint32_t>& share, int error) {
  thread_local std::uint64_t state =
      static_cast<std::uint64_t>(::syscall(SYS_gettid)) * 0x9e3779b97f4a7c15ULL;
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  if ((state >> 33) % 1000 >= share.load(std::memory_order_relaxed)) return false;
  control()->given_count.fetch_add(1, std::memory_order_relaxed);
  errno = error;
  return true;
}

bool read_fails(int file) {
  const DiskFaults& faults = *control();
  return is_below_root(file) && fails(faults.read_eio, EIO);
}
/// `takes_room`: on a full disk it fails, as making files does and deleting them does not.
bool change_fails(int file, bool takes_room) {
  const DiskFaults& faults = *control();
  if (!is_below_root(file)) return false;
  if (faults.is_read_only.load() != 0) {
    control()->given_count.fetch_add(1, std::memory_order_relaxed);
    errno = EROFS;
    return true;
  }
  return (takes_room && fails(faults.no_space, ENOSPC)) || fails(faults.write_eio, EIO);
}
bool is_short(int file) { return is_below_root(file) && fails(control()->short_count, 0); }

template <class Function>
Function next_of(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

long vector_call(long number, int file, const iovec* parts, int count, off_t offset) {
  if (count > 0 && parts[0].iov_len > 1 && is_short(file)) {
    iovec first = parts[0];
    first.iov_len /= 2;
    return ::syscall(number, file, &first, 1, offset, 0L, 0);
  }
  return ::syscall(number, file, parts, count, offset, 0L, 0);
}

}  // namespace

extern "C" {

ssize_t pread(int file, void* out, size_t size, off_t offset) {
  if (read_fails(file)) return -1;
  if (size > 1 && is_short(file)) size /= 2;
  return ::syscall(SYS_pread64, file, out, size, offset);
}
ssize_t preadv(int file, const iovec* parts, int count, off_t offset) {
  if (read_fails(file)) return -1;
  return vector_call(SYS_preadv, file, parts, count, offset);
}
ssize_t preadv2(int file, const iovec* parts, int count, off_t offset, int flags) {
  if (read_fails(file)) return -1;
  return ::syscall(SYS_preadv2, file, parts, count, offset, 0L, flags);
}
ssize_t pwrite(int file, const void* from, size_t size, off_t offset) {
  if (change_fails(file, true)) return -1;
  if (size > 1 && is_short(file)) size /= 2;
  return ::syscall(SYS_pwrite64, file, from, size, offset);
}
ssize_t write(int file, const void* from, size_t size) {
  if (change_fails(file, true)) return -1;
  return ::syscall(SYS_write, file, from, size);
}
ssize_t writev(int file, const iovec* parts, int count) {
  if (change_fails(file, true)) return -1;
  if (count > 0 && parts[0].iov_len > 1 && is_short(file))
    return ::syscall(SYS_write, file, parts[0].iov_base, parts[0].iov_len / 2);
  return ::syscall(SYS_writev, file, parts, count);
}
ssize_t pwritev(int file, const iovec* parts, int count, off_t offset) {
  if (change_fails(file, true)) return -1;
  return vector_call(SYS_pwritev, file, parts, count, offset);
}
int ftruncate(int file, off_t size) noexcept {
  if (change_fails(file, false)) return -1;
  return static_cast<int>(::syscall(SYS_ftruncate, file, size));
}
int posix_fallocate(int file, off_t offset, off_t size) {
  if (change_fails(file, true)) return errno;
  return ::syscall(SYS_fallocate, file, 0, offset, size) == 0 ? 0 : errno;
}
int fallocate(int file, int mode, off_t offset, off_t size) {
  if (change_fails(file, true)) return -1;
  return static_cast<int>(::syscall(SYS_fallocate, file, mode, offset, size));
}

int openat(int directory, const char* path, int flags, ...) {
  mode_t mode = 0;
  const bool is_unnamed = (flags & O_TMPFILE) == O_TMPFILE;
  if ((flags & O_CREAT) != 0 || is_unnamed) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (is_unnamed && control()->no_tmpfile.load() != 0 && is_below_root(directory)) {
    errno = EOPNOTSUPP;
    return -1;
  }
  if ((flags & O_ACCMODE) == O_RDONLY ? read_fails(directory) : change_fails(directory, mode != 0))
    return -1;
  return static_cast<int>(::syscall(SYS_openat, directory, path, flags, mode));
}
int mkdirat(int directory, const char* path, mode_t mode) noexcept {
  if (change_fails(directory, true)) return -1;
  return static_cast<int>(::syscall(SYS_mkdirat, directory, path, mode));
}
int linkat(int from, const char* path, int directory, const char* name, int flags) noexcept {
  if (control()->no_links.load() != 0 && is_below_root(directory)) {
    control()->given_count.fetch_add(1, std::memory_order_relaxed);
    errno = EPERM;
    return -1;
  }
  if (change_fails(directory, true)) return -1;
  return static_cast<int>(::syscall(SYS_linkat, from, path, directory, name, flags));
}
int renameat(int from, const char* path, int directory, const char* name) noexcept {
  if (change_fails(directory, true)) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, from, path, directory, name, 0));
}
int unlinkat(int directory, const char* path, int flags) noexcept {
  if (change_fails(directory, false)) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, directory, path, flags));
}
int fstatat(int directory, const char* path, struct stat* out, int flags) noexcept {
  if (read_fails(directory)) return -1;
  return static_cast<int>(::syscall(SYS_newfstatat, directory, path, out, flags));
}
dirent* readdir(DIR* directory) {
  static const auto next = next_of<dirent* (*)(DIR*)>("readdir");
  if (read_fails(::dirfd(directory))) return nullptr;
  return next(directory);
}
/// Times that the kernel sets go wrong with the clock, too.
int utimensat(int directory, const char* path, const timespec times[2], int flags) noexcept {
  if (change_fails(directory, false)) return -1;
  timespec wrong[2] = {times[0], times[1]};
  for (timespec& time : wrong) {
    if (time.tv_nsec == UTIME_NOW && control()->clock_offset_s.load() != 0)
      ::clock_gettime(CLOCK_REALTIME, &time);
  }
  return static_cast<int>(::syscall(SYS_utimensat, directory, path, wrong, flags));
}
int futimens(int file, const timespec times[2]) noexcept {
  return utimensat(file, nullptr, times, 0);
}

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  static const auto next = next_of<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int status = next(clock, out);
  if (clock == CLOCK_REALTIME) out->tv_sec += control()->clock_offset_s.load();
  return status;
}
time_t time(time_t* out) noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
