// One lock for all handles: an op changes lists by splice(), so the lock is held for a few
// pointers, and the op's memory never moves while it is queued or running.
//
// Invariants:
// - An op is in exactly one list of its handle: free_, queued_, running_. Only queued ops are
//   taken away by cancel, stop and deadlines; running ones are asked to end, through is_cancelled
//   and the deadline that the backend looks at between pieces.
// - A handle is in ready_ exactly while it has queued ops (else its node lies in turn_), so a
//   worker that finds ready_ not empty finds work. Handles are served in turn, one op each.
// - queue_.push() comes once an op, whatever ended it.
// - Workers start when there is more work than workers that sleep, and stay. One is started at the
//   beginning, so a process that gets no more threads is slow, not stuck.
//
// wait() looks after deadlines of queued ops itself: no timer thread is needed, as nobody else can
// take the completion.
#include "store/local_store.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "base/start_thread.h"
#include "insight/counter.h"
#include "insight/histogram.h"
#include "store/completion_queue.h"
#include "store/effective_settings.h"

namespace headrace {
namespace {

struct Counters {
  Counter requests, failures, cancellations, received_bytes, sent_bytes;
  Histogram request_us;
};

/// One accepted request. Lives in one of its handle's lists.
struct Pending {
  Request request;
  TimePoint submitted{};
  TimePoint deadline{};
  std::atomic<bool> is_cancelled{false};
};

class Handle;

/// What the handles share: the backend and its workers.
class Core {
 public:
  Core(std::unique_ptr<LocalBackend> backend, const LocalStoreOptions& options)
      : backend_(std::move(backend)),
        options_(options),
        clock_(options.clock ? *options.clock : system_clock()) {}
  ~Core();

  LocalBackend& backend() noexcept { return *backend_; }
  const LocalStoreOptions& options() const noexcept { return options_; }
  const Clock& clock() const noexcept { return clock_; }
  Counters& counters() noexcept { return counters_; }
  /// False when the system refuses a thread.
  bool start_worker() HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return add_worker();
  }
  TimePoint deadline_of(TimePoint asked, TimePoint now) const noexcept {
    return asked == TimePoint::max() ? now + options_.default_timeout : asked;
  }

 private:
  friend class Handle;
  bool add_worker() HEADRACE_REQUIRES(mutex_);
  /// Wakes or starts workers for newly queued ops.
  void call_workers(std::size_t new_count) HEADRACE_REQUIRES(mutex_);
  /// Body of a worker. Unchecked: the analysis cannot see that a handle's `core_->mutex_` is our
  /// `mutex_`.
  void serve() HEADRACE_TSA(no_thread_safety_analysis);

  const std::unique_ptr<LocalBackend> backend_;
  const LocalStoreOptions options_;
  const Clock& clock_;
  Counters counters_;

  Mutex mutex_;  // also guards the op lists of all handles
  std::condition_variable work_;
  std::condition_variable idle_;
  std::list<Handle*> ready_ HEADRACE_GUARDED_BY(mutex_);  // handles with queued ops, served in turn
  std::size_t queued_count_ HEADRACE_GUARDED_BY(mutex_) = 0;  // ops in all of them
  std::size_t sleeping_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t started_count_ HEADRACE_GUARDED_BY(mutex_) =
      0;  // workers that have not looked for work yet
  bool is_ending_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> workers_ HEADRACE_GUARDED_BY(mutex_);
};

class Handle final : public Store {
 public:
  explicit Handle(std::shared_ptr<Core> core)
      : owner_(std::move(core)), core_(owner_.get()), queue_(core_->options().accept_limit) {
    turn_.push_back(this);
  }
  ~Handle() override {
    stop();
    MutexLock lock(core_->mutex_);
    while (!running_.empty()) lock.wait(core_->idle_);
  }

  std::size_t submit(std::span<Request> requests) override {
    const std::size_t count = queue_.accept(requests.size());
    const TimePoint now = core_->clock().now();
    if (core_->options().worker_limit == 0) {
      for (Request& request : requests.first(count)) {
        Pending op;
        op.submitted = now;
        op.deadline = core_->deadline_of(request.deadline, now);
        op.request = std::move(request);
        run(op);
      }
      return count;
    }
    MutexLock lock(core_->mutex_);
    for (Request& request : requests.first(count)) enqueue(std::move(request), now);
    if (count > 0 && !turn_.empty()) core_->ready_.splice(core_->ready_.end(), turn_);
    core_->call_workers(count);
    return count;
  }

  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    while (true) {
      const TimePoint next_check = expire();
      auto outcome = CompletionQueue::Outcome::kReady;
      const std::size_t count = queue_.wait(out, std::min(until, next_check), stop, &outcome);
      if (count > 0 || outcome != CompletionQueue::Outcome::kTimedOut || next_check >= until)
        return count;
    }
  }

