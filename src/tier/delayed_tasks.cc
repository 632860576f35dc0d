#include "tier/delayed_tasks.h"

namespace headrace::tier {

DelayedTasks::~DelayedTasks() {
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DelayedTasks::add(TimePoint due, ThreadPool::Task task) {
  MutexLock lock(mutex_);
  later_.push({due, std::move(task)});
  changed_.notify_all();
}

void DelayedTasks::run() {
  MutexLock lock(mutex_);
  while (!is_ending_) {
    if (later_.empty()) {
      lock.wait(changed_);
      continue;
    }
    const TimePoint due = later_.top().due;
    if (system_clock().now() < due) {
      lock.wait_until(changed_, due);
      continue;
    }
    Later next = later_.top();
    later_.pop();
    if (!pool_.submit(next.task)) {
      next.due += std::chrono::milliseconds(1);
      later_.push(std::move(next));
    }
  }
}

}  // namespace headrace::tier
