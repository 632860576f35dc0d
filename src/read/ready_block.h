#pragma once
/// \file
/// A block on its way from the bytes as stored to bytes that samples are cut from: the steps that
/// everybody who reads blocks shares. When to read, and whose memory it takes, is the caller's.
///
/// Place: src/read/, over Dataset and RangeFetcher; feed/, pack/, verify and single samples.
///
/// Threads: functions; make_ready() from any thread.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "headrace/dataset.h"
#include "headrace/range_fetcher.h"
#include "headrace/second_look.h"

namespace headrace::read {

/// Reads `extents` into `target`, laid out as they say, in requests of at most `most_bytes`, many
/// in flight; objects that are cut for that are compared with the sum that the store keeps, and
/// read again where they differ. `is_fresh`: Request::fresh_connection. `failed`, when given: the
/// extent of the error. \pre fetcher.pending() == 0; after an error the fetcher is of no further
/// use. Errors: those of RangeFetcher::next().
Status fetch_extents(RangeFetcher& fetcher, std::span<const Extent> extents,
                     std::uint64_t most_bytes, bool is_fresh, std::span<std::byte> target,
                     std::size_t* failed = nullptr);

/// fetch_extents() for a caller that waits, by a fetcher that is made when it is first needed and
/// kept for the next time; after an error another one. One owner.
class ExtentReader {
 public:
  ExtentReader(Store& store, SlabPool& pool, CallOptions call, std::uint64_t most_bytes)
      : store_(store), pool_(pool), call_(std::move(call)), most_bytes_(most_bytes) {}
  Status read(std::span<const Extent> extents, bool is_fresh, std::span<std::byte> target,
              std::size_t* failed = nullptr);

 private:
  Store& store_;
  SlabPool& pool_;
  const CallOptions call_;
  const std::uint64_t most_bytes_;
  std::unique_ptr<RangeFetcher> fetcher_;
};

/// Makes a compressed block ready: unpacks `stored` into `arena`, or inflates it into the first
/// Block::raw_bytes of `raw`. What was unpacked is returned; null when it was inflated. CPU work,
/// may take Python's GIL. \pre the one that the block needs is given. Errors: those of
/// Dataset::decompress() and unpack().
Result<std::shared_ptr<const UnpackedBlock>> make_ready(const Dataset& dataset, std::uint32_t block,
                                                        std::span<const std::byte> stored,
                                                        std::span<std::byte> raw, SlabArena* arena);

/// What to cut the samples of a compressed block from, once make_ready() has returned `unpacked`.
BlockBytes ready_bytes(const Dataset& dataset, std::uint32_t block, std::span<const std::byte> raw,
                       const UnpackedBlock* unpacked);

/// Calls `try_once(is_fresh, digest)` until what it read makes sense, or the same bytes have come
/// twice: those are the data's fault. `try_once` sets `digest` of the bytes it read where it fails
/// with kCorrupt; where it cannot, that try is not compared, and there are SecondLook::kMostReads
/// of such. Returns what the last try returned, or SecondLook::never_same().
template <class TryOnce>
auto read_surely(TryOnce&& try_once, bool is_fresh = false)
    -> decltype(try_once(is_fresh, std::declval<std::optional<std::uint64_t>&>())) {
  const auto status_of = [](const auto& outcome) -> const Status& {
    if constexpr (std::is_same_v<std::decay_t<decltype(outcome)>, Status>) {
      return outcome;
    } else {
      return outcome.error();
    }
  };
  const auto is_good = [](const auto& outcome) {
    if constexpr (std::is_same_v<std::decay_t<decltype(outcome)>, Status>) {
      return outcome.ok();
    } else {
      return outcome.has_value();
    }
  };
  SecondLook look;
  for (std::size_t blind_count = 0;; is_fresh = true) {
    std::optional<std::uint64_t> digest;
    auto outcome = try_once(is_fresh, digest);
    if (is_good(outcome) || status_of(outcome).code() != Code::kCorrupt) return outcome;
    if (!digest && ++blind_count < SecondLook::kMostReads) continue;
    if (!digest) return outcome;
    const SecondLook::Verdict verdict = look.take(*digest);
    if (verdict == SecondLook::Verdict::kNeverSame)
      return SecondLook::never_same(status_of(outcome));
    if (verdict == SecondLook::Verdict::kData) return outcome;
  }
}

}  // namespace headrace::read
