#pragma once
/// \file
/// Pack: turns a tree of files into shards (MDS or WebDataset tar), in parallel, resumable, with
/// the same bytes every time.
///
/// Threads: pack() blocks and runs its own workers; progress is called from the calling thread.
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

struct PackOptions {
  std::string format = "mds";  ///< "mds" or "webdataset".
  std::uint64_t shard_bytes =
      std::uint64_t{64} << 20;  ///< Upper size of a shard, bytes; one larger sample gets its own.
  std::string compression;      ///< MDS: "" or "zstd" or "zstd:LEVEL". WebDataset: "".
  std::string hash;             ///< MDS: "" or "sha1", "sha256", "xxh64", "xxh3_64".
  /// Tokens: join the files' bytes, each followed by token 256, cut into samples of this many
  /// uint16 tokens (the rest at the end of a job's part is carried on, so only the last incomplete
  /// sample of the dataset is dropped). 0: one sample a file, columns "data" (bytes) and "key"
  /// (str).
  std::uint32_t tokens_per_sample = 0;
  std::uint32_t worker_count = 0;  ///< 0: number of cores.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  std::function<void(std::uint64_t files_done, std::uint64_t files_total,
                     std::uint64_t bytes_written)>
      progress;
};

struct PackResult {
  std::uint64_t file_count = 0, sample_count = 0, shard_count = 0;
  std::uint64_t read_bytes = 0, written_bytes = 0;
  std::uint64_t resumed_shard_count =
      0;  ///< Shards found complete from an earlier, interrupted run.
};

/// Packs every object below the root of `source` (in byte order of the key) into the root of
/// `target`. Bytes depend only on the files and options, not on workers or timing. A run that was
/// killed goes on where it stood: finished shards are recognised and kept; a target that holds a
/// *different* pack is kInvalidArgument and stays untouched. Errors: kNotFound (no files),
/// kInvalidArgument, kUnsupported, kCancelled, and those of the stores.
Result<PackResult> pack(Store& source, Store& target, const PackOptions& options,
                        std::stop_token stop = {});

}  // namespace headrace
