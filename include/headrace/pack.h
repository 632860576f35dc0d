#pragma once
/// \file
/// Pack: turns a tree of files into shards (MDS or WebDataset tar), in parallel, resumable, with
/// the same bytes every time; and ShardBuilder, which makes one shard of any format from the
/// samples of a dataset or of a program.
///
/// Threads: pack() blocks and runs its own workers; progress is called from the calling thread. A
/// ShardBuilder has one owner.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "headrace/dataset.h"
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
  /// Plan only: nothing is read or written; PackResult::written_bytes is the size before
  /// compression.
  bool is_dry_run = false;
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

/// How many samples readers see when the files of a raw dataset are members of WebDataset tars
/// under their own names: its column "key" is then PackColumn::kFileName. 0: they would not see
/// what is meant.
std::uint64_t count_samples_in_tars(const Dataset& dataset);

/// A column of the samples that a ShardBuilder is given.
struct PackColumn {
  /// WebDataset: a str column of this name says what the member of the first other column is
  /// called; further ones are members beside the first file of each sample. "__key__" says it
  /// without the suffix, which is then the name of each column.
  static constexpr std::string_view kFileName = "__file__";
  Column source;     ///< What its cells are. Encoding "ascii:int": decimal text.
  std::string name;  ///< Its name in the shard; empty: left out.
  /// MDS only: encoding to write into the index for bytes that are handed on ("jpeg" for a column
  /// of "bytes"); empty: that of the source.
  std::string encoding = {};
};

struct ShardFormat {
  std::string format = "mds";       ///< "mds", "webdataset", "tfrecord", "litdata".
  std::vector<PackColumn> columns;  ///< One a cell, in the order of the cells.
  std::uint64_t shard_bytes = std::uint64_t{64} << 20;  ///< Written into indexes as the limit.
  std::string
      compression;   ///< "", "zstd[:LEVEL]" (MDS, LitData), "gzip[:LEVEL]" (WebDataset, TFRecord).
  std::string hash;  ///< As PackOptions::hash.
};

struct BuiltShard {
  std::vector<std::byte> bytes;  ///< The object to write.
  std::uint64_t sample_count = 0;
  std::uint64_t raw_bytes = 0;  ///< Before compression.
  std::string raw_hash, zip_hash;
};

/// Makes shards in memory, one after the other. Bytes depend on samples and format alone.
class ShardBuilder {
 public:
  /// Errors: kUnsupported (format, compression, hash, a column whose encoding the format cannot
  /// hold), kInvalidArgument (names).
  static Result<std::unique_ptr<ShardBuilder>> create(const ShardFormat& format);
  virtual ~ShardBuilder() = default;

  /// Encodes one sample and returns the size (before compression) that the shard would have with
  /// it; commit() then adds it. `number` names it where the format needs a name. Errors:
  /// kInvalidArgument (a value is missing), kUnsupported, kCorrupt: name the column.
  virtual Result<std::uint64_t> stage(std::span<const ColumnBytes> cells, std::uint64_t number) = 0;
  virtual void commit() = 0;
  /// Adds samples [begin, end) of a dataset whose columns the cells are. `pool` lends memory for
  /// one block at a time. Errors: those of stage(), of kGet, decompress, decode and cut.
  virtual Status add_samples(const Dataset& dataset, Store& store, SlabPool& pool,
                             std::uint64_t begin, std::uint64_t end, const CallOptions& call) = 0;

  virtual std::uint64_t sample_count() const noexcept = 0;  ///< Of the shard being made.
  virtual std::uint64_t raw_bytes() const noexcept = 0;
  /// Ends the shard; the next sample begins another. A staged sample stays staged. Errors:
  /// kInvalidArgument (4 GiB or more where offsets have 32 bits).
  virtual Result<BuiltShard> take() = 0;
  /// JSON object that an index repeats: MDS for every shard, LitData once. "{}" for others.
  virtual std::string config_json() const = 0;
};

}  // namespace headrace
