// A line is written when a transfer ends, but what it says must be noted when it begins: the
// completion has no key. So each request gets a slot, and the slot's index as its tag on the way
// down; the caller's tag comes back with the completion.
//
// - Slots are claimed before the store below is asked, as a completion may come before submit()
//   returns.
// - A log that cannot be written fails the transfers: nothing may be read that is not in the log.
//   wait() waits for room in it, so that a slow disk slows reading instead of filling memory.
// - Completions that nobody takes are logged as well, in the destructor.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "headrace/access_log.h"
#include "headrace/forwarding_store.h"

namespace headrace {
namespace {

// Requests offered to the store at once: what must be noted before it is known how many it takes.
constexpr std::size_t kOffer = 64;

std::string_view operation_name(Op op) noexcept {
  switch (op) {
    case Op::kGet:
      return "get";
    case Op::kHead:
      return "head";
    case Op::kPut:
      return "put";
    case Op::kPutPart:
      return "put_part";
  }
  return "unknown";
}

Code code_of(const Status& status) noexcept { return status.code(); }
template <class T>
Code code_of(const Result<T>& result) noexcept {
  return result ? Code::kOk : result.error().code();
}

template <class T>
std::string_view version_of(const T& /*result*/) noexcept {
  return {};
}
std::string_view version_of(const Result<ObjectInfo>& result) noexcept {
  return result ? std::string_view((*result).etag) : std::string_view();
}

/// What a line needs of a request that is under way.
struct Slot {
  Op op = Op::kGet;
  std::string_view key, etag;
  std::uint64_t offset_bytes = 0, length_bytes = 0;
  std::uint64_t tag = 0;  // The caller's; the store below gets the index of the slot.
  bool is_used = false;
};

class LogHandle final : public ForwardingStore {
 public:
  LogHandle(std::unique_ptr<Store> inner, std::shared_ptr<AccessLog> log, const Clock& clock)
      : ForwardingStore(std::move(inner)), log_(std::move(log)), clock_(clock) {}

  ~LogHandle() override {
    // Requests whose completions nobody took may have moved data all the same.
    inner().stop();
    std::array<Completion, 16> batch;
    while (in_flight() > 0) {
      const std::size_t count = inner().wait(batch, TimePoint::max());
      for (Completion& completion : std::span(batch).first(count)) finish(completion);
    }
    log_->hurry();
  }

  std::size_t submit(std::span<Request> requests) override {
    std::size_t taken = 0;
    while (taken < requests.size()) {
      const auto offered = requests.subspan(taken, std::min(kOffer, requests.size() - taken));
      const std::size_t count = offer(offered);
      taken += count;
      if (count < offered.size()) break;
    }
    return taken;
  }

  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    // As if woken; the caller comes again.
    if (!log_->wait_for_room()) return 0;
    const std::size_t count = inner().wait(out, until, std::move(stop));
    for (Completion& completion : out.first(count)) finish(completion);
    return count;
  }

