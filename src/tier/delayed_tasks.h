#pragma once
/// \file
/// Tasks of a thread pool that are to run at some time.
///
/// Threads: any.
#include <condition_variable>
#include <map>
#include <thread>

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

  /// Runs `task` in the pool at `due` of system_clock(), or as soon as that takes it. `name`: for
  /// hurry(); one task at a time has it.
  void add(TimePoint due, const void* name, ThreadPool::Task task);
  /// The task of this name is due now. Nothing where there is none.
  void hurry(const void* name);

 private:
  struct Later {
    const void* name = nullptr;
    ThreadPool::Task task;
  };
  void run();

  ThreadPool& pool_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::multimap<TimePoint, Later> later_ HEADRACE_GUARDED_BY(mutex_);
  bool is_ending_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace headrace::tier
