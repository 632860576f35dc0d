#include "store/completion_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {

std::size_t CompletionQueue::accept(std::size_t wanted) {
  MutexLock lock(mutex_);
  if (is_closed_) return 0;
  const std::size_t accepted = std::min(wanted, capacity_ - outstanding_);
  outstanding_ += accepted;
  return accepted;
}

void CompletionQueue::push(Completion&& completion) {
  // Notified under the lock: once the consumer has the completion it may destroy the queue.
  MutexLock lock(mutex_);
  HEADRACE_DCHECK(incoming_.size() < outstanding_);
  incoming_.push_back(std::move(completion));
  if (is_sleeping_) changed_.notify_one();
}

std::size_t CompletionQueue::take(std::span<Completion> out) {
  const std::size_t count = std::min(out.size(), ready_.size() - ready_first_);
  for (std::size_t i = 0; i < count; ++i) out[i] = std::move(ready_[ready_first_ + i]);
  ready_first_ += count;
  if (ready_first_ == ready_.size()) {
    ready_.clear();
    ready_first_ = 0;
  }
  return count;
}

CompletionQueue::Outcome CompletionQueue::sleep(TimePoint until, const std::stop_token& stop) {
  MutexLock lock(mutex_);
  bool in_time = true;
  while (true) {
    if (!incoming_.empty()) {
      std::swap(incoming_, ready_);
      is_woken_ = false;
      return Outcome::kReady;
    }
    if (std::exchange(is_woken_, false))
      return stop.stop_requested() ? Outcome::kStopped : Outcome::kWoken;
    if (stop.stop_requested() || (is_closed_ && outstanding_ == 0)) return Outcome::kStopped;
    if (!in_time) return Outcome::kTimedOut;
    is_sleeping_ = true;
    in_time = lock.wait_until(changed_, until);
    is_sleeping_ = false;
  }
}

std::size_t CompletionQueue::wait(std::span<Completion> out, TimePoint until, std::stop_token stop,
                                  Outcome* outcome) {
  Outcome why = Outcome::kReady;
  if (ready_.empty()) {
    if (stop.stop_possible()) {
      const std::stop_callback waker(stop, [this] { wake(); });
      why = sleep(until, stop);
    } else {
      why = sleep(until, stop);
    }
  }
  const std::size_t count = take(out);
  if (count > 0) {
    MutexLock lock(mutex_);
    outstanding_ -= count;
    is_woken_ = false;
  }
  if (outcome != nullptr) *outcome = why;
  return count;
}

void CompletionQueue::wake() noexcept {
  MutexLock lock(mutex_);
  is_woken_ = true;
  if (is_sleeping_) changed_.notify_one();
}

void CompletionQueue::close() noexcept {
  MutexLock lock(mutex_);
  is_closed_ = true;
  if (is_sleeping_) changed_.notify_one();
}

std::size_t CompletionQueue::outstanding() noexcept {
  MutexLock lock(mutex_);
  return outstanding_;
}

}  // namespace headrace
