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
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "headrace/cache.h"
#include "headrace/memory.h"
#include "insight/counter.h"
#include "tier/delayed_tasks.h"
#include "tier/eviction_order.h"
#include "tier/extent_draft.h"
#include "tier/extent_file.h"
#include "tier/extent_index.h"
#include "tier/ledger.h"
#include "tier/new_extent.h"
#include "tier/pace.h"
#include "tier/pins.h"
#include "tier/plan_file.h"
#include "tier/tier.h"

namespace headrace::tier {

class DiskCache final : public Cache, public Tier {
 public:
  static Result<std::shared_ptr<DiskCache>> create(const CacheOptions& options);
  ~DiskCache() override;
  /// Errors: kDenied (encrypted, and opened without the key).
  Status check_readable() const;

  // --- Tier ---

  /// Blocks for the disk, and calls `done` before it returns. What cannot be read or proved is
  /// deleted.
  void read(const ExtentInfo& wanted, std::span<std::byte> out, TimePoint deadline,
            Done done) override;
  Flight begin_flight(const ExtentName& extent) override;
  bool looks_in_flight() const noexcept override { return false; }
  void keep(ExtentInfo info, std::span<const std::byte> data, Flight flight,
            const Slab& slab) override;
  bool holds(const ExtentName& range) override { return !index_.cover(range).empty(); }
  void drop(const ExtentName& range) override;
  bool wants_plans() const noexcept override { return true; }
  std::shared_ptr<OwnPlan> publish_plan(std::vector<PlanEntry> entries) override;
  bool run(ThreadPool::Task&& task, bool may_block) override {
    static_cast<void>(may_block);  // All of them do.
    return readers_->submit(std::move(task));
  }
  void run_later(TimePoint due, ThreadPool::Task task) override {
    delayed_->add(due, std::move(task));
  }
  Pace& pace() noexcept override { return pace_; }
  Clock& clock() const noexcept override { return clock_; }
  std::uint64_t least_unnamed_bytes() const noexcept override {
    return options_.least_unnamed_bytes;
  }
  void note_wait() noexcept override {
    waits_.add();
    last_wait_ns_.store(clock_.now().time_since_epoch().count(), std::memory_order_relaxed);
  }
  void note_miss(std::uint64_t bytes) noexcept override {
    misses_.add();
    miss_bytes_.add(bytes);
  }

  // --- for what is written bit by bit (DiskValues) ---

  /// Memory for what waits to be written; none: it is all in use, or writing pauses.
  std::optional<Slab> buffer(std::uint64_t bytes);
  /// Runs what writes on a thread for that. False: too much waits.
  bool write_later(ThreadPool::Task task);
  /// Writes an extent, and shows it.
  void write(const ExtentInfo& info, const FileParts& parts);
  /// Makes room for an extent and begins its file; null, and counted, where that fails; null where
  /// the file system has no files without a name. To be ended by publish_draft() or drop_draft(),
  /// once.
  std::unique_ptr<ExtentDraft> begin_draft(const ExtentInfo& info, std::uint64_t part_bytes);
  void publish_draft(ExtentDraft& draft);
  void drop_draft(const ExtentDraft& draft);
  /// Counts what failed.
  bool is_done(const Status& status);
  void note_left_out(std::uint64_t bytes) noexcept { skipped_bytes_.add(bytes); }

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
  std::uint64_t waiting_bytes_of(std::uint64_t length_bytes) const noexcept override {
    return SlabPool::charged_bytes(length_bytes) + SlabPool::charged_bytes(FileParts::kPagesBytes);
  }
  Status pin(const std::string& url_prefix) override;
  Result<bool> unpin(const std::string& url_prefix) override;
  Result<std::vector<std::string>> pins() override;
  void append_metrics(MetricList& out) const override;

 private:
  DiskCache(const CacheOptions& options, Fd root, Fd plans);
  Status start();
  void allow_buffers(std::uint64_t bytes) noexcept;

