#pragma once
/// \file
/// A store with its memory, for blocking callers on many threads: each call leases a handle of its
/// own, so that threads do not wait for one another's completions.
///
/// Place: src/io/, over any Store; bindings and programs that want bytes, not samples.
///
/// Threads: every function from any thread.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "headrace/access_log.h"
#include "headrace/cache.h"
#include "headrace/cluster_cache.h"
#include "headrace/memory.h"
#include "headrace/range_fetcher.h"
#include "headrace/store.h"

namespace headrace {

namespace io {
class ReadBudget;
}

class StoreClient {
 public:
  /// An object written part by part: headrace/upload.h.
  class Upload;

  using Logs = std::vector<std::shared_ptr<AccessLog>>;
  using Caches = std::vector<std::shared_ptr<Cache>>;

  /// Opens the store; `memory_bytes` bounds the data of all calls together. `cache`: read through
  /// it; none when it names no directory. `cluster`: and behind it through these, the nearest
  /// first. Their buffers are part of `memory_bytes`. `log`: of the accesses, those that caches
  /// serve included; none when it names no file. Errors: those of open_store, Cache,
  /// read_through_cluster, AccessLog and SlabPool.
  static Result<std::shared_ptr<StoreClient>> open(
      const StoreOptions& options, const Environment& environment, std::uint64_t memory_bytes,
      const AccessLogOptions& log = {}, const CacheOptions& cache = {},
      std::span<const ClusterCacheOptions> cluster = {});
  /// What of the memory of a client with one cache serves as its buffers, unless CacheOptions says
  /// less. With several: that is shared out, but each has enough for a few requests.
  static std::uint64_t cache_buffer_bytes(std::uint64_t memory_bytes) noexcept;
  /// A client of an open store, whose accesses go to `logs`, and which reads through `caches`.
  /// `held_bytes`: what these may hold of the pool's slabs, on top of `memory_bytes`
  /// (SlabPool::Options). Errors: those of SlabPool.
  static Result<std::shared_ptr<StoreClient>> wrap(std::unique_ptr<Store> store,
                                                   std::uint64_t memory_bytes, Logs logs = {},
                                                   Caches caches = {},
                                                   std::uint64_t held_bytes = 0);
  ~StoreClient();

  /// For the control plane.
  Store& store() noexcept { return *store_; }
  const std::shared_ptr<SlabPool>& pool() const noexcept { return pool_; }
  /// Bytes of one part of a transfer: small enough that several fit the budget.
  std::uint64_t part_bytes() const noexcept { return part_bytes_; }

  /// Counters of the store and of the memory, see docs/metrics.md.
  void append_metrics(MetricList& out) const;

  const Logs& logs() const noexcept { return logs_; }
  /// On disks.
  const Caches& caches() const noexcept { return caches_; }
  /// Names the rank in the logs, if there are any.
  void set_rank(std::uint32_t rank);

  /// Cancels what is under way and refuses more. Idempotent.
  void close() noexcept;
  /// Stops when the client is closed: for calls on store(), which close() does not end by itself.
  std::stop_token closing() const noexcept { return closing_.get_token(); }
  /// Waits until the logs are written. Errors: those of AccessLog.
  Status flush_logs();

  /// A handle on loan. Returned for reuse by finish(); destroyed (stopped and drained) otherwise.
  class Lease {
   public:
    explicit Lease(StoreClient& client) : client_(client) {}
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    /// Errors: kCancelled when the client is closed.
    Status take();
    Store& operator*() noexcept { return *handle_; }
    /// \pre every accepted request has completed.
    void finish() noexcept;

   private:
    StoreClient& client_;
    std::unique_ptr<Store> handle_;
  };

  /// Lives as long as its owner keeps a slab of acquire() that it will give back by itself: calls
  /// that wait for memory wait for that.
  class Holding {
   public:
    explicit Holding(StoreClient& client);
    ~Holding();
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;

   private:
    StoreClient& client_;
  };

  /// Takes a slab, waiting while other calls on this client may give memory back.
  /// Errors: kExhausted when nobody but the user can; kInvalidArgument when the limit is too small
  /// for it.
  Result<Slab> acquire(std::size_t size_bytes, const Pause& pause);

  /// How a call of this client reads: `pause`, its memory, and its end when the client is closed.
  RangeFetcher::Options read_options(const Pause& pause);
  /// Of a call that ended with `status`: that the client was closed meanwhile, or `status`.
  Status why(Status status) const;

  /// Lends `work` a fetcher on a handle of its own, and returns what it returns. `options`: those
  /// of read_options(), changed at will.
  Status read(RangeFetcher::Options options, const std::function<Status(RangeFetcher&)>& work);

  /// Runs one request to its end. Errors: those of Completion::status.
  Completion run(Request request, const Pause& pause);

  /// Reads [offset, offset + out.size()) of one version of an object in parts, several in flight.
  /// Errors: those of kGet, of acquire(); kChanged (`etag` is empty, and the parts are of several
  /// versions). `is_fresh`: Request::fresh_connection.
  Status fetch(std::string_view key, std::string_view etag, std::uint64_t offset_bytes,
               std::span<std::byte> out, const Pause& pause, bool is_fresh = false);
  /// The same with `options`: those of read_options(), changed at will.
  Status fetch(std::string_view key, std::string_view etag, std::uint64_t offset_bytes,
               std::span<std::byte> out, RangeFetcher::Options options, bool is_fresh = false);

  struct PutOptions {
    bool if_absent = false;                    ///< As Request::if_absent; always one request.
    const ObjectSettings* settings = nullptr;  ///< As Request::settings.
  };
  /// Writes one object from memory: in one request, or upload()s it where it is more than two parts
  /// long. Errors: those of both; kInvalidArgument (one request, and more bytes than the memory).
  Result<ObjectInfo> put(const std::string& key, std::span<const std::byte> bytes,
                         const PutOptions& options, const Pause& pause);

  /// A URL by which others read or write one object (Store::presign()), waiting for half a minute
  /// where the credentials for it are being fetched. Errors: those of Store::presign();
  /// kUnavailable also when `stop` ends the wait.
  Result<std::string> presign(const PresignRequest& request, const std::stop_token& stop);

  /// Writes one object from memory in one request. `bytes` at most the memory limit.
  Completion write(Request request, std::span<const std::byte> bytes, const Pause& pause);

  /// Writes a large object in parts of `part_bytes`, several in flight; nothing is visible unless
  /// all succeed. `settings`: as Request::settings.
  Result<ObjectInfo> upload(const std::string& key, std::span<const std::byte> bytes,
                            std::uint64_t part_bytes, const Pause& pause,
                            const ObjectSettings* settings = nullptr);

 private:
  StoreClient();
  Status closed_error() const;

  std::shared_ptr<SlabPool> pool_;  // Outlives the handles, whose requests hold slabs.
  std::unique_ptr<Store> store_;
  std::unique_ptr<io::ReadBudget> budget_;  // Of all calls that read.
  Logs logs_;
  Caches caches_;
  std::uint64_t part_bytes_ = 0;
  std::stop_source closing_;
  mutable std::mutex mutex_;
  bool is_closed_ = false;
  std::vector<std::unique_ptr<Store>> idle_;
  std::unordered_set<Store*> leased_;
  // Calls holding memory that will come back, and those of them now waiting for memory; both are
  // hints, so relaxed.
  std::atomic<int> active_calls_{0};
  std::atomic<int> starved_calls_{0};
};

}  // namespace headrace
