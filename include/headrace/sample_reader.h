#pragma once
/// \file
/// SampleReader: samples of a dataset by position, outside of any epoch, for callers that wait.
///
/// Place: src/read/, over StoreClient and Dataset; hr.Dataset is made of it.
///
/// Threads: any thread.
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/store_client.h"

namespace headrace {

class SampleReader {
 public:
  SampleReader(std::shared_ptr<StoreClient> client, std::shared_ptr<const Dataset> dataset)
      : client_(std::move(client)), dataset_(std::move(dataset)) {}

  const std::shared_ptr<const Dataset>& dataset() const noexcept { return dataset_; }
  const std::shared_ptr<StoreClient>& client() const noexcept { return client_; }

  /// Takes the columns of the sample at `index` of the list asked for. May throw; the reading then
  /// ends.
  using Sink = std::function<Status(std::size_t index, std::span<const ColumnBytes> columns)>;

  /// Reads the samples at `positions` (each < sample_count()) and hands each to `sink` once, in any
  /// order; many reads are in flight, within the memory limit. Errors: those of kGet, decompress
  /// and cut; what `sink` returns.
  Status read(std::span<const std::uint64_t> positions, const Sink& sink, const Pause& pause);

 private:
  /// The samples asked for that lie in one block, or in one part of it.
  struct Job {
    std::uint32_t block = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::vector<std::size_t> indices;  // Into positions.
  };
  /// An inflated or unpacked block, kept because the next call likely asks for its neighbours.
  struct Ready {
    std::uint32_t block = 0;
    Slab raw;
    std::optional<SlabArena> arena;  ///< Of an unpacked block, in place of `raw`.
    std::shared_ptr<const UnpackedBlock> unpacked;
    std::uint64_t size_bytes() const noexcept {
      return arena ? arena->size_bytes() : raw.size_bytes();
    }
  };
  std::vector<Job> plan(std::span<const std::uint64_t> positions) const;
  /// What one call of read() works on.
  struct Call {
    std::span<const std::uint64_t> positions;
    const Sink& sink;
    const Pause& pause;
    std::vector<std::size_t> doubtful = {};  ///< Their bytes made no sense: to be read again.
  };
  /// False when it is no single range, or one to be cut.
  bool start(RangeFetcher& fetcher, const Job& job, std::uint64_t tag) const;
  Status read_plain(std::span<const Job> jobs, Call& call);
  /// A job that is no single range: fetched and cut before the next.
  Status read_apart(const Job& job, Call& call);
  /// As the client reads, but kept blocks are given up before memory is short.
  RangeFetcher::Options read_options(const Pause& pause);
  Result<Slab> fetch_job(const Job& job, bool is_fresh, const Pause& pause);
  /// Waits for memory, giving up kept blocks first.
  Result<Slab> acquire(std::size_t size_bytes, const Pause& pause);
  bool forget_oldest();
  std::shared_ptr<const Ready> find_kept(std::uint32_t block);
  void forget(std::uint32_t block);
  void keep(std::shared_ptr<const Ready> ready);
  using Made = Result<std::shared_ptr<const Ready>>;
  /// Fetches a block and makes it ready. `digest`: of its stored bytes, where that is kCorrupt or
  /// `is_fresh`.
  Made read_block(const Job& job, bool is_fresh, std::optional<std::uint64_t>& digest,
                  const Pause& pause);
  /// `bytes`: as stored. Errors also: kCorrupt.
  Made make_block(std::uint32_t block, std::span<const std::byte> bytes, const Pause& pause);
  BlockBytes bytes_of(const Ready& ready) const;
  /// Cuts the samples of a job; those that cannot be cut from `bytes` become doubtful.
  Status cut(const Job& job, const BlockBytes& bytes, Call& call) const;
  Status cut(const Job& job, std::span<const std::byte> bytes, Call& call) const;
  /// Reads blocks beside each other. To be read one by one afterwards are in `left`: those that are
  /// kept, lie in many objects, made no sense, or found no memory.
  Status read_blocks(std::span<const Job> jobs, Call& call, std::vector<const Job*>& left);
  Status read_whole(const Job& job, Call& call);
  Status read_doubtful(Call& call);
  /// Reads one doubtful sample on connections of its own, until it makes sense or its data is at
  /// fault.
  Status read_again(std::size_t index, const Call& call);

  std::shared_ptr<StoreClient> client_;
  std::shared_ptr<const Dataset> dataset_;
  std::mutex mutex_;
  std::list<std::shared_ptr<const Ready>> kept_;  ///< Used last first; few.
};

}  // namespace headrace
