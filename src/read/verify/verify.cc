// Jobs (an object, blocks of one, or a block that lies in several) are handed out by a counter;
// workers keep their findings to themselves and add them up at the end. The report is sorted, so
// it does not depend on who was quicker.
//
// Memory is divided beforehand so that no worker ever waits for another's: each has its depth of
// pieces, and twice the largest block for one that is inflated or read again. What packages that
// unpack take by themselves lies outside of the pool and is left free in it.
#include "headrace/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <tuple>

#include "base/start_thread.h"
#include "headrace/machine.h"
#include "read/verify/worker.h"
#include "shard/codec/digest.h"
#include "shard/index/hri.h"
#include "shard/index/hri_layout.h"

namespace headrace {
namespace detail {
namespace {

// Pieces in memory for each worker: one being looked at, the others on their way. Few objects are
// read deeper.
constexpr std::size_t kDepth = 8;
constexpr std::size_t kMostDepth = 64;
// On remote stores workers wait most of their time; how much is on its way is the budget's affair.
constexpr std::uint64_t kRemoteWorkers = 64;

/// How many workers, and how many pieces each, so that all can go on whatever they hold.
struct Shares {
  std::size_t worker_count = 1;
  std::size_t depth = 1;
};

// Of the dataset's blocks the most.
std::uint64_t workspace_bytes(const Dataset* dataset) {
  std::uint64_t most = 0;
  for (std::uint32_t b = 0; dataset != nullptr && b < dataset->block_count(); ++b)
    most = std::max(most, dataset->unpack_workspace_bytes(b, {}));
  return most;
}

Result<Shares> share_memory(const VerifyRun& run, std::uint64_t largest_block_bytes) {
  const std::uint64_t piece = std::max(run.piece_bytes, largest_block_bytes);
  const std::uint64_t usable = run.usable_bytes;
  // A block that is read apart is copied once.
  const std::uint64_t least = 3 * largest_block_bytes;
  if (least > usable) {
    return Status(Code::kExhausted,
                  fmt::format("memory of {} bytes is too small for blocks of {}; give at least {}",
                              run.pool.limit_bytes(), largest_block_bytes, least / 4 * 5 + 5));
  }
  const std::uint64_t cores = available_cores();
  const std::uint64_t usual = run.store.traits().is_local ? cores : std::max(cores, kRemoteWorkers);
  const std::uint64_t wanted = run.options.worker_count > 0 ? run.options.worker_count : usual;
  const std::uint64_t apart = 2 * largest_block_bytes + workspace_bytes(run.dataset);
  Shares shares;
  shares.worker_count = std::clamp<std::uint64_t>(usable / (kDepth * piece + apart), 1, wanted);
  shares.worker_count = std::min(shares.worker_count, std::max<std::size_t>(run.jobs.size(), 1));
  const std::uint64_t each = usable / shares.worker_count;
  shares.depth =
      each < apart + piece ? 1 : std::clamp<std::uint64_t>((each - apart) / piece, 1, kMostDepth);
  return shares;
}

Result<VerifyReport> run_jobs(VerifyRun& run, std::uint64_t largest_block_bytes) {
  HEADRACE_TRY_ASSIGN(const Shares shares, share_memory(run, largest_block_bytes));
  std::uint64_t all_bytes = 0;
  for (const VerifyJob& job : run.jobs) {
    if (job.kind == VerifyJob::Kind::kObject) all_bytes += job.object.size_bytes;
    for (auto b = job.first_block; job.kind != VerifyJob::Kind::kObject && b < job.end_block; ++b)
      all_bytes += run.dataset->block(b).stored_bytes;
  }
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t left = 0;
  std::vector<std::jthread> threads;
  {
    const std::lock_guard lock(mutex);
    start_threads(threads, shares.worker_count, [&] {
      work_on(run, shares.depth);
      const std::lock_guard ending(mutex);
      --left;
      ended.notify_one();
    });
    left = threads.size();
  }
  if (threads.empty()) return Status(Code::kExhausted, "verify: no thread can be started");
  const auto report = [&] {
    if (run.options.progress)
      run.options.progress(run.read_bytes.load(std::memory_order_relaxed), all_bytes);
  };
  const auto wait_a_while = [&] {
    std::unique_lock lock(mutex);
    return ended.wait_for(lock, std::chrono::milliseconds(100), [&] { return left == 0; });
  };
  while (!wait_a_while()) report();
  threads.clear();
  report();  // Workers may have been quicker than the first wait.
  MutexLock lock(run.mutex);
  if (!run.fatal.ok()) return std::move(run.fatal);
  VerifyReport& result = run.report;
  result.read_bytes = run.read_bytes.load(std::memory_order_relaxed);
  std::sort(result.problems.begin(), result.problems.end(), [](const auto& a, const auto& b) {
    return std::tie(a.position, a.key) < std::tie(b.position, b.key);
  });
  std::sort(result.objects.begin(), result.objects.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  if (result.problems.size() > run.options.most_problems)
    result.problems.resize(run.options.most_problems);
  return std::move(result);
}

}  // namespace
}  // namespace detail

Result<VerifyReport> verify_dataset(const Dataset& dataset, Store& store, SlabPool& pool,
                                    const VerifyOptions& options, const CallOptions& call) {
  detail::VerifyRun run(&dataset, store, pool, options, call);
  run.jobs = detail::plan_verify(dataset);
  return detail::run_jobs(run, dataset.largest_block_bytes());
}

Status compare_stored_index(const Dataset& fresh, Store& store, SlabPool& pool,
                            const CallOptions& call) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 30;  // As Dataset::open reads.
  auto stored = read_object(store, pool, std::string(detail::kIndexName), kMostBytes, call);
  if (!stored && stored.error().code() == Code::kNotFound) return Status();
  if (!stored) return std::move(stored).error();
  const auto bytes = std::as_bytes(std::span(*stored));
  HEADRACE_TRY(detail::IndexView::verify_sums(bytes));
  const auto is_hint = [](std::size_t i) {
    // Two fields of the head may differ: block_bytes is a hint, and the sum covers it.
    return (i >= detail::hri::kBlockBytesOffset && i < detail::hri::kBlockBytesOffset + 8) ||
           (i >= detail::hri::kChecksumOffset && i < detail::hri::kChecksumOffset + 4);
  };
  const auto ours = fresh.index_bytes();
  bool is_equal = ours.size() == bytes.size();
  for (std::size_t i = 0; is_equal && i < detail::hri::kHeaderBytes; ++i)
    is_equal = ours[i] == bytes[i] || is_hint(i);
  is_equal = is_equal && std::equal(ours.begin() + detail::hri::kHeaderBytes, ours.end(),
                                    bytes.begin() + detail::hri::kHeaderBytes);
  if (is_equal) return Status();
  return Status(Code::kChanged,
                "the stored index does not describe the shards as they are opened here; run "
                "`headrace index` again");
}

Result<VerifyReport> digest_objects(std::span<const ObjectInfo> objects, Store& store,
                                    SlabPool& pool, const VerifyOptions& options,
                                    const CallOptions& call) {
  for (const std::string& name : options.digests) {
    if (!detail::Digester::create(name))
      return Status(Code::kInvalidArgument, fmt::format("unknown digest '{}'", name));
  }
  detail::VerifyRun run(nullptr, store, pool, options, call);
  for (const ObjectInfo& object : objects)
    run.jobs.push_back({.object = {object.key, object.etag, object.size_bytes, {}},
                        .kind = detail::VerifyJob::Kind::kObject,
                        .first_block = 0,
                        .end_block = 0});
  return detail::run_jobs(run, 0);
}

}  // namespace headrace
