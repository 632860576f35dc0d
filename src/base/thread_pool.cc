#include "base/thread_pool.h"

#include <system_error>
#include <utility>

#include "base/check.h"

namespace headrace {

ThreadPool::ThreadPool(std::size_t thread_count, std::size_t queue_capacity)
    : ring_(queue_capacity) {
  HEADRACE_CHECK(thread_count > 0 && queue_capacity > 0);
  threads_.reserve(thread_count);
  for (std::size_t i = 0; i < thread_count; ++i) {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
      break;  // A limit of the system: those that there are do the work.
    }
  }
}

std::unique_ptr<ThreadPool> ThreadPool::try_create(std::size_t thread_count,
                                                   std::size_t queue_capacity) {
  try {
    return std::make_unique<ThreadPool>(thread_count, queue_capacity);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool ThreadPool::submit(Task& task) {
  MutexLock lock(mutex_);
  if (count_ == ring_.size()) return false;
  ring_[(first_ + count_) % ring_.size()] = std::move(task);
  ++count_;
  // Under the lock: behind it the task may have run, and whoever waited for it destroyed the pool.
  if (idle_ > 0) work_.notify_one();
  return true;
}

void ThreadPool::run() {
  while (true) {
    Task task;
    {
      MutexLock lock(mutex_);
      ++idle_;
      while (count_ == 0 && !is_ending_) lock.wait(work_);
      --idle_;
      if (count_ == 0) return;
      task = std::exchange(ring_[first_], nullptr);
      first_ = (first_ + 1) % ring_.size();
      --count_;
    }
    task();
  }
}

}  // namespace headrace
