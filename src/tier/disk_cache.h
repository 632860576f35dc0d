#pragma once
/// \file
/// DiskCache: a cache directory as handles of stores use it.
///
/// Threads: any.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "headrace/cache.h"
#include "headrace/memory.h"
#include "insight/counter.h"
#include "tier/eviction_order.h"
#include "tier/extent_file.h"
#include "tier/extent_index.h"
#include "tier/ledger.h"
#include "tier/pace.h"
#include "tier/pins.h"
#include "tier/plan_file.h"

namespace headrace::tier {

class DiskCache final : public Cache {
 public:
  static Result<std::shared_ptr<DiskCache>> create(const CacheOptions& options);
  ~DiskCache() override;

  // --- what handles use ---

  enum class Found {
    kNothing,  ///< Files do not have it all; what cannot be read or proved is deleted.
    kAll,
    kTooSlow,  ///< They have, but the store has it sooner.
  };
  /// Fills `out` from files. Blocks for the disk: call it on run()'s threads.
  Found read(const ExtentName& range, std::span<std::byte> out, std::uint64_t& object_size_bytes);

  /// The right to fetch an extent; given back when it is destroyed, before the cache is.
  class Flight {
   public:
    Flight() = default;
    Flight(DiskCache& cache, const ExtentName& extent) : cache_(&cache), extent_(extent) {}
    Flight(Flight&& o) noexcept : cache_(std::exchange(o.cache_, nullptr)), extent_(o.extent_) {}
    Flight& operator=(Flight&& o) noexcept {
      std::swap(cache_, o.cache_);
      std::swap(extent_, o.extent_);
      return *this;
    }
    ~Flight() {
      if (cache_ != nullptr) cache_->end_flight(extent_);
    }
    explicit operator bool() const noexcept { return cache_ != nullptr; }

   private:
    DiskCache* cache_ = nullptr;
    ExtentName extent_;
  };
  /// Empty: somebody, here or in another process, is fetching it.
  Flight begin_flight(const ExtentName& extent);

  /// Keeps a copy of `data`, which came from a store, and writes it when there is time; leaves it
  /// out where there is no memory or no room for it. Never waits. The flight ends with the file.
  void keep(ExtentInfo info, std::span<const std::byte> data, Flight flight);
  /// Whether files have all of a range, as far as their names tell.
  bool holds(const ExtentName& range) { return !index_.cover(range).empty(); }
  /// Deletes what overlaps the range: it made no sense to a reader.
  void drop(const ExtentName& range);

  /// Tells all processes when a reader needs what. Null when it cannot be written.
  std::shared_ptr<OwnPlan> publish_plan(std::vector<PlanEntry> entries);

  /// Runs `task` on a reader's thread. False: too many wait.
  bool run(ThreadPool::Task&& task) { return readers_->submit(std::move(task)); }
  /// The same at `due`, surely.
  void run_later(TimePoint due, ThreadPool::Task task);

  /// To be told of reads of Pace::kLeastBytes and more.
  Pace& pace() noexcept { return pace_; }

  Clock& clock() const noexcept { return clock_; }
  std::uint64_t least_unnamed_bytes() const noexcept { return options_.least_unnamed_bytes; }
  void note_wait() noexcept { waits_.add(); }
  void note_miss(std::uint64_t bytes) noexcept {
    misses_.add();
    miss_bytes_.add(bytes);
  }

  // --- Cache ---

  const std::string& directory() const noexcept override { return options_.directory; }
  Result<CacheUsage> usage() override;
  Status list(const std::function<void(const CachedExtent&)>& visit) override;
  Result<CacheCheck> verify(const std::function<bool(std::uint64_t)>& progress) override;
  Result<std::uint64_t> remove(const std::string& url_prefix) override;
  Result<std::uint64_t> shrink(std::uint64_t bytes) override;
  void flush() override;
  std::uint64_t capacity_bytes() const override { return limit_now(ledger_->used_bytes()); }
  std::uint64_t used_bytes() const override { return ledger_->used_bytes(); }
  std::uint64_t stored_bytes(std::uint64_t length_bytes) const noexcept override {
    return file_bytes({{}, 0, length_bytes});
  }
  std::uint64_t write_room_bytes() const noexcept override;
  Status pin(const std::string& url_prefix) override;
  Result<bool> unpin(const std::string& url_prefix) override;
  Result<std::vector<std::string>> pins() override;
  void append_metrics(MetricList& out) const override;

 private:
  struct Later {
    TimePoint due;
    ThreadPool::Task task;
    bool operator<(const Later& o) const noexcept { return due > o.due; }  // The first on top.
  };

  DiskCache(const CacheOptions& options, Fd root, Fd plans);
  Status start();
  void allow_buffers(std::uint64_t bytes) noexcept;

  void end_flight(const ExtentName& extent);
  /// \return whether all of it came, proved.
  bool read_one(const ExtentName& extent, std::uint64_t from_bytes, std::span<std::byte> out,
                std::uint64_t& object_size_bytes);
  /// \pre `file` has the extent's bytes where seal_extent() wants them.
  void write(const ExtentInfo& info, std::span<std::byte> file);
  void end_write();
  /// Room for the file of an extent, evicting others where there is none.
  bool reserve(const ExtentInfo& info);
  std::uint64_t limit_now(std::uint64_t used_bytes) const;
  /// Makes files and reservations take `target_bytes` at most. Bytes of files that went. `wanted`:
  /// to make room for it; what is needed before it stays.
  std::uint64_t evict_to(std::uint64_t target_bytes, const ExtentInfo* wanted = nullptr);
  std::vector<Candidate> candidates(const std::vector<ExtentName>& extents,
                                    const PlanBoard& plans) const;
  bool unlink_extent(const ExtentName& extent);
  void mark(const ExtentName& extent, bool is_hit) const;
  void note_failure(const Status& status);
  void run_timer();

  const CacheOptions options_;
  Clock& clock_;
  const Fd root_;
  const Fd plans_;
  std::unique_ptr<Ledger> ledger_;
  ExtentIndex index_;
  Pace pace_;
  Pins pins_;
  std::unique_ptr<SlabPool> buffers_;
  std::atomic<std::uint64_t> buffer_bytes_{0};
  std::atomic<std::int64_t> writes_off_until_ns_{0};

  Mutex flights_mutex_;
  std::set<ExtentName> flights_ HEADRACE_GUARDED_BY(flights_mutex_);

  Mutex eviction_mutex_;
  /// Looks at the cache since the last eviction that found nothing to evict.
  std::atomic<std::uint64_t> lookups_since_{UINT64_MAX / 2};
  std::atomic<std::uint64_t> pause_lookups_{0};

  Mutex writes_mutex_;
  std::condition_variable writes_done_;
  std::size_t writes_pending_ HEADRACE_GUARDED_BY(writes_mutex_) = 0;

  Counter hits_, hit_bytes_, misses_, miss_bytes_, passed_bytes_, waits_, written_bytes_,
      skipped_bytes_, evicted_bytes_, corrupt_, failures_, pin_refusals_;

  Mutex timer_mutex_;
  std::condition_variable timer_changed_;
  std::priority_queue<Later> later_ HEADRACE_GUARDED_BY(timer_mutex_);
  bool is_ending_ HEADRACE_GUARDED_BY(timer_mutex_) = false;
  std::thread timer_;

  std::unique_ptr<ThreadPool> readers_, writers_;  // Last: their tasks use all of the above.
};

}  // namespace headrace::tier