  void wake() noexcept override { queue_.wake(); }

  void cancel(std::uint64_t tag) override {
    end_ops([tag](const Pending& op) { return op.request.tag == tag; });
  }

  void stop() noexcept override {
    queue_.close();
    end_ops([](const Pending&) { return true; });
  }

  Result<std::unique_ptr<Store>> new_handle() override {
    return std::unique_ptr<Store>(std::make_unique<Handle>(owner_));
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    return guarded<ObjectInfo>("HEAD", key, call, [&](const Interrupt&) -> Result<ObjectInfo> {
      HEADRACE_TRY(check_version_id(call.version_id));
      return core_->backend().head(key);
    });
  }
  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    return guarded<ListPage>(
        "LIST", request.prefix, call, [&](const Interrupt& interrupt) -> Result<ListPage> {
          if (request.page_size < 1 || request.page_size > 1000) {
            return Status(Code::kInvalidArgument, "page_size is not in 1 .. 1000");
          }
          return core_->backend().list(request, interrupt);
        });
  }
  Status remove(const std::string& key, const CallOptions& call) override {
    return guarded_status("DELETE", key, call, [&]() -> Status {
      HEADRACE_TRY(check_version_id(call.version_id));
      return core_->backend().remove(key);
    });
  }
  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call) override {
    return guarded<ObjectInfo>(
        "COPY", from_key, call, [&](const Interrupt& interrupt) -> Result<ObjectInfo> {
          HEADRACE_TRY(check_version_id(call.version_id));
          ObjectSettings room;
          HEADRACE_TRY_ASSIGN(const ObjectSettings* const settings,
                              settings_of_write(call.settings, room));
          return core_->backend().copy(from_key, to_key, *settings, interrupt);
        });
  }
  Result<std::string> create_upload(const std::string& key, const CallOptions& call) override {
    return guarded<std::string>("CREATE UPLOAD", key, call,
                                [&](const Interrupt&) -> Result<std::string> {
                                  ObjectSettings room;
                                  HEADRACE_TRY_ASSIGN(const ObjectSettings* const settings,
                                                      settings_of_write(call.settings, room));
                                  return core_->backend().create_upload(key, *settings);
                                });
  }
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override {
    return guarded<ObjectInfo>(
        "COMPLETE UPLOAD", key, call, [&](const Interrupt& interrupt) -> Result<ObjectInfo> {
          HEADRACE_TRY(check_part_list(parts));
          return core_->backend().complete_upload(key, upload_id, parts, interrupt);
        });
  }
  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override {
    return guarded_status("ABORT UPLOAD", key, call,
                          [&] { return core_->backend().abort_upload(key, upload_id); });
  }

  const std::string& url() const noexcept override { return core_->options().url; }
  const ObjectSettings& settings() const noexcept override { return core_->options().settings; }
  Status check_settings(const ObjectSettings& settings) const override {
    return core_->options().keeps_settings ? headrace::check_settings(settings)
                                           : Store::check_settings(settings);
  }
  const StoreTraits& traits() const noexcept override {
    static constexpr StoreTraits kTraits{.is_local = true};
    return kTraits;
  }
  std::string local_directory() const override { return core_->options().local_directory; }
  std::string origin() const override { return core_->options().origin; }
  void append_metrics(MetricList& out) const override {
    const Counters& counters = core_->counters();
    append_counter(out, "store.requests", "requests", counters.requests.value());
    append_counter(out, "store.failures", "requests", counters.failures.value());
    append_counter(out, "store.cancellations", "requests", counters.cancellations.value());
    append_counter(out, "store.received_bytes", "bytes", counters.received_bytes.value());
    append_counter(out, "store.sent_bytes", "bytes", counters.sent_bytes.value());
    counters.request_us.append_to(out, "store.request", "us");
  }

 private:
  friend class Core;

  // --- queueing ---

  void enqueue(Request&& request, TimePoint now) HEADRACE_REQUIRES(core_->mutex_) {
    if (free_.empty()) free_.emplace_back();
    Pending& op = free_.front();
    op.submitted = now;
    op.deadline = core_->deadline_of(request.deadline, now);
    op.is_cancelled.store(false, std::memory_order_relaxed);
    op.request = std::move(request);
    first_deadline_ = std::min(first_deadline_, op.deadline);
    queued_.splice(queued_.end(), free_, free_.begin());
    ++core_->queued_count_;
  }

  /// Marks the running ops that match and completes the queued ones.
  template <class Matches>
  void end_ops(Matches matches) {
    std::list<Pending> ended;
    {
      MutexLock lock(core_->mutex_);
      for (Pending& op : running_) {
        if (matches(op)) op.is_cancelled.store(true, std::memory_order_relaxed);
      }
      take_queued(matches, ended);
    }
    complete_unrun(ended, Code::kCancelled, "cancelled before it began");
  }

  template <class Matches>
  void take_queued(Matches matches, std::list<Pending>& out) HEADRACE_REQUIRES(core_->mutex_) {
    for (auto it = queued_.begin(); it != queued_.end();) {
      const auto here = it++;
      if (!matches(*here)) continue;
      out.splice(out.end(), queued_, here);
      --core_->queued_count_;
    }
    // A handle without queued ops gives its turn back, so that workers find work behind every
    // entry.
    if (queued_.empty() && turn_.empty()) {
      turn_.splice(turn_.end(), core_->ready_,
                   std::find(core_->ready_.begin(), core_->ready_.end(), this));
    }
  }

  /// Completes queued ops whose deadline passed, and returns when (by the steady clock) to look
  /// again.
  TimePoint expire() {
    if (core_->options().worker_limit == 0) return TimePoint::max();
    const TimePoint now = core_->clock().now();
    std::list<Pending> expired;
    TimePoint next = TimePoint::max();
    {
      MutexLock lock(core_->mutex_);
      if (first_deadline_ <= now) {
        take_queued([now](const Pending& op) { return op.deadline <= now; }, expired);
        first_deadline_ = TimePoint::max();
        for (const Pending& op : queued_) first_deadline_ = std::min(first_deadline_, op.deadline);
      }
      if (queued_.empty()) first_deadline_ = TimePoint::max();
      next = first_deadline_;
    }
    complete_unrun(expired, Code::kDeadline, "deadline passed before it began");
    if (next == TimePoint::max()) return next;
    return system_clock().now() + (next - now);  // the store's clock may be another one
  }

  void complete_unrun(std::list<Pending>& ops, Code code, const char* why) {
    for (Pending& op : ops) complete(op, Status(code, why), {}, TimePoint{});
    MutexLock lock(core_->mutex_);
    free_.splice(free_.end(), ops);
  }

  // --- running ---

  void run(Pending& op) {
    const Interrupt interrupt(core_->clock(), op.deadline, {}, &op.is_cancelled);
    Transferred moved;
    const TimePoint started = core_->clock().now();
    Status status = check_request(op.request);
    if (status.ok()) status = interrupt.check();
    if (status.ok()) status = transfer(op.request, interrupt, moved);
    complete(op, std::move(status), std::move(moved), started);
  }

  Status transfer(Request& request, const Interrupt& interrupt, Transferred& moved) {
    HEADRACE_TRY(check_version_id(request.version_id));
    ObjectSettings room;
    if (request.op == Op::kPut) {
      HEADRACE_TRY_ASSIGN(request.settings, settings_of_write(request.settings, room));
    }
    const std::span<std::byte> slab = request.slab.bytes();
    const std::span<std::byte> bytes =
        slab.empty() ? slab : slab.subspan(request.slab_offset_bytes, request.length_bytes);
    switch (request.op) {
      case Op::kGet:
        return core_->backend().get(request, bytes, interrupt, moved);
      case Op::kPut:
        return core_->backend().put(request, bytes, interrupt, moved);
      case Op::kPutPart:
        return core_->backend().put_part(request, bytes, interrupt, moved);
      case Op::kHead:
        break;
    }
    return Status(Code::kUnsupported, "files and memory have no sums that could be asked for");
  }

  static Status check_version_id(std::string_view version_id) {
    if (version_id.empty()) return {};
    return Status(Code::kUnsupported, "this kind of store has no versions of objects");
  }

  /// Those of the store, and over them `given`: in the store, in `given` or in `room`.
  Result<const ObjectSettings*> settings_of_write(const ObjectSettings* given,
                                                  ObjectSettings& room) const {
    const ObjectSettings& settings = effective_settings(core_->options().settings, given, room);
    HEADRACE_TRY(check_settings(settings));
    return &settings;
  }

  /// `started` zero: the request never ran.
  void complete(Pending& op, Status status, Transferred moved, TimePoint started) {
    Request& request = op.request;
    Completion completion;
    completion.finished = core_->clock().now();
    completion.submitted = op.submitted;
    completion.sent = started;
    completion.attempts = started == TimePoint{} ? 0 : 1;
    const auto took = std::chrono::duration_cast<Microseconds>(completion.finished - op.submitted);
    count(request.op, status, moved.length_bytes, took);
    if (status.ok()) {
      // Nothing tells when the first byte of a local read came; all time before the end counts as
      // waiting for it.
      completion.first_byte = completion.finished;
      completion.length_bytes = moved.length_bytes;
      completion.object_size_bytes = moved.object_size_bytes;
      completion.details = std::move(moved.details);
      if (request.op != Op::kGet || request.etag.empty()) completion.etag = std::move(moved.etag);
    } else {
      completion.status = Status(
          status.code(), describe_request(url(), request) + ": " + std::string(status.message()) +
                             ", attempt " + std::to_string(completion.attempts) + " of 1, " +
                             std::to_string(took.count() / 1000) + " ms");
    }
    completion.tag = request.tag;
    completion.slab = std::move(request.slab);
    queue_.push(std::move(completion));
  }

  void count(Op op, const Status& status, std::uint64_t length_bytes, Microseconds took) {
    Counters& counters = core_->counters();
    counters.requests.add();
    if (status.ok()) {
      (op == Op::kGet ? counters.received_bytes : counters.sent_bytes).add(length_bytes);
      counters.request_us.record(
          static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0)));
    } else {
      (status.code() == Code::kCancelled ? counters.cancellations : counters.failures).add();
    }
  }

  std::string describe_call(const char* what, const std::string& key) const {
    return std::string(what) + " " + object_url(key);
  }
  template <class T, class Call>
  Result<T> guarded(const char* what, const std::string& key, const CallOptions& call, Call body) {
    const Interrupt interrupt(core_->clock(),
                              core_->deadline_of(call.deadline, core_->clock().now()), call.stop);
    Status before = interrupt.check();
    if (!before.ok()) return std::move(before).annotate(describe_call(what, key));
    Result<T> result = body(interrupt);
    if (!result) return std::move(result).error().annotate(describe_call(what, key));
    return result;
  }
  template <class Call>
  Status guarded_status(const char* what, const std::string& key, const CallOptions& call,
                        Call body) {
    auto result = guarded<bool>(what, key, call, [&](const Interrupt&) -> Result<bool> {
      HEADRACE_TRY(body());
      return true;
    });
    return result ? Status() : std::move(result).error();
  }

  const std::shared_ptr<Core> owner_;
  Core* const core_;  // the same; the thread-safety analysis follows plain pointers only
  CompletionQueue queue_;
  std::list<Pending> free_ HEADRACE_GUARDED_BY(core_->mutex_);
  std::list<Pending> queued_ HEADRACE_GUARDED_BY(core_->mutex_);
  std::list<Pending> running_ HEADRACE_GUARDED_BY(core_->mutex_);
  std::list<Handle*> turn_ HEADRACE_GUARDED_BY(core_->mutex_);  // {this} while not in core_->ready_
  TimePoint first_deadline_ HEADRACE_GUARDED_BY(core_->mutex_) =
      TimePoint::max();  // of queued_, or earlier
};

