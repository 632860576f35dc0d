#pragma once
/// \file
/// DiskCache: a cache directory as handles of stores use it. Here its parts are joined: what reads
/// (ExtentReader), what writes (ExtentWriter) and what makes room (Evictor), over the directory
/// that they share (CacheDirectory).
///
/// Threads: any.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "headrace/cache.h"
#include "insight/counter.h"
#include "tier/cache_directory.h"
#include "tier/delayed_tasks.h"
#include "tier/evictor.h"
#include "tier/extent_file.h"
#include "tier/extent_reader.h"
#include "tier/extent_writer.h"
#include "tier/pace.h"
#include "tier/pins.h"
#include "tier/tier.h"

namespace headrace::tier {

class DiskCache final : public Cache, public Tier {
 public:
  static Result<std::shared_ptr<DiskCache>> create(const CacheOptions& options);
  /// Errors: kDenied (encrypted, and opened without the key).
  Status check_readable() const { return directory_->check_readable(); }
  /// For what is written bit by bit (DiskValues).
  ExtentWriter& writer() noexcept { return *writer_; }

  // --- Tier ---

  /// Blocks for the disk, and calls `done` before it returns. What cannot be read or proved is
  /// deleted.
  void read(const ExtentInfo& wanted, std::span<std::byte> out, TimePoint deadline,
            Done done) override;
  Flight begin_flight(const ExtentName& extent) override;
  bool looks_in_flight() const noexcept override { return false; }
  void keep(ExtentInfo info, std::span<const std::byte> data, Flight flight,
            const Slab& slab) override {
    writer_->keep(std::move(info), data, std::move(flight), slab);
  }
  bool holds(const ExtentName& range) override { return !directory_->index().cover(range).empty(); }
  void drop(const ExtentName& range) override;
  bool wants_plans() const noexcept override { return true; }
  std::shared_ptr<OwnPlan> publish_plan(std::vector<PlanEntry> entries) override;
  bool run(ThreadPool::Task&& task) override { return readers_.submit(std::move(task)); }
  void run_later(TimePoint due, const void* name, ThreadPool::Task task) override {
    delayed_.add(due, name, std::move(task));
  }
  void hurry(const void* name) override { delayed_.hurry(name); }
  Pace& pace() noexcept override { return pace_; }
  Clock& clock() const noexcept override { return directory_->clock(); }
  std::uint64_t least_unnamed_bytes() const noexcept override {
    return options_.least_unnamed_bytes;
  }
  void note_wait() noexcept override {
    waits_.add();
    writer_->note_wait();
  }
  void note_miss(std::uint64_t bytes) noexcept override {
    misses_.add();
    miss_bytes_.add(bytes);
  }

  // --- Cache ---

  const std::string& directory() const noexcept override { return options_.directory; }
  Result<CacheUsage> usage() override;
  Status list(const std::function<void(const CachedExtent&)>& visit) override;
  Result<CacheCheck> verify(const std::function<bool(std::uint64_t)>& progress) override;
  Result<std::uint64_t> remove(const std::string& url_prefix) override;
  Result<std::uint64_t> shrink(std::uint64_t bytes) override { return evictor_.shrink_to(bytes); }
  void flush() override { writer_->flush(); }
  std::uint64_t capacity_bytes() const override { return evictor_.capacity_bytes(); }
  std::uint64_t used_bytes() const override { return directory_->ledger().used_bytes(); }
  std::uint64_t stored_bytes(std::uint64_t length_bytes) const noexcept override {
    return file_bytes({{}, 0, length_bytes});
  }
  std::uint64_t write_room_bytes() const noexcept override { return writer_->room_bytes(); }
  void allow_write_room(std::uint64_t bytes) noexcept override { writer_->allow_buffers(bytes); }
  std::uint64_t waiting_bytes_of(std::uint64_t length_bytes) const noexcept override {
    return ExtentWriter::waiting_bytes_of(length_bytes);
  }
  Status pin(const std::string& url_prefix) override { return pins_.add(url_prefix); }
  Result<bool> unpin(const std::string& url_prefix) override { return pins_.remove(url_prefix); }
  Result<std::vector<std::string>> pins() override { return pins_.list(); }
  void append_metrics(MetricList& out) const override;

 private:
  static Result<std::shared_ptr<DiskCache>> make(const CacheOptions& options, Fd root);
  /// The same object, as far as it does for these options, too.
  Status share(const CacheOptions& options);
  DiskCache(const CacheOptions& options, std::unique_ptr<CacheDirectory> directory);

  void end_flight(const ExtentName& extent) override;
  /// Whether an extent's file is as it was written. `scratch`: for its bytes. Errors: kCorrupt,
  /// those of reading.
  Status check_file(int file, const ExtentName& extent, std::vector<std::byte>& scratch) const;
  /// Deletes these, as many as can be. Returns the bytes of files that went. Errors: of the first
  /// that could not be.
  Result<std::uint64_t> remove_all(const std::vector<ExtentName>& extents);

  const CacheOptions options_;
  const std::unique_ptr<CacheDirectory> directory_;
  Pace pace_;
  Pins pins_;
  Evictor evictor_;
  ExtentReader reader_;

  Mutex flights_mutex_;
  std::set<ExtentName> flights_ HEADRACE_GUARDED_BY(flights_mutex_);

  Counter misses_, miss_bytes_, waits_;

  // Its writes, and the tasks of these threads, use all of the above. Who reads ends first: that
  // brings what is to be written.
  std::unique_ptr<ExtentWriter> writer_;
  ThreadPool readers_;
  DelayedTasks delayed_;  // Of readers_.
};

}  // namespace headrace::tier
