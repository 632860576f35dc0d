#pragma once
/// \file
/// ShardWorker: makes shards one after another: reads the files of a shard many at a time into its
/// image, hashes and compresses it, and writes it while the next one is being read. Files of a
/// directory are read in the worker's own thread (LocalFiles, LocalShard).
///
/// Threads: one owner. Workers share the pool and the plan.
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "headrace/store.h"
#include "io/read_budget.h"
#include "io/uploader.h"
#include "pack/local_files.h"
#include "pack/memory_share.h"
#include "pack/plan.h"
#include "pack/shard_image.h"
#include "store/submit_queue.h"

namespace headrace::pack_detail {

/// A shard that has been written.
struct FinishedShard {
  std::uint64_t shard = 0;
  ShardFacts facts;
};

class ShardWorker {
 public:
  /// Ends the transfers before the names and versions that their requests refer to.
  ~ShardWorker() {
    target_.reset();
    source_.reset();
  }
  /// `reads`: of all workers; outlives them. `may_write`: asked directly before a shard can appear
  /// in the target, since making one takes long; its error ends that.
  static Result<std::unique_ptr<ShardWorker>> create(const PackPlan& plan, const MemoryShare& share,
                                                     SlabPool& pool, io::ReadBudget& reads,
                                                     Store& source, Store& target,
                                                     std::function<Status()> may_write);

  /// Makes one shard. It may still be on its way to the target afterwards: shards that have arrived
  /// are appended to `finished`, in any order. Errors: kCancelled (stop), those of the stores; the
  /// worker is then of no further use.
  Status make(std::uint64_t shard, std::stop_token stop, std::vector<FinishedShard>& finished);
  /// Waits until every shard made has arrived.
  Status flush(std::stop_token stop, std::vector<FinishedShard>& finished);

 private:
  struct Put {
    FinishedShard shard;
    std::uint64_t charged_bytes = 0;
  };

  ShardWorker(const PackPlan& plan, const MemoryShare& share, SlabPool& pool, io::ReadBudget& reads,
              std::unique_ptr<Store> source, std::unique_ptr<Store> target,
              std::function<Status()> may_write)
      : plan_(plan),
        share_(share),
        pool_(pool),
        reads_(reads),
        source_(std::move(source)),
        target_(std::move(target)),
        queue_(*target_),
        may_write_(std::move(may_write)) {}

  Result<Slab> acquire(std::uint64_t size_bytes, std::stop_token stop,
                       std::vector<FinishedShard>& finished);
  Status read_window(std::uint64_t shard, std::uint64_t begin, std::span<std::byte> window,
                     std::stop_token stop);
  Status check_empty_files(std::uint64_t shard);
  Status read_locally(std::span<std::byte> window, std::stop_token stop);
  Status make_whole(std::uint64_t shard, std::stop_token stop,
                    std::vector<FinishedShard>& finished);
  Status make_locally(std::uint64_t shard, std::stop_token stop,
                      std::vector<FinishedShard>& finished);
  Status make_in_parts(std::uint64_t shard, std::stop_token stop,
                       std::vector<FinishedShard>& finished);
  Status put_parts(FinishedShard& done, io::Uploader& uploader, std::stop_token stop);
  Result<Slab> compress(std::span<const std::byte> image, ShardFacts& facts, std::stop_token stop,
                        std::vector<FinishedShard>& finished);
  Status submit_put(std::unique_ptr<Put> put, Slab slab);
  Status reap_puts(std::vector<FinishedShard>& finished);
  Status take_put(Completion completion, std::vector<FinishedShard>& finished);
  Status wait_put(std::stop_token stop, std::vector<FinishedShard>& finished);

  const PackPlan& plan_;
  const MemoryShare share_;
  SlabPool& pool_;
  io::ReadBudget& reads_;
  std::unique_ptr<Store> source_;
  std::unique_ptr<Store> target_;
  SubmitQueue queue_;  ///< Of whole shards on their way to target_.
  const std::function<Status()> may_write_;
  std::optional<LocalFiles> files_;  ///< Of a source that is a directory.
  std::string target_directory_;     ///< Of a target that is one; else empty.
  Slab local_buffer_;
  std::vector<std::unique_ptr<Put>> puts_;
  std::uint64_t put_bytes_ = 0;     ///< Charged to images on their way.
  std::uint64_t making_bytes_ = 0;  ///< Charged to slabs of the shard being made.
  std::vector<FileRange> ranges_;   ///< Of the window being read; a member to keep its memory.
};

}  // namespace headrace::pack_detail