  void end_flight(const ExtentName& extent) override;
  Found find(const ExtentName& range, std::span<std::byte> out, std::uint64_t& object_size_bytes);
  /// \return whether all of it came, proved.
  bool read_one(const ExtentName& extent, std::uint64_t from_bytes, std::span<std::byte> out,
                std::uint64_t& object_size_bytes);
  /// A write that flush() waits for. False: too many are pending already.
  bool begin_write();
  void end_write();
  bool has_write_room(std::uint64_t bytes) const noexcept;
  /// What waits to be written takes of buffer_bytes_.
  std::uint64_t waiting_bytes() const noexcept {
    return buffers_->used_bytes() + held_bytes_.load();
  }
  struct Write;
  /// Memory for a write, with the bytes in it. False: there is none.
  bool take_in(Write& job, std::span<const std::byte> data, const Slab& slab);
  /// Whether it is better written late than at the expense of those who read.
  bool can_wait(const Write& job) const;
  void begin(const std::shared_ptr<Write>& job);
  void make_file(Write& job);
  void show_file(Write& job);
  void finish(Write& job);
  /// Shows a file that is complete, and for which there is room; `publish`: by which.
  template <class Publish>
  void show(const ExtentInfo& info, const Publish& publish);
  /// Room for the file of an extent, evicting others where there is none.
  bool reserve(const ExtentInfo& info);
  std::uint64_t limit_now(std::uint64_t used_bytes) const;
  std::uint64_t free_bytes() const;
  /// An extent found no room. Says so once, where it is the disk that has none.
  void note_no_room(std::uint64_t bytes);
  /// Makes files and reservations take `target_bytes` at most. Bytes of files that went. `wanted`:
  /// to make room for it; what is needed before it stays.
  std::uint64_t evict_to(std::uint64_t target_bytes, const ExtentInfo* wanted = nullptr);
  /// What there is, to choose from.
  struct Look {
    std::vector<ExtentName> extents;
    std::uint64_t file_bytes = 0;
    bool is_all = false;      // Else of some buckets,
    bool has_failed = false;  // or as many as could be read.
  };
  /// At all, or where there are many, at some others each time.
  Look look_around(bool at_all) HEADRACE_REQUIRES(eviction_mutex_);
  /// The same, and where the ledger is in doubt or contradicts what was seen, all are counted.
  Look look_and_count(std::uint64_t target_bytes, bool at_all) HEADRACE_REQUIRES(eviction_mutex_);
  /// evict_to(), of what was seen.
  std::uint64_t evict(const std::vector<ExtentName>& extents, std::uint64_t target_bytes,
                      const ExtentInfo* wanted);
  std::vector<Candidate> candidates(const std::vector<ExtentName>& extents,
                                    const PlanBoard& plans) const;
  bool unlink_extent(const ExtentName& extent);
  static bool is_marked(int file) noexcept;
  void mark_hit(const ExtentName& extent) const;
  void note_failure(const Status& status);

  const CacheOptions options_;
  Clock& clock_;
  const Fd root_;
  const Fd plans_;
  const bool makes_nameless_;  // NewExtent::can_be_nameless().
  std::string key_id_;         // Of the directory; "": not encrypted.
  std::unique_ptr<Ledger> ledger_;
  ExtentIndex index_;
  Pace pace_;
  Pins pins_;
  std::unique_ptr<SlabPool> buffers_;
  std::atomic<std::uint64_t> buffer_bytes_{0};  // Memory that writes may take: of buffers_,
  std::atomic<std::uint64_t> held_bytes_{0};    // and what they hold of others.
  std::atomic<std::int64_t> writes_off_until_ns_{0};
  std::atomic<std::int64_t> last_wait_ns_{INT64_MIN / 2};
  std::atomic<bool> has_told_no_room_{false};

  Mutex flights_mutex_;
  std::set<ExtentName> flights_ HEADRACE_GUARDED_BY(flights_mutex_);

  Mutex eviction_mutex_;
  std::uint32_t next_bucket_ HEADRACE_GUARDED_BY(eviction_mutex_);  // To look into.
  std::uint64_t eviction_count_ HEADRACE_GUARDED_BY(eviction_mutex_) = 0;
  /// Looks at the cache since the last eviction that found nothing to evict.
  std::atomic<std::uint64_t> lookups_since_{UINT64_MAX / 2};
  std::atomic<std::uint64_t> pause_lookups_{0};

  Mutex writes_mutex_;
  std::condition_variable writes_done_;
  std::size_t writes_pending_ HEADRACE_GUARDED_BY(writes_mutex_) = 0;

  Counter hits_, hit_bytes_, misses_, miss_bytes_, passed_bytes_, waits_, written_bytes_,
      skipped_bytes_, evicted_bytes_, corrupt_, failures_, pin_refusals_;

  // Their tasks use all of the above. Makers give way to all other threads, so nobody who waits
  // for a read shares a lock with them: whatever a maker hands on goes to the namer.
  std::unique_ptr<ThreadPool> readers_, writers_, makers_, namer_;
  std::unique_ptr<DelayedTasks> delayed_;  // Of readers_.
};

}  // namespace headrace::tier
