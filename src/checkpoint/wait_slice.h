#pragma once
/// \file
/// Waiting in slices, between which the caller is asked whether to go on.
///
/// Threads: a function.
#include <condition_variable>

#include "base/mutex.h"
#include "headrace/clock.h"
#include "headrace/range_fetcher.h"

namespace headrace::checkpoint {

/// Lets kPauseSlice pass, or less when `changed` is notified; then calls `pause` without the lock.
/// \pre `lock` is held. It is afterwards, unless `pause` throws.
inline void wait_slice(MutexLock& lock, std::condition_variable& changed, const Pause& pause)
    HEADRACE_TSA(no_thread_safety_analysis) {
  lock.wait_until(changed, system_clock().now() + kPauseSlice);
  lock.unlock();
  if (pause) pause();
  lock.lock();
}

}  // namespace headrace::checkpoint
