#include "headrace/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "base/mutex.h"
#include "shard/digest.h"
#include "shard/index/hri.h"
#include "shard/index/hri_layout.h"
#include "shard/verify/object_scan.h"

namespace headrace {
namespace detail {
namespace {

// Pieces of what is only hashed: small enough to be hashed out of the cache that the read filled,
// large enough that requests cost little. A small pool makes them smaller.
constexpr std::uint64_t kPieceBytes = std::uint64_t{2} << 20;
// Pieces in memory for each worker: one being looked at, the others on their way.
constexpr std::size_t kDepth = 8;
// Blocks of one job where nothing is hashed: enough to read ahead, few enough to share a shard.
constexpr std::uint32_t kBlocksPerJob = 16;

const std::vector<std::string> kNoNames;

struct Object {
  std::string_view key;
  std::string_view etag;
  std::uint64_t size_bytes = 0;
  std::string_view hashes;  ///< Stored digests.
};

/// What a worker does at a time.
struct Job {
  enum class Kind : std::uint8_t {
    kObject,  ///< The object from end to end, with the blocks that lie in it, in order.
    kBlocks,  ///< Blocks that lie in one object, in order; nothing between them.
    kApart,   ///< One block by its extents.
  };
  Object object;
  Kind kind = Kind::kObject;
  std::uint32_t first_block = 0;
  std::uint32_t end_block = 0;
};

/// Digests of an object under way: those that it must have, then those that were asked for.
class ObjectDigesters {
 public:
  ObjectDigesters(std::string_view stored, const std::vector<std::string>& asked) {
    while (!stored.empty()) {
      const std::string_view entry = stored.substr(0, stored.find(' '));
      stored.remove_prefix(std::min(entry.size() + 1, stored.size()));
      const std::size_t equals = std::min(entry.find('='), entry.size() - 1);
      auto digester = Digester::create(entry.substr(0, equals));
      if (digester)
        stored_.push_back(
            {entry.substr(0, equals), entry.substr(equals + 1), *std::move(digester)});
    }
    for (const std::string& name : asked) asked_.push_back(*Digester::create(name));
  }
  void update(std::span<const std::byte> bytes) {
    for (Stored& stored : stored_) stored.digester.update(bytes);
    for (Digester& digester : asked_) digester.update(bytes);
  }
  std::size_t stored_count() const noexcept { return stored_.size(); }
  /// What is wrong with the stored ones; empty: nothing.
  std::string compare() {
    std::string wrong;
    for (Stored& stored : stored_) {
      const std::string actual = stored.digester.finish();
      if (actual == stored.hex) continue;
      wrong += fmt::format("{}{} is {}, the index says {}", wrong.empty() ? "" : "; ", stored.name,
                           actual, stored.hex);
    }
    return wrong;
  }
  std::vector<std::string> finish_asked() {
    std::vector<std::string> hex;
    for (Digester& digester : asked_) hex.push_back(digester.finish());
    return hex;
  }

 private:
  struct Stored {
    std::string_view name, hex;
    Digester digester;
  };
  std::vector<Stored> stored_;
  std::vector<Digester> asked_;
};

/// What the workers share.
struct Run {
  Run(const Dataset* d, Store& s, SlabPool& p, const VerifyOptions& o, const CallOptions& c)
      : dataset(d), store(s), pool(p), options(o), call(c) {}
  const Dataset* const dataset;  ///< nullptr: objects only.
  Store& store;
  SlabPool& pool;
  const VerifyOptions& options;
  const CallOptions& call;
  // Slabs are charged up to 5/4 of what is asked for.
  const std::uint64_t usable_bytes = pool.limit_bytes() / 5 * 4;
  const std::uint64_t piece_bytes = std::min(kPieceBytes, usable_bytes);
  std::vector<Job> jobs;
  std::atomic<std::size_t> next_job{0};
  std::atomic<std::uint64_t> read_bytes{0};
  std::atomic<bool> is_over{false};  // Set once, by the first worker that has to end everything.
  Mutex mutex;
  Status fatal HEADRACE_GUARDED_BY(mutex);
  VerifyReport report HEADRACE_GUARDED_BY(mutex);
};

class Worker {
 public:
  Worker(Run& run, std::size_t depth) : run_(run), scan_(run.store, run.pool, run.call, depth) {
    if (run.dataset != nullptr) cells_.resize(run.dataset->columns().size());
  }

