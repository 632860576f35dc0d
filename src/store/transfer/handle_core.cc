// Invariants:
// - An op is in free_, or linked from outstanding_first_ until its completion was taken. Its
//   memory stays in storage_ either way: reactors keep plain pointers to it.
// - submit_mutex_ guards the pool and the list of what is outstanding, done_mutex_ what has
//   finished. Where both are needed, submit_mutex_ comes first; wait() holds one at a time.
// - Between push() and deliver() an op is the reactor's. Others may read its tag and
//   set is_cancelled, which the reactor looks at when the letter comes.
// - Of each reactor there is at most one cancel letter in the mail, whatever the number of
//   cancels.
// - capacity counts what lies between submit() and wait(): a consumer that takes nothing gets no
//   more accepted, and done_ cannot grow without end.
#include "store/transfer/handle_core.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "store/transfer/reactor.h"

namespace headrace::transfer {

HandleCore::HandleCore(std::span<const std::unique_ptr<Reactor>> reactors,
                       const StoreOptions& options)
    : reactors_(reactors),
      options_(options),
      clock_(*options.clock),
      outboxes_(reactors.size()),
      cancel_letters_(std::make_unique<CancelLetter[]>(reactors.size())) {
  for (std::size_t i = 0; i < reactors.size(); ++i) cancel_letters_[i].handle = this;
}

TransferOp* HandleCore::allocate() {
  if (free_.empty()) return &storage_.emplace_back();
  TransferOp* op = free_.front();
  free_.remove(*op);
  return op;
}

void HandleCore::accept(TransferOp& op, TimePoint now, TimePoint deadline) {
  op.handle = this;
  op.deadline = deadline == TimePoint::max() ? now + options_.default_timeout : deadline;
  op.submitted = now;
  op.state = OpState::kMailed;
  op.handle_previous = nullptr;
  op.handle_next = outstanding_first_;
  if (outstanding_first_ != nullptr) outstanding_first_->handle_previous = &op;
  outstanding_first_ = &op;
  ++outstanding_count_;
}

std::size_t HandleCore::submit(std::span<Request> requests) {
  if (requests.empty()) return 0;
  TimePoint earliest = TimePoint::max();
  std::size_t count = 0;
  {
    MutexLock lock(submit_mutex_);
    if (is_stopped_) return 0;
    const std::size_t capacity = std::size_t{options_.queue_capacity} + options_.max_in_flight;
    count = std::min(requests.size(), capacity - std::min(capacity, outstanding_count_));
    const TimePoint now = clock_.now();
    for (Request& request : requests.first(count)) {
      TransferOp* op = allocate();
      op->request = std::move(request);
      op->needs_fresh_connection = op->request.fresh_connection;
      accept(*op, now, op->request.deadline);
      earliest = std::min(earliest, op->deadline);
      // Inside the lock, so that a cancel() that finds the op sends its letter after it.
      reactors_[next_reactor_]->push(*op);
      next_reactor_ = next_reactor_ + 1 < reactors_.size() ? next_reactor_ + 1 : 0;
    }
  }
  if (count > 0) {
    for (std::size_t i = 0; i < std::min(count, reactors_.size()); ++i) {
      // With fewer requests than reactors some are rung for nothing, which is harmless.
      if (count >= reactors_.size()) reactors_[i]->ring(earliest);
    }
    if (count < reactors_.size()) {
      for (const auto& reactor : reactors_) reactor->ring(earliest);
    }
  }
  return count;
}

bool HandleCore::submit_call(const HttpCall& call, HttpAnswer& answer, TimePoint deadline) {
  MutexLock lock(submit_mutex_);
  if (is_stopped_) return false;
  TransferOp* op = allocate();
  op->request = Request{};
  op->call = &call;
  op->answer = &answer;
  op->needs_fresh_connection = call.fresh_connection;
  accept(*op, clock_.now(), deadline);
  Reactor& reactor = *reactors_[next_reactor_];
  next_reactor_ = next_reactor_ + 1 < reactors_.size() ? next_reactor_ + 1 : 0;
  reactor.push(*op);
  // It may go at once also where transfers take all the room, and nothing else wakes the reactor.
  reactor.ring(TimePoint::min());
  return true;
}

void HandleCore::take(TransferOp& op, Completion& out) {
  out.tag = op.request.tag;
  out.status = std::move(op.status);
  out.slab = std::move(op.request.slab);
  out.length_bytes = out.status.ok() ? op.length_bytes : 0;
  out.object_size_bytes = op.object_size_bytes;
  out.etag = std::move(op.etag);
  out.checksum = std::move(op.checksum);
  out.object_checksum = op.object_checksum;
  out.details = std::move(op.details);
  out.was_held_off = op.was_held_off;
  out.attempts = op.attempts;
  out.submitted = op.submitted;
  out.sent = op.sent;
  out.first_byte = op.first_byte;
  out.finished = op.finished;
}

std::size_t HandleCore::wait(std::span<Completion> out, TimePoint until, std::stop_token stop) {
  if (out.empty()) return 0;
  // Before the lock: its destructor and an immediate call both may run the function.
  const std::stop_callback on_stop(stop, [this] {
    MutexLock lock(done_mutex_);
    done_changed_.notify_all();
  });
  OpQueue taken;
  std::size_t count = 0;
  {
    MutexLock lock(done_mutex_);
    bool is_in_time = true;
    while (done_.empty() && !is_woken_ && is_in_time && !stop.stop_requested()) {
      is_waiting_ = true;
      is_in_time = lock.wait_until(done_changed_, until);
    }
    is_waiting_ = false;
    is_woken_ = false;
    for (; count < out.size() && !done_.empty(); ++count) {
      TransferOp& op = *done_.front();
      done_.remove(op);
      taken.push_back(op);
    }
  }
  std::size_t index = 0;
  // Without a lock: what was taken belongs to this thread until release().
  for (TransferOp* op = taken.front(); op != nullptr; op = op->queue_next) take(*op, out[index++]);
  if (count > 0) release(taken);
  return count;
}

void HandleCore::release(OpQueue& ops) {
  MutexLock lock(submit_mutex_);
  for (TransferOp* op = ops.front(); op != nullptr; op = op->queue_next) {
    (op->handle_previous != nullptr ? op->handle_previous->handle_next : outstanding_first_) =
        op->handle_next;
    if (op->handle_next != nullptr) op->handle_next->handle_previous = op->handle_previous;
    --outstanding_count_;
    op->call = nullptr;
    op->answer = nullptr;
    op->attempts = 0;
    op->was_sent = op->is_told_unreached = false;
    op->needs_fresh_connection = false;
    op->is_counted = false;
    op->was_held_off = false;
    op->has_lost_answer = false;
    op->sent = op->first_byte = TimePoint{};
    op->length_bytes = op->object_size_bytes = 0;
    op->last_failure = Status();
    op->etag.clear();
    op->checksum.clear();
    op->object_checksum = {};
    op->details.reset();
    op->is_cancelled.store(false, std::memory_order_relaxed);
  }
  free_.splice_back(ops);
}

void HandleCore::wake() noexcept {
  MutexLock lock(done_mutex_);
  is_woken_ = true;
  done_changed_.notify_all();
}

void HandleCore::send_cancel_letters() {
  for (std::size_t i = 0; i < reactors_.size(); ++i) {
    // A letter that is still unread will find the flags that were set before this.
    if (cancel_letters_[i].is_queued.exchange(true)) continue;
    {
      MutexLock lock(done_mutex_);
      ++letters_under_way_;
    }
    reactors_[i]->push(cancel_letters_[i]);
    reactors_[i]->ring(TimePoint::min());
  }
}

void HandleCore::acknowledge(CancelLetter&) {
  MutexLock lock(done_mutex_);
  --letters_under_way_;
  done_changed_.notify_all();
}

void HandleCore::cancel(std::uint64_t tag) {
  MutexLock lock(submit_mutex_);
  bool has_found = false;
  for (TransferOp* op = outstanding_first_; op != nullptr; op = op->handle_next) {
    if (op->request.tag != tag) continue;
    op->is_cancelled.store(true, std::memory_order_relaxed);
    has_found = true;
  }
  if (has_found) send_cancel_letters();
}

void HandleCore::stop() noexcept {
  MutexLock lock(submit_mutex_);
  if (std::exchange(is_stopped_, true)) return;
  for (TransferOp* op = outstanding_first_; op != nullptr; op = op->handle_next) {
    op->is_cancelled.store(true, std::memory_order_relaxed);
  }
  if (outstanding_first_ != nullptr) send_cancel_letters();
}

void HandleCore::retire() {
  stop();
  std::vector<Completion> dropped(64);
  for (;;) {
    {
      MutexLock lock(submit_mutex_);
      if (outstanding_count_ == 0) break;
    }
    const std::size_t count = wait(dropped, TimePoint::max(), {});
    for (std::size_t i = 0; i < count; ++i) dropped[i] = Completion{};
  }
  {
    MutexLock lock(done_mutex_);
    // A letter points to this core; before the next handle gets it, the last one must have been
    // read.
    while (letters_under_way_ > 0) lock.wait(done_changed_);
    is_woken_ = false;
  }
  MutexLock lock(submit_mutex_);
  is_stopped_ = false;
}

void HandleCore::deliver(OpQueue& ops) {
  bool has_waiter = false;
  {
    MutexLock lock(done_mutex_);
    done_.splice_back(ops);
    has_waiter = std::exchange(is_waiting_, false);  // one signal per sleep
  }
  if (has_waiter) done_changed_.notify_all();
}

}  // namespace headrace::transfer