Core::~Core() {
  std::vector<std::thread> workers;
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
    workers.swap(workers_);
  }
  work_.notify_all();
  for (std::thread& worker : workers) worker.join();
}

bool Core::add_worker() {
  std::thread worker;
  if (!start_thread(worker, [this] { serve(); })) return false;
  workers_.push_back(std::move(worker));
  ++started_count_;
  return true;
}

void Core::call_workers(std::size_t new_count) {
  // Against all that is queued: a worker that was called but has not come yet still counts as
  // sleeping.
  while (workers_.size() < options_.worker_limit &&
         sleeping_count_ + started_count_ < queued_count_) {
    if (!add_worker()) break;  // those there are will serve it
  }
  if (sleeping_count_ > 0) {
    if (new_count == 1) {
      work_.notify_one();
    } else if (new_count > 1) {
      work_.notify_all();
    }
  }
}

void Core::serve() {
  MutexLock lock(mutex_);
  --started_count_;
  while (true) {
    if (ready_.empty()) {
      if (is_ending_) return;
      ++sleeping_count_;
      lock.wait(work_);
      --sleeping_count_;
      continue;
    }
    Handle& handle = *ready_.front();
    const auto op = handle.queued_.begin();
    handle.running_.splice(handle.running_.end(), handle.queued_, op);
    --queued_count_;
    if (handle.queued_.empty()) {
      handle.turn_.splice(handle.turn_.end(), ready_, ready_.begin());
    } else {
      ready_.splice(ready_.end(), ready_, ready_.begin());
    }
    lock.unlock();
    handle.run(*op);
    lock.lock();
    handle.free_.splice(handle.free_.end(), handle.running_, op);
    if (handle.running_.empty()) idle_.notify_all();
  }
}

}  // namespace

