// Shards are handed out by a counter and come back as they arrive at the target, which is later
// than they were made: a worker puts one while it makes the next. A shard counts as done when it
// has been recorded, and it is recorded even while stopping, so that nothing that arrived is made
// again.
//
// - The first error is the run's; it stops the others, and what they say then is not heard.
// - index.json comes last (TargetRecord::finish()), after all shards: readers see all of the
//   dataset or none.
// - Progress is told by the thread that called pack(), never by a worker.
#include "headrace/pack.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/atomic_file.h"
#include "base/mutex.h"
#include "base/start_thread.h"
#include "headrace/machine.h"
#include "headrace/target_record.h"
#include "pack/json_text.h"
#include "pack/memory_share.h"
#include "pack/plan.h"
#include "pack/shard_worker.h"
#include "shard/dataset/listing.h"

namespace headrace {
namespace {

using pack_detail::FinishedShard;
using pack_detail::MemoryShare;
using pack_detail::PackPlan;
using pack_detail::ShardWorker;

// Of workers on a remote source, for each core: while one waits for the last reads of a window or
// for the store to take a shard, another hashes and compresses.
constexpr std::uint32_t kRemoteWorkers = 2;
// How often progress is told while nothing ends.
constexpr std::chrono::milliseconds kProgressPeriod{100};

/// By number of the shard; nullopt: to be made.
using Facts = std::vector<std::optional<ShardFacts>>;

Status check_places(const Store& source, const Store& target) {
  const std::string from = source.url() + "/";
  if ((target.url() + "/").substr(0, from.size()) != from) return {};
  return Status(Code::kInvalidArgument,
                "pack: the target " + target.url() + " lies inside the source " + source.url());
}

/// Those that a dataset of raw files has as well: a count must not depend on the way to a format.
Result<std::vector<ObjectInfo>> list_files(Store& source, const CallOptions& call) {
  HEADRACE_TRY_ASSIGN(std::vector<ObjectInfo> files, list_all(source, "", call));
  std::erase_if(files, [](const ObjectInfo& file) { return !detail::may_be_sample(file); });
  if (files.empty()) return Status(Code::kNotFound, "pack: no files below " + source.url());
  return files;
}

PackId id_of(const PackPlan& plan) {
  // Version 1 kept its records elsewhere; plain shards never had any, so their plan stays the same.
  const int version = plan.needs_records() ? 2 : 1;
  const nlohmann::json text = {{"digest", plan.digest},
                               {"files", plan.files.size()},
                               {"samples", plan.sample_count},
                               {"shards", plan.shards.size()},
                               {"version", version}};
  return {plan.digest, pack_detail::python_json(text), plan.format(), plan.is_compressed()};
}

/// What the target holds already.
Result<Facts> facts_there(const PackPlan& plan, const TargetRecord& record,
                          const CallOptions& call) {
  Facts facts(plan.shards.size());
  if (!plan.needs_records()) {
    HEADRACE_TRY_ASSIGN(const auto sizes, record.sizes(call));
    for (const auto& [shard, size] : sizes)
      if (shard < facts.size() && size == plan.shards[shard].image_bytes)
        facts[shard] = plan.facts_of(shard);
    return facts;
  }
  HEADRACE_TRY_ASSIGN(auto all, record.finished(call));
  if (all) return Facts(all->begin(), all->end());
  HEADRACE_TRY_ASSIGN(auto done, record.reopen(call));
  for (auto& [shard, one] : done)
    if (shard < facts.size()) facts[shard] = std::move(one);
  return facts;
}

/// The shards of one run, handed out to workers in order and taken back as they arrive.
class Run {
 public:
  Run(const PackPlan& plan, const TargetRecord& record, Facts there, const PackOptions& options,
      std::stop_token stop)
      : plan_(plan),
        record_(record),
        options_(options),
        facts_(std::move(there)),
        // Workers see one token: the caller's stop and a failure end them alike.
        link_(stop, [this] { end_.request_stop(); }) {
    for (std::uint64_t i = 0; i < facts_.size(); ++i) {
      if (!facts_[i]) {
        todo_.push_back(i);
        continue;
      }
      result_.resumed_shard_count += 1;
      files_done_ += plan.shards[i].file_count;
    }
  }

