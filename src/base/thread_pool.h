#pragma once
/// \file
/// A fixed number of threads and one bounded queue, for CPU work. The library's only pool type.
///
/// Threads: submit() from any thread, also from a task.
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace headrace {

class ThreadPool {
 public:
  /// A callable of at most two words that is trivially copyable (a lambda with a pointer and an
  /// index) costs no allocation.
  using Task = std::function<void()>;

  /// Starts `thread_count` (> 0) threads, or as many as the system allows; at most `queue_capacity`
  /// (> 0) tasks wait. Throws std::system_error where there can be none.
  ThreadPool(std::size_t thread_count, std::size_t queue_capacity);
  /// As the constructor; nullptr where there can be none.
  static std::unique_ptr<ThreadPool> try_create(std::size_t thread_count,
                                                std::size_t queue_capacity);
  /// Finishes every task that was accepted, then joins.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Takes the task, or returns false and leaves it alone when the queue is full. Never blocks.
  /// Tasks must not throw. Whoever knows that all tasks have run may destroy the pool, also while
  /// the thread that submitted the last one is still about to return from here.
  bool submit(Task& task) HEADRACE_EXCLUDES(mutex_);
  bool submit(Task&& task) { return submit(task); }

  std::size_t thread_count() const noexcept { return threads_.size(); }

 private:
  void run() HEADRACE_EXCLUDES(mutex_);

  Mutex mutex_;
  std::condition_variable work_;
  std::vector<Task> ring_ HEADRACE_GUARDED_BY(mutex_);
  std::size_t first_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t idle_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool is_ending_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace headrace
