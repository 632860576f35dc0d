// What is measured, and what is not: the first answer to each slab only warms up (connections,
// TLS, the engine's limit), and the clock starts when the last of them is in. Bytes are counted
// until the time is over; times of what is then still under way are kept, since dropping the
// slowest would make the tail look better than it is.
//
// Places are drawn at random from the seed, whole parts apart, so that caches along the way help
// little and two runs read the same.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "headrace/probe.h"
#include "insight/histogram.h"
#include "store/submit_queue.h"

namespace headrace {
namespace {

std::uint64_t microseconds(TimePoint from, TimePoint to) {
  const auto time = std::chrono::duration_cast<std::chrono::microseconds>(to - from).count();
  return time > 0 ? static_cast<std::uint64_t>(time) : 0;
}

class Probe {
 public:
  Probe(Store& handle, SlabPool& pool, std::span<const ObjectInfo> objects,
        const FetchProbeOptions& options)
      : queue_(handle), pool_(pool), options_(options), random_(options.seed) {
    for (const ObjectInfo& object : objects) {
      if (object.size_bytes > 0) objects_.push_back(&object);
    }
  }

  Result<FetchProbeResult> run(std::stop_token stop) {
    if (objects_.empty())
      return Status(Code::kInvalidArgument, "nothing to read: no object has bytes");
    // Fewer when the memory holds fewer: the caller sees it in the numbers, and cannot hang.
    for (std::uint32_t i = 0; i < options_.in_flight; ++i) {
      auto slab = pool_.try_acquire(options_.part_bytes);
      if (!slab && slabs_.empty()) return std::move(slab).error().annotate("probe");
      if (!slab) break;
      slabs_.push_back(*std::move(slab));
    }
    warming_ = slabs_.size();
    result_ = std::make_unique<FetchProbeResult>();
    for (Slab& slab : slabs_) queue(std::move(slab));
    while (queue_.pending() > 0) {
      std::array<Completion, 64> done;
      const auto count = queue_.wait(done, TimePoint::max(), stop);
      if (!count) return Status(count.error().clone()).annotate("probe");
      for (std::size_t i = 0; i < *count; ++i) take(std::move(done[i]));
    }
    return summary();
  }

 private:
  void queue(Slab slab) {
    const ObjectInfo& object = *objects_[random_.below(objects_.size())];
    const std::uint64_t parts = (object.size_bytes - 1) / options_.part_bytes + 1;
    Request request;
    request.key = object.key;
    request.offset_bytes = random_.below(parts) * options_.part_bytes;
    request.length_bytes = std::min(options_.part_bytes, object.size_bytes - request.offset_bytes);
    request.slab = std::move(slab);
    queue_.push(std::move(request));
  }

  void take(Completion completion) {
    const TimePoint now = completion.finished;
    if (warming_ > 0) {
      if (--warming_ == 0) begin_ = now;
    } else {
      record(completion);
    }
    const bool is_over =
        warming_ == 0 && (now - begin_ >= options_.duration ||
                          (options_.max_bytes > 0 && result_->bytes >= options_.max_bytes));
    is_over_ = is_over_ || is_over;
    if (!is_over_) queue(std::move(completion.slab));
  }

  void record(const Completion& completion) {
    result_->requests += 1;
    result_->extra_attempts += completion.attempts > 0 ? completion.attempts - 1 : 0;
    if (!completion.status.ok()) {
      if (result_->failures++ == 0) result_->first_failure = completion.status.clone();
      return;
    }
    // What ends after the time is up would count bytes without their time.
    if (!is_over_) result_->bytes += completion.length_bytes;
    first_byte_.record(microseconds(completion.sent, completion.first_byte));
    request_.record(microseconds(completion.submitted, completion.finished));
    if (!is_over_) counted_until_ = completion.finished;
  }

  Result<FetchProbeResult> summary() {
    if (result_->requests > 0 && result_->failures == result_->requests)
      return std::move(result_->first_failure);
    result_->seconds = static_cast<double>(microseconds(begin_, counted_until_)) / 1e6;
    result_->first_byte_p50_us = first_byte_.percentile(0.5);
    result_->first_byte_p90_us = first_byte_.percentile(0.9);
    result_->first_byte_p99_us = first_byte_.percentile(0.99);
    result_->first_byte_p999_us = first_byte_.percentile(0.999);
    result_->request_p50_us = request_.percentile(0.5);
    result_->request_p99_us = request_.percentile(0.99);
    result_->request_p999_us = request_.percentile(0.999);
    return std::move(*result_);
  }

  SubmitQueue queue_;
  SlabPool& pool_;
  const FetchProbeOptions& options_;
  Random random_;
  std::vector<const ObjectInfo*> objects_;
  std::vector<Slab> slabs_;
  std::size_t warming_ = 0;
  bool is_over_ = false;
  TimePoint begin_{}, counted_until_{};
  std::unique_ptr<FetchProbeResult> result_;
  Histogram first_byte_, request_;
};

}  // namespace

Result<FetchProbeResult> probe_fetch(Store& store, SlabPool& pool,
                                     std::span<const ObjectInfo> objects,
                                     const FetchProbeOptions& options, std::stop_token stop) {
  if (options.part_bytes == 0 || options.in_flight == 0)
    return Status(Code::kInvalidArgument, "probe: part_bytes and in_flight must be at least 1");
  HEADRACE_TRY_ASSIGN(const auto handle, store.new_handle());
  auto probe = std::make_unique<Probe>(*handle, pool, objects, options);
  return probe->run(std::move(stop));
}

}  // namespace headrace
