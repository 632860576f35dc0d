#pragma once
/// \file
/// ChunkReader: byte ranges of many chunks, read piece by piece and many at once, each chunk's one
/// after another.
///
/// Place: under litdata_build.cc, over RangeFetcher.
///
/// Threads: one owner.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/range_fetcher.h"
#include "shard/dataset/build.h"

namespace headrace::detail {

class ChunkReader {
 public:
  /// `keys` must outlive the reader.
  static Result<ChunkReader> create(const BuildContext& context,
                                    const std::vector<std::string_view>& keys);

  /// Asks for [begin, begin + length_bytes) of a chunk. \pre length_bytes > 0, nothing of this
  /// chunk is being read.
  void start(std::size_t chunk, std::uint64_t begin, std::uint64_t length_bytes);

  /// Waits until a range has arrived, or all that there is of it, and returns its chunk. \pre
  /// something was started. Errors: those of a kGet but kNotFound.
  Result<std::size_t> next();
  /// Whether it arrived as a whole. Errors: kCorrupt (the object ends before the range does),
  /// kNotFound.
  Status check(std::size_t chunk) const;

  /// What arrived last of a chunk.
  std::span<const std::byte> bytes(std::size_t chunk) const {
    return std::as_bytes(std::span(ranges_[chunk].bytes));
  }
  const std::string& etag(std::size_t chunk) const { return ranges_[chunk].etag; }
  /// Size of the object; 0 until a range arrived, or when the store does not tell.
  std::uint64_t object_bytes(std::size_t chunk) const { return ranges_[chunk].object_bytes; }
  /// Forgets what arrived of a chunk.
  void release(std::size_t chunk) { std::string().swap(ranges_[chunk].bytes); }

 private:
  struct Range {
    std::string bytes, etag;
    std::uint64_t begin = 0, length_bytes = 0, object_bytes = 0;
    bool is_missing = false;
  };
  ChunkReader(const BuildContext& context, const std::vector<std::string_view>& keys,
              std::unique_ptr<RangeFetcher> fetcher);
  void request(std::size_t chunk);

  const std::vector<std::string_view>* keys_;
  std::unique_ptr<RangeFetcher> fetcher_;
  std::vector<Range> ranges_;
  std::uint64_t piece_bytes_ = 0;
};

}  // namespace headrace::detail
