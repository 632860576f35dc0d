#pragma once
/// \file
/// std::mutex with the annotations that clang's -Wthread-safety needs (libstdc++'s own has none).
#include <condition_variable>
#include <mutex>

#include "headrace/clock.h"
#if defined(__clang__)
#define HEADRACE_TSA(x) __attribute__((x))
#else
#define HEADRACE_TSA(x)
#endif
#define HEADRACE_GUARDED_BY(m) HEADRACE_TSA(guarded_by(m))
#define HEADRACE_REQUIRES(...) HEADRACE_TSA(requires_capability(__VA_ARGS__))
#define HEADRACE_EXCLUDES(...) HEADRACE_TSA(locks_excluded(__VA_ARGS__))

namespace headrace {

class HEADRACE_TSA(capability("mutex")) Mutex {
 public:
  void lock() HEADRACE_TSA(acquire_capability()) { m_.lock(); }
  void unlock() HEADRACE_TSA(release_capability()) { m_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex m_;
};

class HEADRACE_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& m) HEADRACE_TSA(acquire_capability(m)) : lock_(m.m_) {}
  ~MutexLock() HEADRACE_TSA(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  /// Lets go in between. \pre Held; must be held again or never at the end of the scope.
  void unlock() HEADRACE_TSA(release_capability()) { lock_.unlock(); }
  void lock() HEADRACE_TSA(acquire_capability()) { lock_.lock(); }
  void wait(std::condition_variable& cv) { cv.wait(lock_); }
  /// Waits until notified or until `until`; false when the time passed. TimePoint::max() waits
  /// without limit (libstdc++ would overflow when it converts that value).
  bool wait_until(std::condition_variable& cv, TimePoint until) {
    if (until == TimePoint::max()) {
      cv.wait(lock_);
      return true;
    }
    return cv.wait_until(lock_, until) == std::cv_status::no_timeout;
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace headrace
