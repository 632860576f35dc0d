#pragma once
/// \file
/// Dataset: shards, samples and blocks of a dataset as it lies in a store, by a memory-mapped side
/// index (`*.hri`).
///
/// What it answers: which byte ranges hold samples [a, b) of a block, where a sample starts inside
/// bytes that were read, and which bytes of a sample are which column. It never fetches while
/// training: feed/ fetches by the extents it names.
///
/// Place: src/shard/. Above it order/ (needs only the block table), feed/ and bindings. It knows
/// formats, not epochs.
///
/// Threads: immutable after open; every const function from any thread.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/memory.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

enum class Format : std::uint8_t { kAuto = 0, kMds = 1, kWebDataset = 2, kRaw = 3 };
/// "auto", "mds", "webdataset", "raw".
std::string_view format_name(Format format) noexcept;
Result<Format> parse_format(std::string_view name);

/// One column of every sample.
struct Column {
  std::string name;
  /// How the bytes mean a value: an MDS encoding name ("int", "str", "ndarray:uint16:1025", "jpeg",
  /// ...), or "bytes" for a WebDataset member, or for raw files "bytes" (column "data") and "str"
  /// (column "key").
  std::string encoding;
  /// For columns whose every value is one array of a known type: numpy dtype name ("uint16") and
  /// shape; "" otherwise. Scalars ("int", "float32", ...) have a dtype and an empty shape.
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t fixed_size_bytes = 0;  ///< Size of each value in bytes; 0: varies.
};

/// A run of consecutive samples of one shard: the unit of order and of residency.
struct Block {
  std::uint32_t shard = 0;
  std::uint32_t sample_count = 0;  ///< > 0
  std::uint64_t first_sample = 0;  ///< Dataset position of its first sample.
  std::uint64_t stored_bytes = 0;  ///< Bytes to read for the whole block.
  /// Bytes once ready to cut: equal to stored_bytes unless the shard is compressed as a whole.
  std::uint64_t raw_bytes = 0;
};

/// One byte range of one object version and where its bytes go. Views live as long as the Dataset.
struct Extent {
  std::string_view key;
  std::string_view etag;
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t target_offset_bytes = 0;  ///< Offset in the buffer that BlockBytes will look into.
};

/// Bytes of samples [begin, end) of a block, ready to cut (read, and decompressed if need be).
struct BlockBytes {
  std::uint32_t block = 0;
  std::uint32_t begin = 0;  ///< Index in the block of the first sample that the bytes hold.
  std::uint32_t end = 0;
  std::span<const std::byte> bytes;
};

/// One column of one sample inside BlockBytes (or inside the index). `present` is false when the
/// sample has no such member.
struct ColumnBytes {
  std::span<const std::byte> bytes;
  bool present = false;
};

struct DatasetOptions {
  Format format = Format::kAuto;
  /// Aim for the encoded size of a block, bytes. Larger: fewer requests, more memory per lane,
  /// coarser shuffle. 64 KiB .. 1 GiB; 0: 8 MiB, less for datasets below 8 GiB (a 1024th of them,
  /// at least 1 MiB).
  std::uint64_t block_bytes = 0;
  /// Directory for indexes built on first use; empty: build in memory only. Files are published by
  /// rename.
  std::string index_cache_dir;
  /// Look for `index.hri` beside the dataset first.
  bool use_stored_index = true;
  /// Open datasets with pickled columns (MDS encoding "pkl"); nothing here unpickles, but a decoder
  /// above may.
  bool allow_unsafe = false;
  /// Called from the opening thread with (shards done, shards in all) while an index is built.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
};

class Dataset {
 public:
  /// Opens the dataset at the root of `store`, using the index beside it, else the cached one, else
  /// building one
  /// (`pool` lends the memory for reading). The store is not kept.
  /// Errors: kNotFound (nothing there: names the URL), kInvalidArgument (not a dataset, mixed
  /// formats: names what was seen), kCorrupt (truncated shard, broken index), kChanged (the index
  /// does not match its shards), kUnsupported (encoding, compression), and those of the store.
  static Result<std::shared_ptr<const Dataset>> open(Store& store, SlabPool& pool,
                                                     const DatasetOptions& options,
                                                     const CallOptions& call = {});
  virtual ~Dataset() = default;

  virtual Format format() const noexcept = 0;
  virtual const std::string& url() const noexcept = 0;
  virtual const std::vector<Column>& columns() const noexcept = 0;
  virtual std::uint64_t sample_count() const noexcept = 0;
  virtual std::uint64_t stored_bytes() const noexcept = 0;  ///< Bytes of all shards as stored.
  /// 32 hex digits over format, schema and every shard's (key, size, version, sample count).
  /// Independent of where the dataset lies and of block_bytes.
  virtual const std::string& fingerprint() const noexcept = 0;

  struct Shard {
    std::string_view key;  ///< Object key relative to the root; for raw files the first of a run.
    std::string_view etag;
    std::uint64_t size_bytes = 0;
    std::uint64_t first_sample = 0;
    std::uint64_t sample_count = 0;
    std::string_view compression;  ///< "" or "zstd".
  };
  virtual std::uint32_t shard_count() const noexcept = 0;
  virtual Shard shard(std::uint32_t index) const = 0;

  virtual std::uint32_t block_count() const noexcept = 0;
  virtual Block block(std::uint32_t index) const = 0;
  /// Block that holds a dataset position. O(log B). \pre position < sample_count().
  virtual std::uint32_t block_of(std::uint64_t position) const = 0;
  /// Largest buffer that one block needs at once: max over blocks of stored_bytes (+ raw_bytes when
  /// compressed).
  virtual std::uint64_t largest_block_bytes() const noexcept = 0;

  /// Appends the extents that hold samples [begin, end) of `block`, and returns the size of the
  /// buffer that they fill. A compressed block is always its whole shard: begin and end are then
  /// ignored here. \pre begin < end <= sample_count.
  virtual std::uint64_t append_extents(std::uint32_t block, std::uint32_t begin, std::uint32_t end,
                                       std::vector<Extent>& out) const = 0;
  virtual bool is_compressed(std::uint32_t block) const = 0;
  /// Inflates what append_extents() read of a compressed block into exactly Block::raw_bytes. CPU
  /// work; any thread. Errors: kCorrupt (names the shard).
  virtual Status decompress(std::uint32_t block, std::span<const std::byte> stored,
                            std::span<std::byte> raw) const = 0;
  /// Checks the format's own integrity marks that do not depend on single samples, when it has them
  /// (MDS hashes of a whole compressed or whole raw shard). Errors: kCorrupt.
  virtual Status verify(std::uint32_t block, std::span<const std::byte> stored) const = 0;

  /// Finds the columns of sample `index` (in the block, begin <= index < end) inside `bytes`; `out`
  /// has columns().size() entries. No copying, no allocation. Errors: kCorrupt (names shard and
  /// sample).
  virtual Status cut(const BlockBytes& bytes, std::uint32_t index,
                     std::span<ColumnBytes> out) const = 0;
};

/// Builds the index of the dataset at the root of `store` and returns its bytes (the content of
/// `index.hri`). Errors: those of Dataset::open.
Result<std::string> build_index(Store& store, SlabPool& pool, const DatasetOptions& options,
                                const CallOptions& call = {});

}  // namespace headrace
