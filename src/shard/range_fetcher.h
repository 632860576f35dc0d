#pragma once
/// \file
/// RangeFetcher: many ranged GETs in flight while an index is built; the caller starts reads and
/// takes them as they finish.
///
/// Place: builders of each format over Store and SlabPool. Errors other than those of the store
/// never come from here.
///
/// Threads: one owner.
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/store.h"

namespace headrace::detail {

struct RangeRead {
  std::string_view key;   ///< Must live until the read is taken, or next() is called no more.
  std::string_view etag;  ///< Empty: any version. Same lifetime.
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;  ///< > 0
  bool allow_short = false;
  bool is_fresh = false;  ///< Request::fresh_connection.
  std::uint64_t tag = 0;
};

struct RangeData {
  std::uint64_t tag = 0;
  Slab slab;
  std::uint64_t length_bytes = 0;       ///< Bytes of `slab` that were read.
  std::uint64_t object_size_bytes = 0;  ///< 0: the store did not tell.
  std::string etag;                     ///< Empty when the read named one.
  std::span<const std::byte> bytes() const noexcept { return slab.bytes().first(length_bytes); }
};

class RangeFetcher {
 public:
  /// Enough to hide a first-byte time of 50 ms at 64 KiB a read; the store's own limits still hold.
  static constexpr std::size_t kMostInFlight = 64;

  static Result<std::unique_ptr<RangeFetcher>> create(Store& store, SlabPool& pool,
                                                      const CallOptions& call);

  /// Queues a read. Never blocks.
  void start(const RangeRead& read) { waiting_.push_back(read); }
  /// Reads started and not yet taken.
  std::size_t pending() const noexcept { return waiting_.size() + in_flight(); }
  /// The next read to finish; blocks. \pre pending() > 0. The first error ends the fetcher. Errors:
  /// those of a kGet, kInvalidArgument (a read larger than the pool's limit), kExhausted.
  Result<RangeData> next();

 private:
  RangeFetcher(std::unique_ptr<Store> handle, SlabPool& pool, const CallOptions& call)
      : pool_(pool), call_(call), handle_(std::move(handle)) {}
  std::size_t in_flight() const noexcept { return kMostInFlight - free_slots_.size(); }
  Status submit_some();

  /// A read in flight. The store may look at its names until it is taken, also while the handle is
  /// closed: they are ours, since the caller's may go first when reading fails.
  struct Slot {
    std::string key, etag;
    std::uint64_t tag = 0;
  };
  static std::vector<std::size_t> all_slots();

  SlabPool& pool_;
  const CallOptions& call_;
  std::deque<RangeRead> waiting_;
  std::array<Slot, kMostInFlight> slots_;
  std::vector<std::size_t> free_slots_ = all_slots();
  std::unique_ptr<Store> handle_;  // Closed before the names go.
};

/// Starts `reads` (tags are set; those of no bytes are left out) and takes them all: the bytes of
/// each, in order. \pre fetcher.pending() == 0. Errors: as RangeFetcher::next().
Result<std::vector<std::string>> fetch_all(RangeFetcher& fetcher, std::vector<RangeRead> reads);

}  // namespace headrace::detail
