#pragma once
/// \file
/// fill_cache(): brings a dataset into a cache on purpose, before it is asked for (copy, warm) or
/// beside a loader (lazy).
///
/// Place: src/read/, over a Dataset and a store whose reads are cached (cache_reads()). What is
/// there is passed over without being read. docs/design/0048.
///
/// Threads: fill_cache() is a call; BackgroundFill any thread.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "headrace/cache.h"
#include "headrace/dataset.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

/// How far it is. Bytes are those of the objects, without what files take besides.
struct FillReport {
  std::uint64_t total_bytes = 0;    ///< Of the blocks that are wanted.
  std::uint64_t held_bytes = 0;     ///< Were there.
  std::uint64_t fetched_bytes = 0;  ///< Came from the store, those that were left out included.
  /// Are not there at the end: the cache is full of what is worth more, or has failed.
  std::uint64_t missing_bytes = 0;
  std::uint64_t file_bytes = 0;  ///< That all of them take in the cache.
};

struct FillOptions {
  struct Want {
    std::uint32_t block = 0;
    /// When a reader needs it, in batches: what is needed later gives way to it, and it to what is
    /// needed earlier. ForeseenRead::kNever: not said; then it gives way to all that is planned.
    std::uint32_t need = ForeseenRead::kNever;
  };
  /// What is wanted, the first first; empty: all blocks in the order of the dataset, needed so.
  std::vector<Want> wants = {};
  /// Of `share_count` callers that fill one directory at the same time with the same wants, this is
  /// number `share`: it begins with its own part, and then helps with what the others have not
  /// done, from the end. \pre share < share_count.
  std::uint32_t share = 0, share_count = 1;
  /// All of it must be there at the end: kExhausted otherwise, before anything is read where the
  /// cache cannot hold it. Else it ends as soon as there is no more room.
  bool is_all_required = false;
  /// For what is under way, beside the cache's buffers. At least one request is, whatever its size.
  std::uint64_t memory_bytes = std::uint64_t{64} << 20;
  std::chrono::milliseconds read_timeout{120'000};  ///< Of one request, all attempts together.
  /// Asked before each read: not now, others need the line. Empty: always.
  std::function<bool()> may_read = {};
  /// Now and then, from the thread that fills.
  std::function<void(const FillReport&)> progress = {};
};

/// The blocks that are needed (`needs`: by block, in batches; kNever: not), the first first.
std::vector<FillOptions::Want> order_wants(std::span<const std::uint64_t> needs);

/// Reads what is wanted of `dataset` through a handle of `store`, which keeps it in `cache`.
/// Blocks. Errors: kInvalidArgument (the store has no cache; no block of the dataset has bytes that
/// one could keep), kExhausted (is_all_required: names the bytes of both sides), kCancelled
/// (`stop`), those of reading; what was read until then stays.
Result<FillReport> fill_cache(const Dataset& dataset, Store& store, Cache& cache,
                              const FillOptions& options, const std::stop_token& stop = {});

/// fill_cache() on a thread of its own.
class BackgroundFill {
 public:
  /// `plan` runs on the thread, and says what is to be filled how.
  BackgroundFill(std::shared_ptr<const Dataset> dataset, std::unique_ptr<Store> handle,
                 std::shared_ptr<Cache> cache,
                 std::function<Result<FillOptions>(const std::stop_token&)> plan);
  ~BackgroundFill() { stop(); }  ///< Stops it.
  BackgroundFill(const BackgroundFill&) = delete;
  BackgroundFill& operator=(const BackgroundFill&) = delete;

  /// Ends it and waits for that. Idempotent.
  void stop() noexcept;
  bool is_over() const noexcept { return is_over_.load(); }
  FillReport report() const;
  /// Of fill_cache(), once it is over; kCancelled after stop().
  Status status() const;

 private:
  Status run(const std::stop_token& stop);

  const std::shared_ptr<const Dataset> dataset_;
  const std::shared_ptr<Cache> cache_;
  const std::unique_ptr<Store> handle_;
  const std::function<Result<FillOptions>(const std::stop_token&)> plan_;
  mutable std::mutex mutex_;  // Of the two that follow.
  FillReport report_;
  Status status_;
  std::atomic<bool> is_over_{false};
  std::jthread thread_;  // Last: it uses all of the above.
};

}  // namespace headrace
