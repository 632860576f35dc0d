#pragma once
/// \file
/// RangeFetcher: many ranged GETs in flight; the caller starts reads and takes them as they finish.
/// The one read loop: indexes, verify, packing, single samples and get_ranges() read with it.
///
/// Place: src/io/, over Store and SlabPool.
///
/// Threads: one owner.
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/store.h"

namespace headrace {

class SubmitQueue;

namespace io {
class ReadBudget;
}  // namespace io

/// Called about every kPauseSlice while a call waits; throws to give up (KeyboardInterrupt). May be
/// empty.
using Pause = std::function<void()>;
inline constexpr std::chrono::milliseconds kPauseSlice{50};

struct RangeRead {
  std::string_view key;   ///< Must live until the read was taken, or the fetcher is gone.
  std::string_view etag;  ///< Empty: any version. Same lifetime.
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;  ///< 0: the store says what it thinks of it.
  bool allow_short = false;
  bool is_fresh = false;  ///< Request::fresh_connection.
  bool is_head = false;   ///< A kHead; `length_bytes` is 0.
  std::uint64_t tag = 0;
  /// Where in the slab the bytes are to start; the slab is as much larger.
  std::uint64_t slab_offset_bytes = 0;
};

struct RangeData {
  std::uint64_t tag = 0;
  Slab slab;
  std::uint64_t slab_offset_bytes = 0;
  std::uint64_t length_bytes = 0;       ///< Bytes of `slab` that were read.
  std::uint64_t object_size_bytes = 0;  ///< 0: the store did not tell.
  std::string etag;                     ///< Empty when the read named one.
  Checksum object_checksum;             ///< As in Completion.
  std::span<const std::byte> bytes() const noexcept {
    return slab.bytes().subspan(length_bytes == 0 ? 0 : slab_offset_bytes, length_bytes);
  }
};

class RangeFetcher {
 public:
  /// More than any store has on the wire; how many of them are is found by its own control.
  static constexpr std::size_t kMostInFlight = 512;

  struct Options {
    /// Deadline of each read, the version that all read if they name one, and stop of all. The
    /// latter is looked at while next() waits.
    CallOptions call = {};
    std::size_t max_in_flight = kMostInFlight;
    /// Of memory that reads in flight or ready hold; one read may exceed it alone. How much of it
    /// is used follows what it brings (docs/design/0039).
    std::uint64_t max_bytes = ~std::uint64_t{0};
    /// What it follows, for fetchers that read one after the other or beside each other; outlives
    /// them. Null: one of its own.
    io::ReadBudget* budget = nullptr;
    Pause pause = {};
    /// Asked for memory when nothing is in flight and the pool has none; empty: waits for the pool
    /// until the deadline.
    std::function<Result<Slab>(std::size_t size_bytes)> acquire = {};
  };

  /// On a handle of its own. Errors: those of Store::new_handle().
  static Result<std::unique_ptr<RangeFetcher>> create(Store& store, SlabPool& pool,
                                                      Options options);
  /// On a handle that nobody else uses and that outlives it.
  RangeFetcher(Store& handle, SlabPool& pool, Options options);
  /// Cancels what is in flight and waits for its end.
  ~RangeFetcher();
  RangeFetcher(const RangeFetcher&) = delete;
  RangeFetcher& operator=(const RangeFetcher&) = delete;

  const Store& store() const noexcept { return handle_; }
  /// Queues a read. Never blocks.
  void start(const RangeRead& read) { waiting_.push_back(read); }
  /// Reads started and not yet taken.
  std::size_t pending() const noexcept;
  /// Reads finished and not yet taken: next() does not wait.
  std::size_t ready() const noexcept { return inbox_count_ - inbox_taken_; }

  /// The next read to finish; blocks. \pre pending() > 0. Errors: those of a kGet, kInvalidArgument
  /// (a read larger than the pool's limit), kExhausted, kCancelled, kDeadline. After an error of a
  /// read the others go on; `tag`, when given, says whose it is.
  Result<RangeData> next(std::uint64_t* tag = nullptr);

 private:
  /// A read in flight. The store may look at its names until it has completed: they are ours, since
  /// the caller's may go first when reading fails.
  struct Slot {
    std::string key, etag;
    std::uint64_t tag = 0;
    std::uint64_t slab_offset_bytes = 0;
    std::uint64_t held_bytes = 0;
  };

  Status submit_some(std::uint64_t* tag);
  Result<Slab> take_memory(std::uint64_t size_bytes);
  void queue(const RangeRead& read, Slab slab);
  Result<RangeData> take_ready(std::uint64_t* tag);

  std::unique_ptr<Store> own_handle_;
  Store& handle_;
  SlabPool& pool_;
  const Options options_;
  std::unique_ptr<io::ReadBudget> own_budget_;
  io::ReadBudget& budget_;
  std::deque<RangeRead> waiting_;
  std::deque<Slot> slots_;  ///< By tag of a request; a deque keeps the names in place.
  std::vector<std::size_t> free_slots_;
  std::unique_ptr<SubmitQueue> queue_;
  std::uint64_t held_bytes_ = 0;  ///< Of reads in flight or ready.
  /// Completions that came together; all are taken before more are waited for.
  std::vector<Completion> inbox_;
  std::size_t inbox_count_ = 0;
  std::size_t inbox_taken_ = 0;
};

/// Starts `reads` (tags are set; those of no bytes are left out) and takes them all: the bytes of
/// each, in order. \pre fetcher.pending() == 0. Errors: as RangeFetcher::next().
Result<std::vector<std::string>> fetch_all(RangeFetcher& fetcher, std::vector<RangeRead> reads);

}  // namespace headrace
