#pragma once
/// \file
/// ObjectScan: pieces of objects in the order they lie, read ahead of whoever looks at them.
///
/// Place: src/io/; verify has one a worker, and what is written to a pipe is read by one. A failed
/// read ends the scan of that object, and no more.
///
/// Threads: one owner.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "headrace/range_fetcher.h"

namespace headrace::io {

/// Bytes [offset, offset + length) of an object; length > 0.
struct ScanPiece {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
};

struct ScanObject {
  std::string_view key;
  std::string_view etag;         ///< Empty: any version.
  std::uint64_t size_bytes = 0;  ///< Expected, else kChanged; 0: not known.
  std::span<const ScanPiece> pieces;
  bool is_fresh = false;  ///< Request::fresh_connection.
};

class ObjectScan {
 public:
  /// Keeps at most `depth` pieces in memory at once. `budget`: as in RangeFetcher::Options.
  ObjectScan(Store& store, SlabPool& pool, CallOptions call, std::size_t depth,
             ReadBudget* budget = nullptr)
      : store_(store), pool_(pool), call_(std::move(call)), depth_(depth), budget_(budget) {}

  /// Hands the pieces over one after the other. Errors: kChanged, those of kGet, and what `take`
  /// returned, which ends the scan.
  Status run(const ScanObject& object,
             const std::function<Status(std::size_t index, RangeData data)>& take);

 private:
  Status run_pieces(const ScanObject& object,
                    const std::function<Status(std::size_t, RangeData)>& take);

  Store& store_;
  SlabPool& pool_;
  const CallOptions call_;
  const std::size_t depth_;
  ReadBudget* const budget_;
  std::unique_ptr<RangeFetcher> fetcher_;  ///< Made anew after a failure.
};

}  // namespace headrace::io
