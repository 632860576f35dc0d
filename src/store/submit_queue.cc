#include "store/submit_queue.h"

#include <thread>

namespace headrace {

std::size_t Outbox::flush(Store& handle) {
  if (requests_.empty()) return 0;
  const std::size_t count = handle.submit(requests_);
  requests_.erase(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

TimePoint Outbox::retry_at(TimePoint until) const {
  return requests_.empty() ? until : std::min(until, system_clock().now() + kRefusedPause);
}

Result<std::size_t> SubmitQueue::wait(std::span<Completion> out, TimePoint until,
                                      std::stop_token stop) {
  while (true) {
    flush();
    if (stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
    const bool is_refused = in_flight_ == 0 && !outbox_.is_empty();
    if (!is_refused) {
      refused_since_ = {};
    } else if (refused_since_ == TimePoint()) {
      refused_since_ = system_clock().now();
    } else if (system_clock().now() - refused_since_ >= refused_limit_) {
      return Status(Code::kExhausted, handle_.url() + ": takes no more requests");
    }
    const TimePoint slice = outbox_.retry_at(until);
    const std::size_t count = handle_.wait(out, slice, stop);
    in_flight_ -= count;
    if (count > 0) {
      flush();
      return count;
    }
    if (stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
    const TimePoint now = system_clock().now();
    if (now >= until) return std::size_t{0};
    if (now < slice) {
      // Somebody has called wake(); or the handle was stopped, which with nothing in flight does
      // not wait at all: the caller must not turn round and round.
      if (is_refused) std::this_thread::sleep_for(kRefusedPause);
      return std::size_t{0};
    }
  }
}

void SubmitQueue::drain() {
  static_cast<void>(take_back_all());
  Completion done[16];
  while (in_flight_ > 0) {
    const std::size_t count = handle_.wait(done, TimePoint::max());
    in_flight_ -= count;
    for (Completion& completion : std::span(done, count)) completion = Completion();
  }
}

Completion run_request(Store& handle, Request request, const std::stop_token& stop) {
  SubmitQueue queue(handle);
  queue.push(std::move(request));
  Completion done;
  while (true) {
    const auto count = queue.wait({&done, 1}, TimePoint::max(), stop);
    if (count && *count == 1) return done;
    if (count) continue;
    done.status = count.error().clone();
    return done;
  }
}

}  // namespace headrace
