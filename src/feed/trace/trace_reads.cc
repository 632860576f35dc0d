// One rank after the other: ranks share nothing but the cache, which is simulated later. After the
// beginning of each epoch its forecast is waited for, so that a trace does not depend on how fast
// this machine computes one; the cache takes it in at the read where the epoch began.
#include "headrace/trace_reads.h"

#include <algorithm>
#include <string>
#include <utility>

#include "feed/trace/hollow_dataset.h"
#include "feed/trace/trace_store.h"
#include "tier/extent_file.h"

namespace headrace {
namespace {

using feed::TraceLog;

constexpr std::chrono::milliseconds kSlice{50};
constexpr std::uint64_t kReportEvery = 64;

/// Which block a read is of.
class BlockFinder {
 public:
  BlockFinder(const Dataset& dataset, feed::ObjectNumbers& numbers) {
    std::vector<Extent> extents;
    for (std::uint32_t block = 0; block < dataset.block_count(); ++block) {
      extents.clear();
      dataset.append_extents(block, 0, dataset.block(block).sample_count, extents);
      for (const Extent& extent : extents) {
        if (extent.length_bytes == 0) continue;
        places_.push_back({numbers.number(extent.key, extent.etag), extent.offset_bytes,
                           extent.length_bytes, block});
      }
    }
    std::sort(places_.begin(), places_.end());
  }

  /// By block of a read the value in `by_block`; the least of blocks that share its bytes.
  std::uint64_t least(const ReadTrace::Read& read,
                      const std::vector<std::uint64_t>& by_block) const {
    auto at = std::upper_bound(places_.begin(), places_.end(),
                               Place{read.object, read.offset_bytes, UINT64_MAX, UINT32_MAX});
    std::uint64_t found = kNever;
    while (at != places_.begin()) {
      --at;
      if (at->object != read.object || at->offset_bytes + at->length_bytes <= read.offset_bytes)
        break;
      found = std::min(found, by_block[at->block]);
    }
    return found;
  }

  /// Adds up what a cache would hold of it all.
  void measure(ReadTrace& trace) const {
    const Place* last = nullptr;
    for (const Place& place : places_) {
      const bool is_same = last != nullptr && last->object == place.object &&
                           last->offset_bytes == place.offset_bytes;
      last = &place;
      if (is_same) continue;
      trace.data_bytes += place.length_bytes;
      trace.file_bytes += tier::file_bytes({{}, place.offset_bytes, place.length_bytes});
    }
  }

 private:
  struct Place {
    std::uint32_t object = 0;
    std::uint64_t offset_bytes = 0, length_bytes = 0;
    std::uint32_t block = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  std::vector<Place> places_;
};

class RankTracer {
 public:
  RankTracer(TraceLog& log, const BlockFinder& blocks, std::uint32_t rank, std::stop_token stop)
      : log_(log), blocks_(blocks), rank_(rank), stop_(std::move(stop)) {}

  /// `progress`: batches of this rank so far.
  Status run(Loader& loader, std::uint64_t epochs,
             const std::function<void(std::uint64_t)>& progress) {
    std::uint64_t batches = 0;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      HEADRACE_TRY_ASSIGN(const auto needs, loader.block_needs(1, rank_, 1, stop_));
      HEADRACE_TRY(loader.start_epoch(stop_));
      HEADRACE_TRY(wait_for_plan(epoch));
      const std::uint64_t before = batches;
      while (true) {
        auto batch = loader.next(system_clock().now() + kSlice, stop_);
        if (!batch && batch.error().code() == Code::kDeadline) continue;
        if (!batch) return std::move(batch).error();
        if (*batch == nullptr) break;
        note_batch(needs, before);
        if (++batches % kReportEvery == 0 && progress) progress(batches);
      }
      MutexLock lock(log_.mutex);
      log_.rank.epoch_batches.push_back(batches - before);
    }
    return {};
  }

 private:
  Status wait_for_plan(std::uint64_t epoch) {
    MutexLock lock(log_.mutex);
    while (log_.rank.plans.size() <= epoch) {
      if (stop_.stop_requested()) return Status(Code::kCancelled, "cancelled");
      lock.wait_until(log_.told, system_clock().now() + kSlice);
    }
    return {};
  }

  /// A batch was taken: what was read before it is known, and when that is needed.
  void note_batch(const std::vector<std::uint64_t>& needs, std::uint64_t before) {
    MutexLock lock(log_.mutex);
    ReadTrace::Rank& rank = log_.rank;
    const std::uint64_t batch = rank.reads_before.size();
    for (; noted_ < rank.reads.size(); ++noted_) {
      const std::uint64_t need = blocks_.least(rank.reads[noted_], needs);
      rank.reads[noted_].need = need == kNever ? batch : std::max(batch, before + need);
    }
    rank.reads_before.push_back(rank.reads.size());
  }

  TraceLog& log_;
  const BlockFinder& blocks_;
  const std::uint32_t rank_;
  const std::stop_token stop_;
  std::size_t noted_ = 0;
};

}  // namespace

Result<ReadTrace> trace_reads(std::shared_ptr<const Dataset> dataset, Store& store,
                              const TraceOptions& options, const std::stop_token& stop) {
  if (options.ranks == 0 || options.loader.rank >= options.loader.world_size ||
      options.ranks > options.loader.world_size - options.loader.rank)
    return Status(Code::kInvalidArgument, "trace: there are no such ranks");
  const auto hollow = std::make_shared<const feed::HollowDataset>(dataset);
  feed::ObjectNumbers numbers;
  const BlockFinder blocks(*dataset, numbers);
  ReadTrace trace;
  blocks.measure(trace);
  for (std::uint32_t i = 0; i < options.ranks; ++i) {
    LoaderOptions own = options.loader;
    own.rank += i;
    auto log = std::make_shared<TraceLog>(numbers);
    HEADRACE_TRY_ASSIGN(auto handle, store.new_handle());
    HEADRACE_TRY_ASSIGN(auto pool, SlabPool::create({.limit_bytes = options.memory_bytes}));
    HEADRACE_TRY_ASSIGN(
        auto loader,
        Loader::create(hollow, std::make_unique<feed::TraceStore>(std::move(handle), log),
                       std::move(pool), own));
    RankTracer tracer(*log, blocks, own.rank, stop);
    HEADRACE_TRY_ASSIGN(const std::uint64_t epoch_batches, loader->epoch_batches(stop));
    const std::uint64_t all = epoch_batches * options.epochs;
    HEADRACE_TRY(tracer.run(*loader, options.epochs, [&](std::uint64_t batches) {
      if (options.progress) options.progress(i * all + batches, options.ranks * all);
    }));
    loader.reset();
    MutexLock lock(log->mutex);
    trace.ranks.push_back(std::move(log->rank));
  }
  return trace;
}

}  // namespace headrace