  void work() {
    while (!run_.is_over.load(std::memory_order_relaxed)) {
      const std::size_t index = run_.next_job.fetch_add(1, std::memory_order_relaxed);
      if (index >= run_.jobs.size()) break;
      const Job& job = run_.jobs[index];
      Status status =
          job.kind == Job::Kind::kApart ? check_apart(job.first_block) : check_in_order(job);
      if (!status.ok() && !is_about_object(status)) {
        end_all(std::move(status));
      } else if (!status.ok()) {
        add_problem(job.object.key, -1, status);
      }
    }
    hand_in();
  }

 private:
  bool is_about_object(const Status& status) const {
    if (run_.call.stop.stop_requested()) return false;
    return status.code() != Code::kCancelled && status.code() != Code::kExhausted &&
           (status.code() != Code::kDeadline || system_clock().now() < run_.call.deadline);
  }

  Status check_in_order(const Job& job) {
    plan_pieces(job);
    ObjectDigesters digesters(job.object.hashes,
                              run_.dataset == nullptr ? run_.options.digests : kNoNames);
    const ScanObject object{job.object.key, job.object.etag, job.object.size_bytes, pieces_};
    HEADRACE_TRY(scan_.run(object, [&](std::size_t index, RangeData data) {
      run_.read_bytes.fetch_add(data.length_bytes, std::memory_order_relaxed);
      digesters.update(data.bytes());
      return blocks_[index] < 0 ? Status()
                                : check_block(static_cast<std::uint32_t>(blocks_[index]),
                                              data.bytes(), job.object.key);
    }));
    if (job.kind == Job::Kind::kBlocks) return Status();
    ++report_.object_count;
    report_.stored_digest_count += digesters.stored_count();
    if (const std::string wrong = digesters.compare(); !wrong.empty())
      add_problem(job.object.key, -1, Status(Code::kCorrupt, wrong));
    if (run_.dataset == nullptr) {
      report_.objects.push_back(
          {std::string(job.object.key), job.object.size_bytes, digesters.finish_asked()});
    }
    return Status();
  }

  // The blocks of the object and what lies between them, so that every byte comes once.
  void plan_pieces(const Job& job) {
    pieces_.clear();
    blocks_.clear();
    std::uint64_t at = 0;
    std::vector<Extent> extents;
    for (std::uint32_t block = job.first_block; block < job.end_block; ++block) {
      extents.clear();
      run_.dataset->append_extents(block, 0, run_.dataset->block(block).sample_count, extents);
      if (extents.empty()) continue;
      if (job.kind == Job::Kind::kObject) plan_gap(at, extents[0].offset_bytes);
      pieces_.push_back({extents[0].offset_bytes, extents[0].length_bytes});
      blocks_.push_back(block);
      at = extents[0].offset_bytes + extents[0].length_bytes;
    }
    if (job.kind == Job::Kind::kObject) plan_gap(at, job.object.size_bytes);
  }
  void plan_gap(std::uint64_t from, std::uint64_t to) {
    for (; from < to; from += run_.piece_bytes) {
      pieces_.push_back({from, std::min(run_.piece_bytes, to - from)});
      blocks_.push_back(-1);
    }
  }

  Status check_apart(std::uint32_t block) {
    std::vector<Extent> extents;
    const Block info = run_.dataset->block(block);
    const std::uint64_t size = run_.dataset->append_extents(block, 0, info.sample_count, extents);
    Slab slab;
    if (size > 0) {
      HEADRACE_TRY_ASSIGN(slab, run_.pool.acquire(size, run_.call.deadline));
    }
    for (const Extent& extent : extents) {
      const ScanPiece piece{extent.offset_bytes, extent.length_bytes};
      const ScanObject object{extent.key, extent.etag, 0, std::span(&piece, 1)};
      Status status = scan_extent(object, slab.bytes().subspan(extent.target_offset_bytes));
      if (status.ok()) continue;
      if (!is_about_object(status)) return status;
      const auto [first, count] = samples_in(extent.key, block, info.sample_count);
      add_problem(extent.key, static_cast<std::int64_t>(info.first_sample + first), status, count);
      return Status();
    }
    const std::string_view key = extents.empty() ? std::string_view() : extents[0].key;
    return check_block(block, std::span<const std::byte>(slab.bytes()).first(size), key);
  }