Result<std::unique_ptr<Store>> make_local_store(std::unique_ptr<LocalBackend> backend,
                                                const LocalStoreOptions& options) {
  if (options.accept_limit == 0)
    return Status(Code::kInvalidArgument, "a store must accept at least one request");
  auto core = std::make_shared<Core>(std::move(backend), options);
  // One worker now, so that queued requests are always served however short of threads the process
  // is later.
  if (options.worker_limit > 0 && !core->start_worker()) {
    return Status(Code::kExhausted, "cannot start a thread for " + options.url);
  }
  return std::unique_ptr<Store>(std::make_unique<Handle>(std::move(core)));
}

std::string describe_request(std::string_view url, const Request& request) {
  std::string text;
  switch (request.op) {
    case Op::kGet:
      text = "GET ";
      break;
    case Op::kPut:
      text = "PUT ";
      break;
    case Op::kPutPart:
      text = "PUT PART " + std::to_string(request.part_number) + " ";
      break;
    case Op::kHead:
      return "HEAD " + std::string(url) + "/" + std::string(request.key);
  }
  text.append(url).append("/").append(request.key);
  if (request.op == Op::kGet) {
    return text + " [" + std::to_string(request.offset_bytes) + ", " +
           std::to_string(request.offset_bytes + request.length_bytes) + ")";
  }
  return text + " (" + std::to_string(request.length_bytes) + " bytes)";
}

