#include "feed/finish/channel.h"

namespace headrace::feed {

void Channel::set_run(std::optional<Run> run, std::uint32_t capacity) {
  std::deque<Delivery> discarded;
  MutexLock lock(mutex_);
  discarded.swap(ready_);
  ++generation_;
  run_ = std::move(run);
  if (run_) run_->generation = generation_;
  capacity_ = capacity;
  is_full_ = false;
}

void Channel::set_capacity(std::uint32_t capacity) {
  MutexLock lock(mutex_);
  capacity_ = capacity;
  is_full_ = false;
}

void Channel::stop() {
  MutexLock lock(mutex_);
  is_stopped_ = true;
  filled_.notify_all();
}

bool Channel::is_stopped() {
  MutexLock lock(mutex_);
  return is_stopped_;
}

std::optional<Delivery> Channel::take(TimePoint until, const std::stop_token& stop,
                                      WaitInterval& waited, bool& must_wake) {
  const std::stop_callback on_stop(stop, [this] {
    MutexLock lock(mutex_);
    filled_.notify_all();
  });
  MutexLock lock(mutex_);
  must_wake = false;
  waited = {};
  if (ready_.empty()) waited.from = clock_.now();
  while (ready_.empty() && !is_stopped_ && !stop.stop_requested()) {
    is_awaited_ = true;
    if (!lock.wait_until(filled_, until) && ready_.empty()) break;
  }
  is_awaited_ = false;
  if (waited.from != TimePoint()) waited.until = clock_.now();
  if (ready_.empty() || is_stopped_) return std::nullopt;
  Delivery& front = ready_.front();
  if (!front.error.ok()) return Delivery{nullptr, front.error.clone(), front.timeline};
  Delivery delivery = std::move(front);
  ready_.pop_front();
  // Half empty, so that neither side is woken for every batch.
  if (is_full_ && ready_.size() <= capacity_ / 2) {
    is_full_ = false;
    must_wake = true;
  }
  return delivery;
}

std::optional<Run> Channel::new_run(std::uint64_t& generation, bool& has_changed) {
  MutexLock lock(mutex_);
  has_changed = generation != generation_;
  generation = generation_;
  return has_changed ? run_ : std::nullopt;
}

bool Channel::has_room(std::uint64_t generation, std::size_t coming) {
  MutexLock lock(mutex_);
  if (generation != generation_ || is_stopped_) return false;
  is_full_ = ready_.size() + coming >= capacity_;
  return !is_full_;
}

void Channel::put(Delivery delivery, std::uint64_t generation) {
  MutexLock lock(mutex_);
  if (generation != generation_) return;
  ready_.push_back(std::move(delivery));
  if (is_awaited_) filled_.notify_all();
}

bool Channel::is_full() const {
  MutexLock lock(mutex_);
  return is_full_ || ready_.size() >= capacity_;
}

bool Channel::is_empty() const {
  MutexLock lock(mutex_);
  return ready_.empty();
}

}  // namespace headrace::feed
