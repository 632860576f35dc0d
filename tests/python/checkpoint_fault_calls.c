/* Preloaded by checkpoint_fault_worker.py: faults of a disk, at the nth call that changes a file.
 *
 * fault_arm(directory, kind, at) begins to count the calls that change a file below the directory;
 * fault_count() tells how many there were; with faults of data, of those that write data. Call
 * number `at`, from 0 on, meets the fault; with kFull and kEio all from it on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kNone, kKill, kFull, kEio, kEioOnce, kShort, kDropped, kFlipped };

static char directory[4096];
static atomic_int armed, count, kind;
static int at_call;

void fault_arm(const char* below, int what, int at) {
  snprintf(directory, sizeof directory, "%s", below);
  at_call = at;
  atomic_store(&count, 0);
  atomic_store(&kind, what);
  atomic_store(&armed, 1);
}

int fault_count(void) { return atomic_load(&count); }

static int is_below(int fd) {
  char name[64], path[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(name, path, sizeof path - 1);
  return length > 0 && (path[length] = 0, strncmp(path, directory, strlen(directory)) == 0);
}

/* What happens to this call: kNone, or a fault that the caller acts out. */
static int meet(int writes_data) {
  const int what = atomic_load(&kind);
  if (!writes_data && (what == kFull || what >= kShort)) return kNone;
  const int number = atomic_fetch_add(&count, 1);
  const int is_here = number == at_call, is_since = at_call >= 0 && number >= at_call;
  if (what == kKill && is_here) kill(getpid(), SIGKILL);
  if (what == kEioOnce) return is_here ? kEio : kNone;
  return (what == kFull || what == kEio ? is_since : is_here) ? what : kNone;
}

static int fail(int what) {
  errno = what == kFull ? ENOSPC : EIO;
  return -1;
}

static int meet_fd(int fd, int writes_data) {
  return atomic_load(&armed) && is_below(fd) ? meet(writes_data) : kNone;
}

static int meet_path(const char* path) {
  return atomic_load(&armed) && strncmp(path, directory, strlen(directory)) == 0 ? meet(0) : kNone;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* The bytes with one bit of them flipped, where O_DIRECT takes them; the caller frees them. */
static void* flipped(const void* bytes, size_t length) {
  char* copy = NULL;
  if (posix_memalign((void**)&copy, 4096, length + 1) != 0) abort();
  memcpy(copy, bytes, length);
  if (length > 0) copy[length / 2] ^= 1;
  return copy;
}

static size_t part_of(size_t length) {
  return length > 8192 ? length / 2 / 4096 * 4096 : (length + 1) / 2;
}

ssize_t pwrite64(int fd, const void* bytes, size_t length, off64_t offset) {
  const int what = meet_fd(fd, 1);
  if (what == kFull || what == kEio) return fail(what);
  if (what == kDropped) return (ssize_t)length;
  if (what == kShort) length = part_of(length);
  if (what != kFlipped) return REAL(pwrite64)(fd, bytes, length, offset);
  void* other = flipped(bytes, length);
  const ssize_t done = REAL(pwrite64)(fd, other, length, offset);
  free(other);
  return done;
}

ssize_t pwrite(int fd, const void* bytes, size_t length, off_t offset) {
  return pwrite64(fd, bytes, length, offset);
}

ssize_t write(int fd, const void* bytes, size_t length) {
  const int what = meet_fd(fd, 1);
  if (what == kFull || what == kEio) return fail(what);
  if (what == kDropped) {
    lseek(fd, (off_t)length, SEEK_CUR);
    return (ssize_t)length;
  }
  if (what == kShort) length = part_of(length);
  if (what != kFlipped) return REAL(write)(fd, bytes, length);
  void* other = flipped(bytes, length);
  const ssize_t done = REAL(write)(fd, other, length);
  free(other);
  return done;
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  const int what = meet_fd(fd, 1);
  if (what == kFull || what == kEio) return fail(what);
  return REAL(fallocate64)(fd, mode, offset, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  return fallocate64(fd, mode, offset, length);
}

int ftruncate64(int fd, off64_t length) {
  const int what = meet_fd(fd, 0);
  return what == kEio ? fail(what) : REAL(ftruncate64)(fd, length);
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fsync(int fd) {
  const int what = meet_fd(fd, 0);
  return what == kEio ? fail(what) : REAL(fsync)(fd);
}

int fdatasync(int fd) {
  const int what = meet_fd(fd, 0);
  return what == kEio ? fail(what) : REAL(fdatasync)(fd);
}

int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) {
  const int what = meet_path(to);
  return what == kEio ? fail(what) : REAL(linkat)(from_directory, from, to_directory, to, flags);
}

int rename(const char* from, const char* to) {
  const int what = meet_path(to);
  return what == kEio ? fail(what) : REAL(rename)(from, to);
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) {
  const int what = meet_path(to);
  return what == kEio ? fail(what) : REAL(renameat)(from_directory, from, to_directory, to);
}

int unlink(const char* path) {
  const int what = meet_path(path);
  return what == kEio ? fail(what) : REAL(unlink)(path);
}

int mkdir(const char* path, mode_t mode) {
  const int what = meet_path(path);
  return what == kEio ? fail(what) : REAL(mkdir)(path, mode);
}
