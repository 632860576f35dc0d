// One thread (pump) has the handle: it takes parts from the inbox, hands them to the store and
// takes their completions, whose slabs go back to the pool at once.
//
// Invariants:
// - After the first failure nothing more is sent; what comes in is dropped, so that whoever waits
//   for memory gets it and then sees the failure.
// - The upload is completed only when each part has an ETag; who began it aborts it in the
//   destructor unless it was completed. The requests point to key_ and upload_id_, which outlive
//   the pump.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/start_thread.h"
#include "checkpoint/part_sink.h"
#include "checkpoint/wait_slice.h"
#include "store/clean_up_options.h"
#include "store/submit_queue.h"
#include "store/upload_parts.h"

namespace headrace::checkpoint {
namespace {

class UploadSink final : public PartSink {
 public:
  UploadSink(std::shared_ptr<StoreClient> client, SinkOptions options)
      : client_(std::move(client)), options_(std::move(options)), parts_(options_.part_count) {}

  Status start() {
    HEADRACE_TRY_ASSIGN(handle_, client_->store().new_handle());
    if (!options_.joins.empty()) {
      upload_id_ = options_.joins;
    } else if (is_multipart()) {
      HEADRACE_TRY_ASSIGN(
          upload_id_, client_->store().create_upload(options_.key, {.stop = client_->closing()}));
    }
    if (start_thread(pump_, [this] { run(); })) return {};
    return Status(Code::kExhausted, options_.key + ": no thread can be started");
  }

  ~UploadSink() override {
    {
      MutexLock lock(mutex_);
      is_ending_ = true;
      if (!is_finished_ && failure_.ok()) failure_ = Status(Code::kCancelled, "was given up");
    }
    changed_.notify_all();
    if (handle_) handle_->stop();
    if (pump_.joinable()) pump_.join();
    if (!is_finished_ && options_.joins.empty() && !upload_id_.empty())
      static_cast<void>(
          client_->store().abort_upload(options_.key, upload_id_, clean_up_options()));
  }

  void put(std::uint32_t index, Slab slab, std::uint64_t length_bytes) override {
    {
      MutexLock lock(mutex_);
      if (!failure_.ok()) return;
      inbox_.push_back({index, std::move(slab), length_bytes});
      ++put_;
    }
    changed_.notify_all();
    handle_->wake();
  }

  std::uint32_t pending() const override {
    MutexLock lock(mutex_);
    return put_ - arrived_;
  }

  Status failure() const override {
    MutexLock lock(mutex_);
    return failure_.clone();
  }

  std::string token() const override { return upload_id_; }

  Result<std::vector<UploadedPart>> settle(std::uint32_t count, const Pause& pause) override {
    {
      MutexLock lock(mutex_);
      while (arrived_ < count && failure_.ok()) wait_slice(lock, changed_, pause);
      HEADRACE_TRY(failure_.clone());
    }
    return parts_;
  }

  Result<std::string> publish(std::span<const UploadedPart> parts) override {
    std::string etag = parts.front().etag;
    if (is_multipart()) {
      HEADRACE_TRY_ASSIGN(ObjectInfo info,
                          client_->store().complete_upload(options_.key, upload_id_, parts,
                                                           {.stop = client_->closing()}));
      etag = std::move(info.etag);
    }
    is_finished_ = true;
    return etag;
  }

 private:
  struct Incoming {
    std::uint32_t index;
    Slab slab;
    std::uint64_t length_bytes;
  };

  bool is_multipart() const noexcept { return options_.part_count > 1; }

  void run() {
    SubmitQueue queue(*handle_);
    std::array<Completion, 8> done;
    while (take_in(queue)) {
      const auto count = queue.wait(done, TimePoint::max(), client_->closing());
      if (!count) {
        fail(count.error().clone());
        break;
      }
      for (std::size_t i = 0; i < *count; ++i) take_out(done[i]);
    }
    static_cast<void>(queue.take_back_all());
    handle_->stop();
    queue.drain();
  }

  /// Queues what came in; waits while there is nothing to do. False: it is over.
  bool take_in(SubmitQueue& queue) {
    MutexLock lock(mutex_);
    while (inbox_.empty() && queue.pending() == 0 && !is_ending_ && failure_.ok())
      lock.wait(changed_);
    if (is_ending_ || !failure_.ok()) return false;
    while (!inbox_.empty() && queue.pending() < options_.parts_in_flight) {
      queue.push(request_for(std::move(inbox_.front())));
      inbox_.erase(inbox_.begin());
    }
    lock.unlock();
    queue.flush();
    return true;
  }

  Request request_for(Incoming part) const {
    Request request;
    request.op = is_multipart() ? Op::kPutPart : Op::kPut;
    request.key = options_.key;
    request.upload_id = upload_id_;
    request.part_number = is_multipart() ? part.index + 1 : 0;
    request.length_bytes = part.length_bytes;
    request.slab = std::move(part.slab);
    request.tag = part.index;
    return request;
  }

  void take_out(Completion& done) {
    if (!done.status.ok()) {
      fail(std::move(done.status));
    } else {
      const auto number = static_cast<std::uint32_t>(done.tag + 1);
      parts_[done.tag] = arrived_part(number, done.length_bytes, done);
    }
    done.slab = Slab();
    {
      MutexLock lock(mutex_);
      ++arrived_;
    }
    changed_.notify_all();
  }

  void fail(Status status) {
    std::vector<Incoming> dying;
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = std::move(status);
    dying.swap(inbox_);
    changed_.notify_all();
  }

  const std::shared_ptr<StoreClient> client_;
  const SinkOptions options_;
  std::unique_ptr<Store> handle_;
  std::string upload_id_;
  std::vector<UploadedPart> parts_;  ///< By index; the pump's until all have arrived.
  bool is_finished_ = false;         ///< The owner's.

  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::vector<Incoming> inbox_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t put_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint32_t arrived_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool is_ending_ HEADRACE_GUARDED_BY(mutex_) = false;
  Status failure_ HEADRACE_GUARDED_BY(mutex_);
  std::thread pump_;
};

}  // namespace

Result<std::unique_ptr<PartSink>> make_upload_sink(std::shared_ptr<StoreClient> client,
                                                   SinkOptions options) {
  auto sink = std::make_unique<UploadSink>(std::move(client), std::move(options));
  HEADRACE_TRY(sink->start());
  return std::unique_ptr<PartSink>(std::move(sink));
}

}  // namespace headrace::checkpoint
