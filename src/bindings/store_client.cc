#include "store_client.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace headrace {
namespace {

constexpr std::chrono::milliseconds kSlice{50};
// Parts in flight of one call: eight of 8 MiB hide a first-byte time of 100 ms at 600 MB/s.
constexpr std::size_t kPartsInFlight = 8;
constexpr std::uint64_t kLargestPartBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kSmallestPartBytes = std::uint64_t{16} << 10;
constexpr std::size_t kIdleHandles = 32;

TimePoint next_slice() { return system_clock().now() + kSlice; }

std::string describe_shortage(std::size_t size_bytes, const SlabPool& pool) {
  return "no memory for a read of " + std::to_string(size_bytes) +
         " bytes: " + std::to_string(pool.used_bytes()) + " of the limit of " +
         std::to_string(pool.limit_bytes()) +
         " bytes are held by results that are still in use; drop results earlier, or raise memory=";
}

class CallCount {
 public:
  explicit CallCount(std::atomic<int>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  ~CallCount() { count_.fetch_sub(1, std::memory_order_relaxed); }
  CallCount(const CallCount&) = delete;
  CallCount& operator=(const CallCount&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

Result<std::shared_ptr<StoreClient>> StoreClient::open(const StoreOptions& options,
                                                       const Environment& environment,
                                                       std::uint64_t memory_bytes,
                                                       const AccessLogOptions& log) {
  HEADRACE_TRY_ASSIGN(auto store, open_store(options, environment));
  if (log.path.empty()) return wrap(std::move(store), memory_bytes);
  HEADRACE_TRY_ASSIGN(auto access_log, AccessLog::create(log));
  return wrap(log_accesses(std::move(store), access_log), memory_bytes, {access_log});
}

Result<std::shared_ptr<StoreClient>> StoreClient::wrap(std::unique_ptr<Store> store,
                                                       std::uint64_t memory_bytes, Logs logs) {
  std::shared_ptr<StoreClient> client(new StoreClient());
  HEADRACE_TRY_ASSIGN(auto pool, SlabPool::create({.limit_bytes = memory_bytes}));
  client->pool_ = std::move(pool);
  client->store_ = std::move(store);
  client->logs_ = std::move(logs);
  client->part_bytes_ = std::clamp(memory_bytes / 16, kSmallestPartBytes, kLargestPartBytes);
  return client;
}

void StoreClient::close() noexcept {
  std::vector<std::unique_ptr<Store>> dying;
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  for (Store* handle : leased_) handle->stop();
  dying.swap(idle_);
}

void StoreClient::set_rank(std::uint32_t rank) {
  for (const auto& log : logs_) log->set_rank(rank);
}

Status StoreClient::flush_logs() {
  Status first;
  for (const auto& log : logs_) {
    Status status = log->flush();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

Status StoreClient::closed_error() const {
  return Status(Code::kCancelled, store_->url() + ": the store was closed");
}

StoreClient::Lease::~Lease() {
  if (!handle_) return;
  {
    std::lock_guard lock(client_.mutex_);
    client_.leased_.erase(handle_.get());
  }
  handle_.reset();
}

Status StoreClient::Lease::take() {
  std::lock_guard lock(client_.mutex_);
  if (client_.is_closed_) return client_.closed_error();
  if (!client_.idle_.empty()) {
    handle_ = std::move(client_.idle_.back());
    client_.idle_.pop_back();
  } else {
    HEADRACE_TRY_ASSIGN(handle_, client_.store_->new_handle());
  }
  client_.leased_.insert(handle_.get());
  return {};
}

void StoreClient::Lease::finish() noexcept {
  std::lock_guard lock(client_.mutex_);
  client_.leased_.erase(handle_.get());
  if (!client_.is_closed_ && client_.idle_.size() < kIdleHandles)
    client_.idle_.push_back(std::move(handle_));
}

Result<Slab> StoreClient::acquire(std::size_t size_bytes, const Pause& pause) {
  auto slab = pool_->try_acquire(size_bytes);
  if (slab || slab.error().code() != Code::kExhausted) return slab;
  CallCount starved(starved_calls_);
  while (starved_calls_.load(std::memory_order_relaxed) <
         active_calls_.load(std::memory_order_relaxed)) {
    auto late = pool_->acquire(size_bytes, next_slice());
    if (late || late.error().code() != Code::kDeadline) return late;
    pause();
  }
  slab = pool_->try_acquire(size_bytes);
  if (slab || slab.error().code() != Code::kExhausted) return slab;
  return Status(Code::kExhausted, describe_shortage(size_bytes, *pool_));
}

Completion StoreClient::run(Request request, const Pause& pause) {
  CallCount active(active_calls_);
  Lease handle(*this);
  Completion completion;
  completion.status = handle.take();
  if (!completion.status.ok()) return completion;
  // The queue of a fresh handle takes one request unless the store is closing.
  while (handle->submit({&request, 1}) == 0) {
    std::lock_guard lock(mutex_);
    if (is_closed_) {
      completion.status = closed_error();
      return completion;
    }
  }
  while (handle->wait({&completion, 1}, next_slice()) == 0) pause();
  handle.finish();
  return completion;
}

/// State of one fetch() or upload(): a span of memory against a range of an object, part by part.
struct StoreClient::PartTransfer {
  explicit PartTransfer(StoreClient& client) : handle(client) {}
  Lease handle;
  Request pattern;                    // Without slab, length and what depends on the part.
  std::span<std::byte> target;        // kGet
  std::span<const std::byte> source;  // kPutPart
  std::uint64_t part_bytes = 0;
  std::uint64_t asked_bytes = 0;
  std::size_t in_flight = 0;
  std::vector<UploadedPart> parts;

  std::uint64_t size_bytes() const {
    return pattern.op == Op::kGet ? target.size() : source.size();
  }
};

Status StoreClient::submit_parts(PartTransfer& transfer, const Pause& pause) {
  while (transfer.in_flight < kPartsInFlight && transfer.asked_bytes < transfer.size_bytes()) {
    const auto length =
        std::min<std::uint64_t>(transfer.part_bytes, transfer.size_bytes() - transfer.asked_bytes);
    auto slab = transfer.in_flight > 0 ? pool_->try_acquire(length) : acquire(length, pause);
    if (!slab) return transfer.in_flight > 0 ? Status() : std::move(slab).error();
    Request request;
    request.op = transfer.pattern.op;
    request.key = transfer.pattern.key;
    request.etag = transfer.pattern.etag;
    request.fresh_connection = transfer.pattern.fresh_connection;
    request.upload_id = transfer.pattern.upload_id;
    request.length_bytes = length;
    request.slab = *std::move(slab);
    request.tag = transfer.asked_bytes;
    if (request.op == Op::kGet) {
      request.offset_bytes = transfer.pattern.offset_bytes + transfer.asked_bytes;
    } else {
      request.part_number =
          static_cast<std::uint32_t>(transfer.asked_bytes / transfer.part_bytes) + 1;
      std::memcpy(request.slab.bytes().data(), transfer.source.data() + transfer.asked_bytes,
                  length);
    }
    if (transfer.handle->submit({&request, 1}) == 0) {
      return transfer.in_flight > 0 ? Status() : closed_error();
    }
    transfer.asked_bytes += length;
    ++transfer.in_flight;
  }
  return {};
}

Status StoreClient::run_parts(PartTransfer& transfer, const Pause& pause) {
  CallCount active(active_calls_);
  HEADRACE_TRY(transfer.handle.take());
  HEADRACE_TRY(submit_parts(transfer, pause));
  while (transfer.in_flight > 0) {
    Completion done[kPartsInFlight];
    const std::size_t count = transfer.handle->wait(done, next_slice());
    if (count == 0) pause();
    for (Completion& completion : std::span(done, count)) {
      --transfer.in_flight;
      HEADRACE_TRY(std::move(completion.status));
      if (transfer.pattern.op == Op::kGet) {
        std::memcpy(transfer.target.data() + completion.tag, completion.slab.bytes().data(),
                    completion.length_bytes);
      } else {
        const auto number = static_cast<std::uint32_t>(completion.tag / transfer.part_bytes) + 1;
        transfer.parts.push_back({number, std::move(completion.etag)});
      }
      completion.slab = Slab();
    }
    HEADRACE_TRY(submit_parts(transfer, pause));
  }
  transfer.handle.finish();
  return {};
}

Status StoreClient::fetch(std::string_view key, std::string_view etag, std::uint64_t offset_bytes,
                          std::span<std::byte> out, const Pause& pause, bool is_fresh) {
  PartTransfer transfer(*this);
  transfer.pattern.fresh_connection = is_fresh;
  transfer.pattern.key = key;
  transfer.pattern.etag = etag;
  transfer.pattern.offset_bytes = offset_bytes;
  transfer.target = out;
  transfer.part_bytes = part_bytes_;
  return run_parts(transfer, pause);
}

Completion StoreClient::write(Request request, std::span<const std::byte> bytes,
                              const Pause& pause) {
  request.length_bytes = bytes.size();
  if (!bytes.empty()) {
    CallCount active(active_calls_);
    auto slab = acquire(bytes.size(), pause);
    if (!slab) {
      Completion failed;
      failed.status = std::move(slab).error();
      return failed;
    }
    request.slab = *std::move(slab);
    std::memcpy(request.slab.bytes().data(), bytes.data(), bytes.size());
  }
  return run(std::move(request), pause);
}

Result<ObjectInfo> StoreClient::upload(const std::string& key, std::span<const std::byte> bytes,
                                       std::uint64_t part_bytes, const Pause& pause) {
  HEADRACE_TRY_ASSIGN(const std::string upload_id, store_->create_upload(key));
  struct Abort {
    StoreClient& client;
    const std::string& key;
    const std::string& upload_id;
    bool is_armed = true;
    ~Abort() {
      // The first failure is the one to report; an upload that cannot be aborted is the store's to
      // expire.
      if (is_armed) static_cast<void>(client.store_->abort_upload(key, upload_id));
    }
  } abort{*this, key, upload_id};
  PartTransfer transfer(*this);
  transfer.pattern.op = Op::kPutPart;
  transfer.pattern.key = key;
  transfer.pattern.upload_id = upload_id;
  transfer.source = bytes;
  transfer.part_bytes = part_bytes;
  HEADRACE_TRY(run_parts(transfer, pause));
  std::sort(
      transfer.parts.begin(), transfer.parts.end(),
      [](const UploadedPart& a, const UploadedPart& b) { return a.part_number < b.part_number; });
  HEADRACE_TRY_ASSIGN(auto info, store_->complete_upload(key, upload_id, transfer.parts));
  abort.is_armed = false;
  return info;
}

}  // namespace headrace
