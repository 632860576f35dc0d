// The registry is locked while the process forks, so that the child finds it whole. The child,
// which has one thread, only calls what may be called there (open, dup2, close); numbers of files
// stay taken, since objects of the parent may still close them.
#include "tier/file_locks.h"

#include <pthread.h>

#include <mutex>
#include <set>

namespace headrace::tier {
namespace {

struct Registry {
  // Not of base/mutex.h: what locks it here unlocks it in another function, or process.
  std::mutex mutex;
  std::set<int> files;
};

Registry& registry();

void before_fork() { registry().mutex.lock(); }
void in_parent() { registry().mutex.unlock(); }
void in_child() {
  Registry& all = registry();
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (const int file : all.files) {
    if (nothing < 0) {
      ::close(file);
    } else {
      ::dup3(nothing, file, O_CLOEXEC);
    }
  }
  if (nothing >= 0) ::close(nothing);
  all.mutex.unlock();
}

/// Of the process; never destroyed, since threads may outlive static destructors.
Registry& registry() {
  static Registry* const all = [] {
    pthread_atfork(before_fork, in_parent, in_child);
    return new Registry;
  }();
  return *all;
}

}  // namespace

UnforkedFd::UnforkedFd(Fd fd) : fd_(std::move(fd)) {
  if (!fd_) return;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.files.insert(fd_.get());
}

UnforkedFd::~UnforkedFd() {
  if (!fd_) return;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.files.erase(fd_.get());
  fd_ = Fd();  // Under the lock: the next to be opened may have this number.
}

}  // namespace headrace::tier
