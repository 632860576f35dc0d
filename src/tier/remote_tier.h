#pragma once
/// \file
/// RemoteTier: a Tier whose extents lie with a RemoteCache.
///
/// Threads: any.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "headrace/cluster_cache.h"
#include "headrace/memory.h"
#include "insight/counter.h"
#include "tier/delayed_tasks.h"
#include "tier/remote_cache.h"
#include "tier/tier.h"

namespace headrace::tier {

class RemoteTier final : public Tier {
 public:
  struct Options {
    std::uint64_t buffer_bytes = 0;
    std::uint64_t least_unnamed_bytes = 0;
    Clock* clock = nullptr;  ///< nullptr: system_clock().
  };
  /// Errors: kExhausted (no memory for a pool).
  static Result<std::shared_ptr<RemoteTier>> create(std::unique_ptr<RemoteCache> engine,
                                                    const Options& options);
  /// Waits for what is being put, as long as the engine does.
  ~RemoteTier() override;

  /// What waits to be written may take so much, or what was allowed before if that is more.
  void allow_buffers(std::uint64_t bytes) noexcept;
  /// Waits until everything that was read before is written or left out.
  void flush();

  void read(const ExtentInfo& wanted, std::span<std::byte> out, TimePoint deadline,
            Done done) override;
  Flight begin_flight(const ExtentName& extent) override;
  bool looks_in_flight() const noexcept override { return true; }
  void keep(ExtentInfo info, std::span<const std::byte> data, Flight flight,
            const Slab& slab) override;
  bool holds(const ExtentName&) override { return false; }
  void drop(const ExtentName& range) override { engine_->replace(range); }
  bool wants_plans() const noexcept override { return false; }
  std::shared_ptr<OwnPlan> publish_plan(std::vector<PlanEntry>) override { return nullptr; }
  bool run(ThreadPool::Task&& task) override {
    task();
    return true;
  }
  void run_later(TimePoint due, const void* name, ThreadPool::Task task) override {
    delayed_->add(due, name, std::move(task));
  }
  void hurry(const void* name) override { delayed_->hurry(name); }
  Pace& pace() noexcept override { return pace_; }
  Clock& clock() const noexcept override { return clock_; }
  std::uint64_t least_unnamed_bytes() const noexcept override {
    return options_.least_unnamed_bytes;
  }
  void note_wait() noexcept override { waits_.add(); }
  void note_miss(std::uint64_t bytes) noexcept override {
    misses_.add();
    miss_bytes_.add(bytes);
  }
  void append_metrics(MetricList& out) const override;

 private:
  using Outcome = RemoteCache::Outcome;

  RemoteTier(std::unique_ptr<RemoteCache> engine, const Options& options);
  void end_flight(const ExtentName& extent) override;
  void end_read(const ExtentInfo& extent, Outcome outcome);
  /// As it is put: with a header for each part.
  std::size_t stored_bytes(const ExtentInfo& info) const noexcept;
  /// Whether a copy of the extent finds memory at this moment.
  bool has_room(const ExtentInfo& info) const noexcept;
  void note_claim(const ExtentInfo& extent);
  void forget_claim(const ExtentName& extent);
  /// Puts what was copied, headers first.
  struct Write;
  void write(const std::shared_ptr<Write>& write);
  void end_write(const Write& write, Outcome outcome);

  const Options options_;
  Clock& clock_;
  const std::string prefix_;  // Of the names of counters.
  Pace pace_;
  std::unique_ptr<SlabPool> buffers_;
  std::atomic<std::uint64_t> buffer_bytes_{0};

  Mutex flights_mutex_;
  /// And what was claimed for them: none, or what names it for the engine.
  std::map<ExtentName, std::optional<ExtentInfo>> flights_ HEADRACE_GUARDED_BY(flights_mutex_);
  Mutex writes_mutex_;
  std::condition_variable writes_done_;
  std::size_t writes_pending_ HEADRACE_GUARDED_BY(writes_mutex_) = 0;

  Counter hits_, hit_bytes_, misses_, miss_bytes_, passed_bytes_, waits_, written_bytes_,
      skipped_bytes_, corrupt_, failures_;

  std::unique_ptr<RemoteCache> engine_;    // Its ends use all of the above.
  std::unique_ptr<ThreadPool> workers_;    // Their tasks use all of the above.
  std::unique_ptr<DelayedTasks> delayed_;  // Of workers_.
};

}  // namespace headrace::tier
