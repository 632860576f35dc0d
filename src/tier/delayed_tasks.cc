#include "tier/delayed_tasks.h"

#include <algorithm>
#include <utility>

namespace headrace::tier {

DelayedTasks::~DelayedTasks() {
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DelayedTasks::add(TimePoint due, const void* name, ThreadPool::Task task) {
  MutexLock lock(mutex_);
  later_.emplace(due, Later{name, std::move(task)});
  changed_.notify_all();
}

void DelayedTasks::hurry(const void* name) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(later_.begin(), later_.end(),
                                  [&](const auto& later) { return later.second.name == name; });
  if (found == later_.end()) return;
  auto node = later_.extract(found);
  node.key() = system_clock().now();
  later_.insert(std::move(node));
  changed_.notify_all();
}

void DelayedTasks::run() {
  MutexLock lock(mutex_);
  while (!is_ending_) {
    if (later_.empty()) {
      lock.wait(changed_);
      continue;
    }
    const auto next = later_.begin();
    const TimePoint now = system_clock().now();
    if (now < next->first) {
      lock.wait_until(changed_, next->first);
    } else if (pool_.submit(next->second.task)) {
      later_.erase(next);
    } else {
      auto node = later_.extract(next);
      node.key() = now + std::chrono::milliseconds(1);
      later_.insert(std::move(node));
    }
  }
}

}  // namespace headrace::tier