  // First and number of the block's samples that have bytes in an object.
  std::pair<std::uint32_t, std::uint32_t> samples_in(std::string_view key, std::uint32_t block,
                                                     std::uint32_t sample_count) const {
    std::vector<Extent> extents;
    const auto lies_in = [&](std::uint32_t i) {
      extents.clear();
      run_.dataset->append_extents(block, i, i + 1, extents);
      return std::any_of(extents.begin(), extents.end(),
                         [&](const Extent& extent) { return extent.key == key; });
    };
    std::uint32_t first = 0;
    while (first < sample_count && !lies_in(first)) ++first;
    std::uint32_t end = first;
    while (end < sample_count && lies_in(end)) ++end;
    return {first, end - first};
  }

  Status scan_extent(const ScanObject& object, std::span<std::byte> target) {
    return scan_.run(object, [&](std::size_t, RangeData data) {
      run_.read_bytes.fetch_add(data.length_bytes, std::memory_order_relaxed);
      std::copy_n(data.bytes().begin(), data.length_bytes, target.begin());
      return Status();
    });
  }

  // Errors: only those that end everything; what is wrong with the block becomes a problem.
  Status check_block(std::uint32_t block, std::span<const std::byte> stored, std::string_view key) {
    const Dataset& dataset = *run_.dataset;
    const Block info = dataset.block(block);
    BlockBytes bytes{.block = block, .begin = 0, .end = info.sample_count, .bytes = stored};
    SlabArena arena(run_.pool, Slab());
    Slab raw;
    std::shared_ptr<const DecodedBlock> decoded;
    Status status;
    if (dataset.is_decoded(block)) {
      auto made = dataset.decode(block, stored, arena);
      if (made) {
        decoded = *std::move(made);
        bytes.bytes = {};
        bytes.decoded = decoded.get();
      } else if (made.error().code() == Code::kExhausted) {
        return std::move(made).error();  // Not the fault of the data.
      } else {
        status = std::move(made).error();
      }
    } else if (dataset.is_compressed(block)) {
      if (info.raw_bytes > 0) {
        HEADRACE_TRY_ASSIGN(raw, run_.pool.acquire(info.raw_bytes, run_.call.deadline));
      }
      status = dataset.decompress(block, stored, raw.bytes().first(info.raw_bytes));
      bytes.bytes = raw.bytes().first(info.raw_bytes);
    }
    const auto first = static_cast<std::int64_t>(info.first_sample);
    if (!status.ok()) {
      add_problem(key, first, status, info.sample_count);
      return Status();
    }
    for (std::uint32_t i = 0; i < info.sample_count; ++i) {
      status = dataset.cut(bytes, i, cells_);
      if (status.ok()) {
        ++report_.sample_count;
      } else {
        add_problem(key, first + i, status, 1);
      }
    }
    return Status();
  }

  void add_problem(std::string_view key, std::int64_t position, const Status& status,
                   std::uint64_t sample_count = 0) {
    ++report_.problem_count;
    if (report_.problems.size() < run_.options.most_problems) {
      report_.problems.push_back(
          {std::string(key), position, sample_count, status.code(), std::string(status.message())});
    }
  }

  void end_all(Status status) {
    run_.is_over.store(true, std::memory_order_relaxed);
    MutexLock lock(run_.mutex);
    if (run_.fatal.ok()) run_.fatal = std::move(status);
  }

  void hand_in() {
    MutexLock lock(run_.mutex);
    VerifyReport& all = run_.report;
    all.object_count += report_.object_count;
    all.sample_count += report_.sample_count;
    all.stored_digest_count += report_.stored_digest_count;
    all.problem_count += report_.problem_count;
    std::move(report_.problems.begin(), report_.problems.end(), std::back_inserter(all.problems));
    std::move(report_.objects.begin(), report_.objects.end(), std::back_inserter(all.objects));
  }

  Run& run_;
  ObjectScan scan_;
  VerifyReport report_;
  std::vector<ColumnBytes> cells_;
  std::vector<ScanPiece> pieces_;
  std::vector<std::int64_t> blocks_;  ///< By piece; -1: bytes between blocks.
};

/// Plans the jobs of a dataset: one a block; one an object, its blocks included, where it has
/// stored digests and its blocks lie in it one after the other.
class JobPlanner {
 public:
  explicit JobPlanner(const Dataset& dataset) : dataset_(dataset) {}

  std::vector<Job> plan() {
    std::uint32_t block = 0;
    for (std::uint32_t s = 0; s < dataset_.shard_count(); ++s) {
      const std::uint32_t first = block;
      while (block < dataset_.block_count() && dataset_.block(block).shard == s) ++block;
      plan_shard(dataset_.shard(s), first, block);
    }
    return std::move(jobs_);
  }

