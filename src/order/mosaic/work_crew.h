#pragma once
/// \file
/// A few threads that work off small tasks while the caller makes them. Which thread runs a task,
/// and when, changes no result: tasks write disjoint places.
///
/// Place: src/order/mosaic. post() from any thread; finish() from the owner.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/start_thread.h"

namespace headrace::mosaic {

class WorkCrew {
 public:
  using Task = std::function<void()>;
  /// `threads` counts the caller: 1 starts none, and tasks run in finish() or help().
  explicit WorkCrew(std::uint32_t threads) {
    if (threads > 1) start_threads(helpers_, threads - 1, [this] { run(); });
  }
  WorkCrew(const WorkCrew&) = delete;
  WorkCrew& operator=(const WorkCrew&) = delete;
  ~WorkCrew() { finish(); }

  void post(Task task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }
  /// Runs waiting tasks on the caller's thread until at most `limit` wait.
  void help(std::size_t limit) {
    std::unique_lock lock(mutex_);
    while (tasks_.size() > limit) run_one(lock);
  }
  /// Works until every task, also those that tasks post, is done; ends the threads.
  void finish() {
    {
      std::unique_lock lock(mutex_);
      while (!tasks_.empty() || running_ != 0) {
        if (tasks_.empty()) {
          wake_.wait(lock);
        } else {
          run_one(lock);
        }
      }
      is_over_ = true;
    }
    wake_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
    helpers_.clear();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return is_over_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      run_one(lock);
    }
  }
  void run_one(std::unique_lock<std::mutex>& lock) {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    ++running_;
    lock.unlock();
    task();
    task = nullptr;  // frees what it held before it counts as done
    lock.lock();
    if (--running_ == 0) wake_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  std::size_t running_ = 0;
  bool is_over_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace headrace::mosaic