  /// Of all shards. \pre make_all() succeeded.
  std::vector<ShardFacts> facts() const {
    std::vector<ShardFacts> all;
    for (const auto& one : facts_) all.push_back(*one);
    return all;
  }
  const PackResult& result() const noexcept { return result_; }
  std::size_t todo_count() const noexcept { return todo_.size(); }

  /// Makes what is left with the given workers; tells progress from this thread.
  Status make_all(std::vector<std::unique_ptr<ShardWorker>> workers) HEADRACE_EXCLUDES(mutex_) {
    std::vector<std::thread> threads;
    {
      MutexLock lock(mutex_);
      running_ = workers.size();
    }
    for (auto& worker : workers) {
      std::thread thread;
      if (start_thread(thread, [this, worker = worker.get()] { work(*worker); })) {
        threads.push_back(std::move(thread));
        continue;
      }
      MutexLock lock(mutex_);  // The others do its work.
      --running_;
      if (threads.empty() && running_ == 0)
        error_ = Status(Code::kExhausted, "pack: no thread can be started");
    }
    report_until_idle();
    for (std::thread& thread : threads) thread.join();
    MutexLock lock(mutex_);
    return std::move(error_);
  }

  /// Until something of ours lies there, another pack may have taken the target. Any thread.
  Status check_plan() {
    // A flag alone: whoever misses it looks once more.
    return is_begun_.load(std::memory_order_relaxed) ? Status() : record_.check_plan({});
  }

 private:
  void work(ShardWorker& worker) HEADRACE_EXCLUDES(mutex_) {
    Status status = make_some(worker);
    MutexLock lock(mutex_);
    // A worker that stops because another failed has nothing to add.
    if (!status.ok() && error_.ok()) error_ = std::move(status);
    if (!error_.ok()) end_.request_stop();
    running_ -= 1;
    change_.notify_all();
  }

  Status make_some(ShardWorker& worker) {
    std::vector<FinishedShard> finished;
    while (true) {
      const std::size_t index =
          next_.fetch_add(1, std::memory_order_relaxed);  // A counter, no data behind it.
      if (index >= todo_.size()) break;
      Status made = worker.make(todo_[index], end_.get_token(), finished);
      HEADRACE_TRY(take(finished));
      HEADRACE_TRY(std::move(made));
    }
    Status flushed = worker.flush(end_.get_token(), finished);
    HEADRACE_TRY(take(finished));
    return flushed;
  }

  Status take(std::vector<FinishedShard>& finished) HEADRACE_EXCLUDES(mutex_) {
    if (!finished.empty()) {
      HEADRACE_TRY(check_plan());
      is_begun_.store(true, std::memory_order_relaxed);
    }
    for (const FinishedShard& shard : finished) {
      // Also when stopping: what has arrived should not be made again.
      if (plan_.needs_records()) HEADRACE_TRY(record_.record(shard.shard, shard.facts, {}));
      MutexLock lock(mutex_);
      facts_[shard.shard] = shard.facts;
      result_.written_bytes += shard.facts.stored_bytes;
      files_done_ += plan_.shards[shard.shard].file_count;
      change_.notify_all();
    }
    finished.clear();
    return {};
  }

  void report_until_idle() HEADRACE_EXCLUDES(mutex_) {
    std::uint64_t told = ~std::uint64_t{0};
    while (true) {
      std::uint64_t files = 0;
      std::uint64_t bytes = 0;
      {
        MutexLock lock(mutex_);
        if (running_ > 0) lock.wait_until(change_, system_clock().now() + kProgressPeriod);
        files = files_done_;
        bytes = result_.written_bytes;
        if (running_ == 0) break;
      }
      if (options_.progress && files != told) options_.progress(files, plan_.files.size(), bytes);
      told = files;
    }
  }

  const PackPlan& plan_;
  const TargetRecord& record_;
  const PackOptions& options_;
  std::vector<std::uint64_t> todo_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> is_begun_{false};
  std::stop_source end_;

