// Blocking calls over handles that are lent out. A call has a handle to itself, so no call takes
// another's completions, and many threads may call at once.
//
// Invariants:
// - A handle goes back to idle_ only from finish(), when nothing of it is outstanding. Every other
//   way out of a call destroys it, which waits until the kernel has handed back its slabs.
// - closed: nothing is lent any more, and what is out has been stopped. is_closed_ is set first,
//   under the lock under which take() looks at it; so no handle slips through.
// - Waiting goes in slices of kPauseSlice with pause() between them, so that Python sees Ctrl-C.
// - All calls that read share one budget, which bounds what is under way by what it brings.
//
// Who waits for memory (acquire()): another call that is under way will hand its slabs back, so
// waiting makes sense as long as one active call is not itself starved. When all active calls
// wait, only results in Python's hands could become free, and nobody knows when: the error says
// so.
#include "headrace/store_client.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "io/pool_metrics.h"
#include "io/read_budget.h"
#include "io/uploader.h"
#include "store/finish_upload.h"
#include "store/submit_queue.h"
#include "store/upload_parts.h"

namespace headrace {
namespace {

// Parts of one upload in flight, of a sixteenth of the memory each.
constexpr std::size_t kPartsInFlight = 8;
constexpr std::uint64_t kLargestPartBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kSmallestPartBytes = std::uint64_t{16} << 10;
constexpr std::size_t kIdleHandles = 32;
// Of the memory, for what waits to be written to a cache. Orders are made for all of the memory
// (LoaderOptions::order_memory_bytes), of which they take up to 15 of 16 parts; so it is no more
// than that, but where it would hold less than a few requests.
constexpr std::uint64_t kCacheShare = 16;
constexpr std::uint64_t kLeastCacheBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kMostCacheShare = 8;

// Parts of an upload from memory.
constexpr std::uint64_t kUploadPartBytes = std::uint64_t{8} << 20;
// Credentials that are being fetched when a URL is to be signed: a store cannot tell when they have
// come, so it is asked again.
constexpr std::chrono::seconds kCredentialsPatience{30};
constexpr std::chrono::milliseconds kLookAgain{5};

TimePoint next_slice() { return system_clock().now() + kPauseSlice; }

std::string describe_shortage(std::size_t size_bytes, const SlabPool& pool) {
  return "no memory for a read of " + std::to_string(size_bytes) +
         " bytes: " + std::to_string(pool.used_bytes()) + " of the limit of " +
         std::to_string(pool.limit_bytes()) +
         " bytes are held by results that are still in use; drop results earlier, or raise memory=";
}

/// Of the memory, for each share of several caches: what one would have is shared out, but with
/// too little for a few requests they take more, up to kMostCacheShare all together.
std::uint64_t bytes_of_share(std::uint64_t memory_bytes, std::uint64_t share_count) {
  const std::uint64_t all = StoreClient::cache_buffer_bytes(memory_bytes);
  if (share_count <= 1) return all;
  return std::min(std::max(all / share_count, kLeastCacheBytes),
                  memory_bytes / kMostCacheShare / share_count);
}

std::uint64_t share_count_of(const CacheOptions& cache,
                             std::span<const ClusterCacheOptions> cluster) {
  std::uint64_t count = cache.directory.empty() ? 0 : 1;
  for (ClusterCacheOptions one : cluster) {
    one.buffer_bytes = 1;
    count += memory_of(one);
  }
  return count;
}

/// Counts a call that waits for memory.
class Starving {
 public:
  explicit Starving(std::atomic<int>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  ~Starving() { count_.fetch_sub(1, std::memory_order_relaxed); }
  Starving(const Starving&) = delete;
  Starving& operator=(const Starving&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

StoreClient::StoreClient() = default;
StoreClient::~StoreClient() { close(); }

std::uint64_t StoreClient::cache_buffer_bytes(std::uint64_t memory_bytes) noexcept {
  const std::uint64_t most = std::min(memory_bytes / kMostCacheShare, CacheOptions().buffer_bytes);
  return std::min(most, std::max(memory_bytes / kCacheShare, kLeastCacheBytes));
}

Result<std::shared_ptr<StoreClient>> StoreClient::open(
    const StoreOptions& options, const Environment& environment, std::uint64_t memory_bytes,
    const AccessLogOptions& log, const CacheOptions& cache,
    std::span<const ClusterCacheOptions> cluster) {
  HEADRACE_TRY_ASSIGN(auto store, open_store(options, environment));
  const std::uint64_t buffer_bytes = bytes_of_share(memory_bytes, share_count_of(cache, cluster));
  // The furthest is the innermost.
  for (std::size_t i = cluster.size(); i-- > 0;) {
    ClusterCacheOptions own = cluster[i];
    own.buffer_bytes = std::min(own.buffer_bytes, buffer_bytes);
    HEADRACE_TRY_ASSIGN(store, read_through_cluster(std::move(store), own, options.queue_capacity));
    memory_bytes -= memory_of(own);
  }
  std::uint64_t held_bytes = 0;
  Caches caches;
  if (!cache.directory.empty()) {
    CacheOptions own = cache;
    own.buffer_bytes = std::min(own.buffer_bytes, buffer_bytes);
    HEADRACE_TRY_ASSIGN(auto opened, Cache::open(own));
    caches.push_back(opened);
    store = cache_reads(std::move(store), std::move(opened), options.queue_capacity);
    held_bytes = own.buffer_bytes;
    memory_bytes -= held_bytes;
  }
  Logs logs;
  if (!log.path.empty()) {
    HEADRACE_TRY_ASSIGN(auto access_log, AccessLog::create(log));
    store = log_accesses(std::move(store), access_log);
    logs.push_back(std::move(access_log));
  }
  return wrap(std::move(store), memory_bytes, std::move(logs), std::move(caches), held_bytes);
}

Result<std::shared_ptr<StoreClient>> StoreClient::wrap(std::unique_ptr<Store> store,
                                                       std::uint64_t memory_bytes, Logs logs,
                                                       Caches caches, std::uint64_t held_bytes) {
  std::shared_ptr<StoreClient> client(new StoreClient());
  HEADRACE_TRY_ASSIGN(
      auto pool, SlabPool::create({.limit_bytes = memory_bytes, .most_held_bytes = held_bytes}));
  client->pool_ = std::move(pool);
  client->store_ = std::move(store);
  client->budget_ = std::make_unique<io::ReadBudget>(
      memory_bytes,
      io::ReadBudget::Owner{.subject = client->store_->url(), .memory_bytes = memory_bytes});
  client->logs_ = std::move(logs);
  client->caches_ = std::move(caches);
  client->part_bytes_ = std::clamp(memory_bytes / 16, kSmallestPartBytes, kLargestPartBytes);
  return client;
}

void StoreClient::close() noexcept {
  std::vector<std::unique_ptr<Store>> dying;
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;  // Before the stop: whoever it ends asks why.
    for (Store* handle : leased_) handle->stop();
    dying.swap(idle_);
  }
  closing_.request_stop();
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

void StoreClient::append_metrics(MetricList& out) const {
  store_->append_metrics(out);
  io::append_pool_metrics(out, *pool_);
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

StoreClient::Holding::Holding(StoreClient& client) : client_(client) {
  client_.active_calls_.fetch_add(1, std::memory_order_relaxed);
}
StoreClient::Holding::~Holding() { client_.active_calls_.fetch_sub(1, std::memory_order_relaxed); }

Result<Slab> StoreClient::acquire(std::size_t size_bytes, const Pause& pause) {
  auto slab = pool_->try_acquire(size_bytes);
  if (slab || slab.error().code() != Code::kExhausted) return slab;
  Starving starving(starved_calls_);
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

Status StoreClient::why(Status status) const {
  std::lock_guard lock(mutex_);
  return is_closed_ ? closed_error() : std::move(status);
}

RangeFetcher::Options StoreClient::read_options(const Pause& pause) {
  RangeFetcher::Options options;
  options.call.stop = closing_.get_token();
  options.budget = budget_.get();
  options.pause = pause;
  options.acquire = [this, pause](std::size_t size_bytes) { return acquire(size_bytes, pause); };
  return options;
}

Completion StoreClient::run(Request request, const Pause& pause) {
  Holding active(*this);
  Lease handle(*this);
  Completion completion;
  completion.status = handle.take();
  if (!completion.status.ok()) return completion;
  SubmitQueue queue(*handle);
  queue.push(std::move(request));
  while (true) {
    const auto count = queue.wait({&completion, 1}, next_slice(), closing_.get_token());
    if (!count) {
      completion.status = why(count.error().clone());
      return completion;
    }
    if (*count == 1) break;
    pause();
  }
  handle.finish();
  return completion;
}

Status StoreClient::read(RangeFetcher::Options options,
                         const std::function<Status(RangeFetcher&)>& work) {
  Holding active(*this);
  Lease handle(*this);
  HEADRACE_TRY(handle.take());
  {
    RangeFetcher fetcher(*handle, *pool_, std::move(options));
    Status status = work(fetcher);
    if (!status.ok()) return why(std::move(status));
  }
  handle.finish();
  return {};
}

Status StoreClient::fetch(std::string_view key, std::string_view etag, std::uint64_t offset_bytes,
                          std::span<std::byte> out, const Pause& pause, bool is_fresh) {
  return fetch(key, etag, offset_bytes, out, read_options(pause), is_fresh);
}

Status StoreClient::fetch(std::string_view key, std::string_view etag, std::uint64_t offset_bytes,
                          std::span<std::byte> out, RangeFetcher::Options options, bool is_fresh) {
  std::string version(etag);
  return read(std::move(options), [&](RangeFetcher& fetcher) -> Status {
    for (std::uint64_t at = 0; at < out.size(); at += part_bytes_) {
      fetcher.start({.key = key,
                     .etag = etag,
                     .offset_bytes = offset_bytes + at,
                     .length_bytes = std::min<std::uint64_t>(part_bytes_, out.size() - at),
                     .is_fresh = is_fresh,
                     .tag = at});
    }
    while (fetcher.pending() > 0) {
      HEADRACE_TRY_ASSIGN(const RangeData data, fetcher.next());
      if (version.empty()) version = data.etag;
      if (!data.etag.empty() && data.etag != version) {
        return Status(Code::kChanged, "GET " + store_->object_url(key) +
                                          ": was replaced while it was read, by " + data.etag);
      }
      std::memcpy(out.data() + data.tag, data.bytes().data(), data.length_bytes);
    }
    return {};
  });
}

Result<ObjectInfo> StoreClient::put(const std::string& key, std::span<const std::byte> bytes,
                                    const PutOptions& options, const Pause& pause) {
  const std::uint64_t part_bytes =
      upload_part_bytes(bytes.size(), kUploadPartBytes, store_->traits());
  if (bytes.size() > 2 * part_bytes && !options.if_absent)
    return upload(key, bytes, part_bytes, pause, options.settings);
  if (SlabPool::charged_bytes(bytes.size()) > pool_->limit_bytes()) {
    return Status(Code::kInvalidArgument,
                  "PUT " + store_->object_url(key) + ": " +
                      (options.if_absent ? "with if_absent=True it" : "it") +
                      " is one request, whose " + std::to_string(bytes.size()) +
                      " bytes do not fit memory= (" + std::to_string(pool_->limit_bytes()) +
                      " bytes): raise it");
  }
  Request request;
  request.op = Op::kPut;
  request.key = key;
  request.if_absent = options.if_absent;
  request.settings = options.settings;
  Completion done = write(std::move(request), bytes, pause);
  HEADRACE_TRY(std::move(done.status));
  return ObjectInfo{key, bytes.size(), std::move(done.etag), 0};
}

Result<std::string> StoreClient::presign(const PresignRequest& request,
                                         const std::stop_token& stop) {
  const TimePoint until = system_clock().now() + kCredentialsPatience;
  while (true) {
    auto url = store_->presign(request);
    const bool may_come = !url && url.error().code() == Code::kUnavailable;
    if (!may_come || system_clock().now() >= until || !pause_for(kLookAgain, stop)) return url;
  }
}

Completion StoreClient::write(Request request, std::span<const std::byte> bytes,
                              const Pause& pause) {
  request.length_bytes = bytes.size();
  if (!bytes.empty()) {
    Holding active(*this);
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
                                       std::uint64_t part_bytes, const Pause& pause,
                                       const ObjectSettings* settings) {
  Holding active(*this);
  Lease handle(*this);
  HEADRACE_TRY(handle.take());
  RangeFetcher::Options like = read_options(pause);
  like.call.settings = settings;
  HEADRACE_TRY_ASSIGN(const auto uploader,
                      io::Uploader::begin(*store_, *handle, key,
                                          {.call = std::move(like.call),
                                           .max_in_flight = kPartsInFlight,
                                           .pause = pause,
                                           .acquire = std::move(like.acquire)}));
  for (std::uint64_t at = 0; at < bytes.size(); at += part_bytes) {
    const auto length = std::min<std::uint64_t>(part_bytes, bytes.size() - at);
    auto slab = uploader->acquire(*pool_, length);
    if (!slab) return why(std::move(slab).error());
    std::memcpy(slab->bytes().data(), bytes.data() + at, length);
    Status sent = uploader->put(*std::move(slab), length);
    if (!sent.ok()) return why(std::move(sent));
  }
  auto info = uploader->finish();
  if (!info) return why(std::move(info).error());
  handle.finish();
  return info;
}

}  // namespace headrace
