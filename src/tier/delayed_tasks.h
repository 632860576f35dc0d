#pragma once
/// \file
/// Tasks of a thread pool that are to run at some time.
///
/// Threads: any.
#include <condition_variable>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "headrace/clock.h"

namespace headrace::tier {

class DelayedTasks {
 public:
  /// `pool` outlives it.
  explicit DelayedTasks(ThreadPool& pool) : pool_(pool), thread_([this] { run(); }) {}
  /// What is not due yet is never run.
  ~DelayedTasks();
  DelayedTasks(const DelayedTasks&) = delete;
  DelayedTasks& operator=(const DelayedTasks&) = delete;

  /// Runs `task` in the pool at `due` of system_clock(), or as soon as that takes it.
  void add(TimePoint due, ThreadPool::Task task);

 private:
  struct Later {
    TimePoint due;
    ThreadPool::Task task;
    bool operator<(const Later& o) const noexcept { return due > o.due; }  // The first on top.
  };
  void run();

  ThreadPool& pool_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::priority_queue<Later> later_ HEADRACE_GUARDED_BY(mutex_);
  bool is_ending_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace headrace::tier