  Mutex mutex_;
  std::condition_variable change_;
  Facts facts_;        ///< Workers write under the mutex; read when none runs.
  PackResult result_;  ///< Likewise.
  std::uint64_t files_done_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t running_ HEADRACE_GUARDED_BY(mutex_) = 0;
  Status error_ HEADRACE_GUARDED_BY(mutex_);
  std::stop_callback<std::function<void()>> link_;
};

std::uint64_t bytes_to_read(const PackPlan& plan, const Facts& facts) {
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < facts.size(); ++i) {
    if (facts[i]) continue;
    const auto& shard = plan.shards[i];
    if (plan.layout == pack_detail::Layout::kMdsTokens) {
      bytes += shard.sample_count * plan.tokens_per_sample -
               shard.file_count;  // Without the tokens that end files.
      continue;
    }
    for (std::uint64_t f = 0; f < shard.file_count; ++f)
      bytes += plan.files[shard.first_file + f].size_bytes;
  }
  return bytes;
}

PackResult planned(const PackPlan& plan) {
  PackResult result;
  result.file_count = plan.files.size();
  result.sample_count = plan.sample_count;
  result.shard_count = plan.shards.size();
  result.read_bytes = plan.source_bytes;
  for (const auto& shard : plan.shards) result.written_bytes += shard.image_bytes;
  return result;
}

Result<PackResult> pack_checked(Store& source, Store& target, const PackOptions& options,
                                std::stop_token stop) {
  HEADRACE_TRY(check_places(source, target));
  const CallOptions call{.stop = stop};
  HEADRACE_TRY_ASSIGN(auto files, list_files(source, call));
  HEADRACE_TRY_ASSIGN(const PackPlan plan, pack_detail::make_plan(std::move(files), options));
  if (options.is_dry_run) return planned(plan);
  const std::uint32_t wanted = options.worker_count == 0 ? available_cores() : options.worker_count;
  const bool waits = options.worker_count == 0 && !source.traits().is_local;
  HEADRACE_TRY_ASSIGN(
      const MemoryShare share,
      pack_detail::share_memory(plan, options.memory_bytes, wanted,
                                waits ? kRemoteWorkers * wanted : wanted, target.traits()));
  HEADRACE_TRY_ASSIGN(const auto pool, SlabPool::create({.limit_bytes = options.memory_bytes}));

  const TargetRecord record(target, *pool, id_of(plan));
  HEADRACE_TRY(record.load(call));
  HEADRACE_TRY_ASSIGN(const Facts there, facts_there(plan, record, call));
  // Workers write files of this directory themselves; killed ones leave them half written. Other
  // stores clean up after themselves.
  if (const std::string directory = target.local_directory(); !directory.empty())
    remove_stale_temporaries(directory);
  Run run(plan, record, there, options, stop);
  io::ReadBudget reads(share.worker_count * share.read_bytes,
                       {.subject = share.is_read_bounded ? "" : "pack from " + source.url(),
                        .memory_bytes = options.memory_bytes});
  std::vector<std::unique_ptr<ShardWorker>> workers;
  for (std::uint32_t i = 0; i < std::min<std::size_t>(share.worker_count, run.todo_count()); ++i) {
    HEADRACE_TRY_ASSIGN(auto worker, ShardWorker::create(plan, share, *pool, reads, source, target,
                                                         [&run] { return run.check_plan(); }));
    workers.push_back(std::move(worker));
  }
  HEADRACE_TRY(run.make_all(std::move(workers)));
  HEADRACE_TRY(record.finish(run.facts(), plan.mds_config, call));

  PackResult result = run.result();
  result.file_count = plan.files.size();
  result.sample_count = plan.sample_count;
  result.shard_count = plan.shards.size();
  result.read_bytes = bytes_to_read(plan, there);
  if (options.progress)
    options.progress(result.file_count, result.file_count, result.written_bytes);
  return result;
}

}  // namespace

Result<PackResult> pack(Store& source, Store& target, const PackOptions& options,
                        std::stop_token stop) {
  auto result = pack_checked(source, target, options, stop);
  if (!result && stop.stop_requested()) return Status(Code::kCancelled, "pack: stopped");
  return result;
}

}  // namespace headrace