Status check_request(const Request& request) {
  const auto refuse = [](const char* why) { return Status(Code::kInvalidArgument, why); };
  if (request.key.empty()) return refuse("the key is empty");
  const std::uint64_t slab_bytes = request.slab.bytes().size();
  if (request.slab_offset_bytes > slab_bytes ||
      request.length_bytes > slab_bytes - request.slab_offset_bytes) {
    return refuse("the slab is smaller than slab_offset + length");
  }
  if (request.op == Op::kGet) {
    if (request.length_bytes == 0) return refuse("a read of 0 bytes");
    if (request.offset_bytes > UINT64_MAX - request.length_bytes)
      return refuse("offset + length is past 2^64");
  }
  if (request.op == Op::kPutPart) {
    if (request.upload_id.empty()) return refuse("a part without upload_id");
    if (request.part_number < 1 || request.part_number > 10'000)
      return refuse("part_number is not in 1 .. 10000");
  }
  return {};
}

Result<std::uint64_t> readable_bytes(const Request& request, std::uint64_t size_bytes) {
  const std::uint64_t available =
      request.offset_bytes < size_bytes
          ? std::min(request.length_bytes, size_bytes - request.offset_bytes)
          : 0;
  if (available == request.length_bytes || request.allow_short) return available;
  return Status(Code::kCorrupt, "the object ends at byte " + std::to_string(size_bytes));
}

Status check_part_list(std::span<const UploadedPart> parts) {
  if (parts.empty()) return Status(Code::kInvalidArgument, "no parts");
  std::uint32_t last = 0;
  for (const UploadedPart& part : parts) {
    if (part.part_number <= last || part.part_number > 10'000) {
      return Status(Code::kInvalidArgument,
                    "parts are not in rising order of their numbers in 1 .. 10000");
    }
    last = part.part_number;
  }
  return {};
}

}  // namespace headrace