 private:
  void plan_shard(const Dataset::Shard& shard, std::uint32_t first, std::uint32_t end) {
    const bool is_hashed = !shard.hashes.empty();
    const bool is_in_order = lie_in_order(shard, first, end);
    const Object object{shard.key, shard.etag, shard.size_bytes, shard.hashes};
    if (is_hashed) jobs_.push_back({object, Job::Kind::kObject, first, is_in_order ? end : first});
    if (is_hashed && is_in_order) return;
    const std::uint32_t step = is_in_order ? kBlocksPerJob : 1;
    const Job::Kind kind = is_in_order ? Job::Kind::kBlocks : Job::Kind::kApart;
    for (std::uint32_t block = first; block < end; block += step)
      jobs_.push_back({object, kind, block, std::min(block + step, end)});
  }

  bool lie_in_order(const Dataset::Shard& shard, std::uint32_t first, std::uint32_t end) {
    std::uint64_t at = 0;
    for (std::uint32_t block = first; block < end; ++block) {
      extents_.clear();
      dataset_.append_extents(block, 0, dataset_.block(block).sample_count, extents_);
      if (extents_.empty()) continue;
      if (extents_.size() > 1 || extents_[0].key != shard.key || extents_[0].offset_bytes < at)
        return false;
      at = extents_[0].offset_bytes + extents_[0].length_bytes;
    }
    return at <= shard.size_bytes;
  }

  const Dataset& dataset_;
  std::vector<Job> jobs_;
  std::vector<Extent> extents_;
};

/// How many workers, and how many pieces each, so that all can go on whatever they hold.
struct Shares {
  std::size_t worker_count = 1;
  std::size_t depth = 1;
};

Result<Shares> share_memory(const Run& run, std::uint64_t largest_block_bytes) {
  const std::uint64_t piece = std::max(run.piece_bytes, largest_block_bytes);
  const std::uint64_t usable = run.usable_bytes;
  // A block that is read apart is copied once.
  const std::uint64_t least = 3 * largest_block_bytes;
  if (least > usable) {
    return Status(Code::kExhausted,
                  fmt::format("memory of {} bytes is too small for blocks of {}; give at least {}",
                              run.pool.limit_bytes(), largest_block_bytes, least / 4 * 5 + 5));
  }
  const std::uint64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::uint64_t wanted = run.options.worker_count > 0 ? run.options.worker_count : cores;
  Shares shares;
  shares.worker_count =
      std::clamp<std::uint64_t>(usable / (kDepth * piece + 2 * largest_block_bytes), 1, wanted);
  const std::uint64_t each = usable / shares.worker_count;
  shares.depth =
      each < 2 * largest_block_bytes + piece
          ? 1
          : std::clamp<std::uint64_t>((each - 2 * largest_block_bytes) / piece, 1, kDepth);
  shares.worker_count = std::min(shares.worker_count, std::max<std::size_t>(run.jobs.size(), 1));
  return shares;
}

Result<VerifyReport> run_jobs(Run& run, std::uint64_t largest_block_bytes) {
  HEADRACE_TRY_ASSIGN(const Shares shares, share_memory(run, largest_block_bytes));
  std::uint64_t all_bytes = 0;
  for (const Job& job : run.jobs) {
    if (job.kind == Job::Kind::kObject) all_bytes += job.object.size_bytes;
    for (auto b = job.first_block; job.kind != Job::Kind::kObject && b < job.end_block; ++b)
      all_bytes += run.dataset->block(b).stored_bytes;
  }
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t left = shares.worker_count;
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < shares.worker_count; ++i) {
    threads.emplace_back([&] {
      Worker(run, shares.depth).work();
      const std::lock_guard lock(mutex);
      --left;
      ended.notify_one();
    });
  }
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
  detail::Run run(&dataset, store, pool, options, call);
  run.jobs = detail::JobPlanner(dataset).plan();
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
  detail::Run run(nullptr, store, pool, options, call);
  for (const ObjectInfo& object : objects)
    run.jobs.push_back({.object = {object.key, object.etag, object.size_bytes, {}},
                        .kind = detail::Job::Kind::kObject,
                        .first_block = 0,
                        .end_block = 0});
  return detail::run_jobs(run, 0);
}

}  // namespace headrace