  void cancel(std::uint64_t tag) override {
    // Under the lock: the number of a slot that is free again may be another request's.
    MutexLock lock(mutex_);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].is_used && slots_[i].tag == tag) inner().cancel(i);
    }
  }
  void stop() noexcept override {
    inner().stop();
    log_->hurry();
  }

  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    return logged({.operation = "head", .key = key}, [&] { return inner().head(key, call); });
  }
  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    return logged({.operation = "list", .key = request.prefix},
                  [&] { return inner().list(request, call); });
  }
  Status remove(const std::string& key, const CallOptions& call) override {
    return logged({.operation = "delete", .key = key}, [&] { return inner().remove(key, call); });
  }
  Result<ObjectInfo> copy(const std::string& from_key, const std::string& to_key,
                          const CallOptions& call) override {
    return logged({.operation = "copy", .key = from_key, .to_key = to_key},
                  [&] { return inner().copy(from_key, to_key, call); });
  }
  Result<ObjectInfo> set_storage_class(const std::string& key, const std::string& storage_class,
                                       const CallOptions& call) override {
    return logged({.operation = "set_storage_class", .key = key},
                  [&] { return inner().set_storage_class(key, storage_class, call); });
  }
  Result<std::string> create_upload(const std::string& key, const CallOptions& call) override {
    return logged({.operation = "create_upload", .key = key},
                  [&] { return inner().create_upload(key, call); });
  }
  Result<ObjectInfo> complete_upload(const std::string& key, const std::string& upload_id,
                                     std::span<const UploadedPart> parts,
                                     const CallOptions& call) override {
    return logged({.operation = "complete_upload", .key = key},
                  [&] { return inner().complete_upload(key, upload_id, parts, call); });
  }
  Status abort_upload(const std::string& key, const std::string& upload_id,
                      const CallOptions& call) override {
    return logged({.operation = "abort_upload", .key = key},
                  [&] { return inner().abort_upload(key, upload_id, call); });
  }
  std::vector<Status> remove_many(std::span<const std::string> keys,
                                  const CallOptions& call) override;
  Result<std::vector<UploadedPart>> list_parts(const std::string& key, const std::string& upload_id,
                                               const CallOptions& call) override {
    return logged({.operation = "list_parts", .key = key},
                  [&] { return inner().list_parts(key, upload_id, call); });
  }
  Result<std::vector<PendingUpload>> list_uploads(const std::string& prefix,
                                                  const CallOptions& call) override {
    return logged({.operation = "list_uploads", .key = prefix},
                  [&] { return inner().list_uploads(prefix, call); });
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<LogHandle>(std::move(handle), log_, clock_));
  }
  /// Submits at most kOffer requests. Their tags are as before afterwards.
  std::size_t offer(std::span<Request> requests) {
    std::array<std::uint64_t, kOffer> tags;
    {
      MutexLock lock(mutex_);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        tags[i] = requests[i].tag;
        requests[i].tag = claim(requests[i]);
      }
    }
    const std::size_t count = inner().submit(requests);
    MutexLock lock(mutex_);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (i >= count) release(requests[i].tag);
      requests[i].tag = tags[i];
    }
    return count;
  }

  std::uint64_t claim(const Request& request) HEADRACE_REQUIRES(mutex_) {
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
    }
    const std::uint64_t index = free_.back();
    free_.pop_back();
    slots_[index] = {.op = request.op,
                     .key = request.key,
                     .etag = request.etag,
                     .offset_bytes = request.offset_bytes,
                     .length_bytes = request.length_bytes,
                     .tag = request.tag,
                     .is_used = true};
    return index;
  }
  void release(std::uint64_t index) HEADRACE_REQUIRES(mutex_) {
    slots_[index].is_used = false;
    free_.push_back(index);
  }
  std::size_t in_flight() HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return slots_.size() - free_.size();
  }

  Slot take_slot(std::uint64_t index) HEADRACE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    HEADRACE_CHECK(index < slots_.size() && slots_[index].is_used);
    const Slot slot = slots_[index];
    release(index);
    return slot;
  }

  void finish(Completion& completion) {
    const Slot slot = take_slot(completion.tag);
    completion.tag = slot.tag;
    const bool is_ok = completion.status.ok();
    if (!is_ok && completion.attempts == 0) return;  // the store was never asked
    const bool is_read = slot.op == Op::kGet || slot.op == Op::kHead;
    const bool is_known_version = is_ok && is_read && completion.etag.empty();
    log_->add({.operation = operation_name(slot.op),
               .root = url(),
               .key = slot.key,
               .version = is_known_version ? slot.etag : std::string_view(completion.etag),
               .is_transfer = slot.op != Op::kHead,
               .offset_bytes = slot.offset_bytes,
               .length_bytes = slot.length_bytes,
               .moved_bytes = completion.length_bytes,
               .outcome = completion.status.code(),
               .started = completion.submitted,
               .finished = completion.finished});
    if (!is_ok) return;
    completion.status = log_->status();
    if (completion.status.ok()) return;
    completion.length_bytes = completion.object_size_bytes = 0;
    completion.etag.clear();
    completion.checksum.clear();
    completion.object_checksum = {};
  }

  /// Makes a call and its line.
  template <class Call>
  auto logged(AccessRecord record, const Call& call) -> decltype(call()) {
    HEADRACE_TRY(log_->status());
    static_cast<void>(log_->wait_for_room());  // a pause for the file; a call adds one line
    record.root = url();
    record.started = clock_.now();
    auto result = call();
    record.finished = clock_.now();
    record.outcome = code_of(result);
    record.version = version_of(result);
    log_->add(record);
    return result;
  }

  const std::shared_ptr<AccessLog> log_;
  const Clock& clock_;
  Mutex mutex_;
  // As many as ever were in flight.
  std::vector<Slot> slots_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> free_ HEADRACE_GUARDED_BY(mutex_);
};

std::vector<Status> LogHandle::remove_many(std::span<const std::string> keys,
                                           const CallOptions& call) {
  std::vector<Status> statuses;
  if (const Status failure = log_->status(); !failure.ok()) {
    for (std::size_t i = 0; i < keys.size(); ++i) statuses.push_back(failure.clone());
    return statuses;
  }
  static_cast<void>(log_->wait_for_room());
  AccessRecord record{.operation = "delete", .root = url(), .started = clock_.now()};
  statuses = inner().remove_many(keys, call);
  record.finished = clock_.now();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    record.key = keys[i];
    record.outcome = statuses[i].code();
    log_->add(record);
  }
  return statuses;
}

}  // namespace

std::unique_ptr<Store> log_accesses(std::unique_ptr<Store> inner, std::shared_ptr<AccessLog> log,
                                    Clock* clock) {
  return std::make_unique<LogHandle>(std::move(inner), std::move(log),
                                     clock ? *clock : system_clock());
}

}  // namespace headrace
