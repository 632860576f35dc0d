#pragma once
/// \file
/// Evictor: room for the files of extents: reserves it within the limits of a cache, and evicts
/// other extents where there is none.
///
/// Threads: any.
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "headrace/cache.h"
#include "headrace/metrics.h"
#include "insight/counter.h"
#include "tier/cache_directory.h"
#include "tier/eviction_order.h"
#include "tier/extent_header.h"
#include "tier/pins.h"
#include "tier/plan_file.h"

namespace headrace::tier {

class Evictor {
 public:
  /// Both outlive it. `options`: the limits.
  Evictor(CacheDirectory& directory, Pins& pins, const CacheOptions& options);

  /// Room for the file of an extent, evicting others where there is none; Ledger::Change::add() or
  /// Ledger::cancel() ends it. False: there is none to make. Says so once, where it is the disk
  /// that has none.
  bool reserve(const ExtentInfo& info);
  /// Makes files and reservations take `target_bytes` at most, as far as pins let it. Waits for
  /// others who evict. Returns the bytes of files that went. Errors: kDeadline (somebody evicts for
  /// 10 s, or nobody can: no locks), those of the directory and of deleting, when all that can go
  /// are gone.
  Result<std::uint64_t> shrink_to(std::uint64_t target_bytes);
  /// Takes a limit (> 0) where there is none. False: there is another one.
  bool agree_on_limit(std::uint64_t limit_bytes) noexcept;
  /// 0: none.
  std::uint64_t limit_bytes() const noexcept;
  /// What files and reservations may take now: the limit, or less where the disk has less room.
  std::uint64_t capacity_bytes() const;
  /// Somebody looks for an extent: what found no room may find some when enough have.
  void note_lookup() noexcept { lookups_since_.fetch_add(1, std::memory_order_relaxed); }

  void append_metrics(MetricList& out) const;

 private:
  bool find_room(const ExtentInfo& info);
  /// Makes files and reservations take `target_bytes` at most, unless somebody else evicts. What is
  /// needed before `wanted` stays.
  void make_room(std::uint64_t target_bytes, const ExtentInfo& wanted);
  /// Whether they take no more, for sure.
  bool is_small(std::uint64_t target_bytes);
  void note_no_room();
  std::uint64_t free_bytes() const;
  /// What there is, to choose from.
  struct Look {
    std::vector<ExtentName> extents;
    std::uint64_t file_bytes = 0;
    bool is_all = false;  // Else of some buckets,
    Status failure;       // or as many as could be read.
  };
  struct Gone {
    std::uint64_t bytes = 0;
    Status failure;  // Of the first that could not be deleted.
  };
  /// At all, or where there are many, at some others each time.
  Look look_around(bool at_all) HEADRACE_REQUIRES(mutex_);
  /// The same, and where the ledger is in doubt or contradicts what was seen, all are counted.
  Look look_and_count(std::uint64_t target_bytes, bool at_all) HEADRACE_REQUIRES(mutex_);
  /// Of what was seen; `wanted`: to make room for it, or nullptr.
  Gone evict(const std::vector<ExtentName>& extents, std::uint64_t target_bytes,
             const ExtentInfo* wanted);
  std::vector<Candidate> candidates(const std::vector<ExtentName>& extents,
                                    const PlanBoard& plans) const;

  CacheDirectory& directory_;
  Pins& pins_;
  static constexpr std::uint64_t kNoLimit = UINT64_MAX;
  std::atomic<std::uint64_t> limit_bytes_;
  const std::uint64_t free_floor_bytes_;  // Of the file system; stay free.
  std::atomic<bool> has_told_no_room_{false};

  Mutex mutex_;                                            // One thread evicts at a time.
  std::uint32_t next_bucket_ HEADRACE_GUARDED_BY(mutex_);  // To look into.
  std::uint64_t eviction_count_ HEADRACE_GUARDED_BY(mutex_) = 0;
  /// Looks at the cache since the last eviction that found nothing to evict.
  std::atomic<std::uint64_t> lookups_since_{UINT64_MAX / 2};
  std::atomic<std::uint64_t> pause_lookups_{0};

  Counter evicted_bytes_, pin_refusals_;
};

}  // namespace headrace::tier
