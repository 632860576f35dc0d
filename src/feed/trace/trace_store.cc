#include "feed/trace/trace_store.h"

namespace headrace::feed {

std::size_t TraceStore::submit(std::span<Request> requests) {
  MutexLock lock(mutex_);
  if (is_stopped_) return 0;
  for (Request& request : requests) {
    Completion done;
    done.tag = request.tag;
    done.slab = std::move(request.slab);
    if (request.op == Op::kGet) {
      done.length_bytes = request.length_bytes;
      MutexLock log(log_->mutex);
      log_->rank.reads.push_back({.object = log_->numbers.number(request.key, request.etag),
                                  .is_cached = !request.etag.empty(),
                                  .offset_bytes = request.offset_bytes,
                                  .length_bytes = request.length_bytes});
    } else if (request.op != Op::kHead) {
      done.status = Status(Code::kUnsupported, "a trace only reads");
    }
    ready_.push_back(std::move(done));
  }
  changed_.notify_all();
  return requests.size();
}

std::size_t TraceStore::wait(std::span<Completion> out, TimePoint until, std::stop_token stop) {
  const std::stop_callback on_stop(stop, [this] { wake(); });
  MutexLock lock(mutex_);
  while (ready_.empty()) {
    if (std::exchange(is_woken_, false) || is_stopped_ || stop.stop_requested()) return 0;
    if (until == TimePoint::max()) {
      lock.wait(changed_);
    } else {
      if (system_clock().now() >= until) return 0;
      lock.wait_until(changed_, until);
    }
  }
  std::size_t count = 0;
  for (; count < out.size() && !ready_.empty(); ++count) {
    out[count] = std::move(ready_.front());
    ready_.pop_front();
  }
  return count;
}

void TraceStore::wake() noexcept {
  MutexLock lock(mutex_);
  is_woken_ = true;
  changed_.notify_all();
}

void TraceStore::stop() noexcept {
  MutexLock lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

std::uint64_t TraceStore::read_count() const noexcept {
  MutexLock lock(log_->mutex);
  return log_->rank.reads.size();
}

void TraceStore::foresee(std::span<const ForeseenRead> reads, std::uint64_t since) {
  MutexLock lock(log_->mutex);
  ReadTrace::Plan plan{.since = since, .reads = {}};
  plan.reads.reserve(reads.size());
  for (const ForeseenRead& read : reads) {
    if (read.length_bytes == 0 || read.etag.empty()) continue;
    plan.reads.push_back({.object = log_->numbers.number(read.key, read.etag),
                          .offset_bytes = read.offset_bytes,
                          .length_bytes = read.length_bytes,
                          .first = read.first,
                          .second = read.second});
  }
  log_->rank.plans.push_back(std::move(plan));
  log_->told.notify_all();
}

}  // namespace headrace::feed
