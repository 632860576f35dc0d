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
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/memory.h"
#include "headrace/slab_arena.h"
#include "headrace/status.h"
#include "headrace/store.h"

namespace headrace {

/// Numbers stand in index files; never renumber.
enum class Format : std::uint8_t {
  kAuto = 0,
  kMds = 1,         ///< Mosaic data shards, and its json, csv, tsv and xsv shards.
  kWebDataset = 2,  ///< Tar files.
  kRaw = 3,         ///< Every object is a sample.
  kLitData = 4,
  kTfRecord = 5,
  kText = 6,    ///< JSON lines or lines of text: a line is a sample.
  kTokens = 7,  ///< Token ids: Megatron `.bin` with `.idx`, or flat integers.
  kNumpy = 8,   ///< `.npy` and `.npz`: the first axis counts samples.
  kTable = 9,   ///< Parquet, Lance, Arrow files: unpacked by their own packages.
  kArrayRecord = 10,
  kSamples = 11,  ///< A view of other datasets (mixture, packed tokens); never in an index.
  kCsv = 12,      ///< Separated values with a header (RFC 4180): a record is a sample.
};
/// "auto", "mds", ...: kMds is "mds", and so on.
std::string_view format_name(Format format) noexcept;
/// What parse_format() takes: "auto", then every format in the order of the numbers.
std::vector<std::string_view> format_names();
/// Errors: kInvalidArgument (lists format_names()).
Result<Format> parse_format(std::string_view name);
/// What set_format() takes besides: names of one kind of files, where a format reads several:
/// "parquet", "arrow" and "lance" of kTable.
std::vector<std::string_view> format_kinds();

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
  /// What the integers of the column stand for: value i is classes[i]. Empty: nothing known.
  std::vector<std::string> classes = {};
};

/// A run of consecutive samples of one shard: the unit of order and of residency.
/// A *compressed* block is stored in another form than samples are cut from: it is read whole
/// (`stored_bytes`), then decompress() or unpack() makes it ready.
struct Block {
  std::uint32_t shard = 0;
  std::uint32_t sample_count = 0;  ///< > 0
  std::uint64_t first_sample = 0;  ///< Dataset position of its first sample.
  std::uint64_t stored_bytes = 0;  ///< Bytes to read for the whole block.
  /// Bytes once ready to cut: equal to stored_bytes unless the block is compressed. For a block
  /// that unpack() makes ready: about what the unpacked columns take, charged to the memory limit.
  std::uint64_t raw_bytes = 0;
};

/// One byte range of one object version and where its bytes go. Views live as long as the Dataset.
struct Extent {
  std::string_view key;
  std::string_view etag;
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t target_offset_bytes = 0;  ///< Offset in the buffer that BlockBytes will look into.
  bool is_whole_object = false;           ///< It is all of the object, as far as the dataset knows.
};

/// What Dataset::unpack() made of a block: columns in memory of a SlabArena. Any thread; immutable.
class UnpackedBlock {
 public:
  virtual ~UnpackedBlock() = default;
};

/// Bytes of samples [begin, end) of a block, ready to cut (read, and decompressed if need be).
struct BlockBytes {
  std::uint32_t block = 0;
  std::uint32_t begin = 0;  ///< Index in the block of the first sample that the bytes hold.
  std::uint32_t end = 0;
  std::span<const std::byte> bytes;
  const UnpackedBlock* unpacked =
      nullptr;  ///< Of a block that is_unpacked(); `bytes` is empty then.
};

/// One column of one sample inside BlockBytes (or inside the index): where its value lies, or how
/// to write it when it does not lie there as it is delivered (varints, escaped strings, values in
/// pieces).
struct ColumnBytes {
  /// Writes the value, exactly `out.size() == cell.value_bytes` bytes. Pure, any thread.
  using Writer = void (*)(const ColumnBytes& cell, std::span<std::byte> out) noexcept;

  std::span<const std::byte> bytes;  ///< The value; with a writer: what the writer reads.
  bool present = false;              ///< False: the sample has no such member.
  Writer writer = nullptr;           ///< nullptr: the value is `bytes`.
  std::uint64_t value_bytes = 0;     ///< Size of the value when there is a writer.
  const void* context = nullptr;     ///< The writer's; lives as long as the Dataset or its block.
  std::uint64_t argument = 0;        ///< The writer's.

  std::uint64_t size() const noexcept { return writer == nullptr ? bytes.size() : value_bytes; }
  /// \pre out.size() == size().
  void write_to(std::span<std::byte> out) const noexcept {
    if (writer != nullptr) {
      writer(*this, out);
    } else if (!bytes.empty()) {
      std::memcpy(out.data(), bytes.data(), bytes.size());
    }
  }
};

/// An object that no index can be made of, or that a manifest names and that is not there.
struct BrokenShard {
  std::string key;   ///< Relative to the root.
  std::string etag;  ///< Of the version that is broken; empty: the store has none.
  std::uint64_t size_bytes = 0;
  Code code = Code::kCorrupt;  ///< kCorrupt, kUnsupported, kNotFound.
  std::string message;         ///< What is wrong with it.
  /// The positions that it keeps, where a manifest tells how many samples it has; they are bad. 0
  /// samples: nobody knows how many there were, and the dataset has none of them.
  std::uint64_t first_sample = 0;
  std::uint64_t sample_count = 0;
};

/// The end of an object that DatasetOptions::lenient passed over.
struct CutEnd {
  std::string key;  ///< Relative to the root.
  std::uint64_t cut_bytes = 0;
};

/// What opening does about broken shards (docs/design/0053).
enum class OnBrokenShard : std::uint8_t {
  kRaise,    ///< An error that names every one.
  kLeaveOut  ///< The dataset does without: Dataset::broken_shards(). Another fingerprint.
};

struct DatasetOptions {
  Format format = Format::kAuto;
  /// One of format_kinds(), which the files must be of; empty: any that the format reads.
  std::string kind = {};
  /// Aim for the encoded size of a block, bytes. Larger: fewer requests, more memory per lane,
  /// coarser shuffle. 64 KiB .. 1 GiB; 0: 8 MiB, less for datasets below 8 GiB (a 1024th of them,
  /// at least 1 MiB).
  std::uint64_t block_bytes = 0;
  /// Directory for indexes built on first use; empty: build in memory only. Files are published by
  /// rename.
  std::string index_cache_dir = {};
  /// Look for `index.hri` beside the dataset first.
  bool use_stored_index = true;
  /// Open datasets with pickled columns (MDS encoding "pkl"); nothing here unpickles, but a reader
  /// above may.
  bool allow_unsafe = false;
  /// Keys below the root that make the dataset, in this order (from a brace pattern, a `::` list or
  /// a manifest); empty: all that the format finds.
  std::vector<std::string> keys = {};
  /// The files of one split, by their names, as Hugging Face finds them: "train", "validation",
  /// "test" or another that is there; "all": those of all splits as one dataset. Empty: the dataset
  /// must not have several. Part of the fingerprint by the files it leaves.
  std::string split = {};
  /// kTokens without `.idx`, and LitData tokens: tokens of one sample. 0: whole documents
  /// (Megatron), else an error that asks for it.
  std::uint64_t tokens_per_sample = 0;
  /// kTokens without `.idx`: numpy dtype of a token, "uint16" or "uint32" ...; empty: "uint16".
  std::string token_dtype = {};
  /// kRaw: "folder" adds the column "label" (int64): the position of the file's first folder among
  /// all of them, sorted. Files that lie in no folder are then no samples. Empty: none.
  std::string labels = {};
  /// kRaw: key of a file of JSON lines (.jsonl, .ndjson) or separated values (.csv, .tsv); each of
  /// its records is a sample: the file that it names ("file_name", "file" or "path", relative to
  /// the manifest) and its other fields as columns. Empty: none.
  std::string manifest = {};
  /// Columns to read where the format stores columns apart (kTable, kNumpy); empty: all. Part of
  /// the fingerprint.
  std::vector<std::string> columns = {};
  /// kTable: JSON `[["column", "op", value], ...]` (all must hold; op one of == != < <= > >= in);
  /// row groups that cannot match by their statistics are left out. Part of the fingerprint.
  std::string row_groups_where = {};
  /// LitData: password of an encrypted dataset, and its salt as litdata stores it (urlsafe base64).
  /// Never stored, never in messages.
  std::string password = {}, password_salt = {};
  /// kWebDataset, kTfRecord: take what the reference readers pass over in silence (a tar that is
  /// cut off, data after its end mark, a record file that ends inside a record) as the end of the
  /// shard. What is passed over is neither read nor counted; the default refuses the shard:
  /// kCorrupt.
  bool lenient = false;
  OnBrokenShard on_broken_shard = OnBrokenShard::kRaise;
  /// Objects read at once while an index is built; 0: chosen.
  std::uint32_t index_workers = 0;
  /// Called from the opening thread with (shards done, shards in all) while an index is built.
  std::function<void(std::uint64_t, std::uint64_t)> progress = {};
};

/// Sets `format`, and `kind` where the name is one of format_kinds(). Errors: kInvalidArgument
/// (lists all names).
Status set_format(DatasetOptions& options, std::string_view name);

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
  /// 32 hex digits that name the content: format, schema and every shard's key, size, sample count
  /// and digests. Those of a copy are the same; independent of where the dataset lies and of
  /// block_bytes. O(objects) at the first call.
  virtual const std::string& fingerprint() const noexcept = 0;
  /// The same with the version of every object instead of digests: another one as soon as an object
  /// was written anew. What states of version 1 hold.
  virtual const std::string& version_fingerprint() const noexcept = 0;

  struct Shard {
    std::string_view key;  ///< Object key relative to the root; for raw files the first of a run.
    std::string_view etag;
    std::uint64_t size_bytes = 0;
    std::uint64_t first_sample = 0;
    std::uint64_t sample_count = 0;
    std::string_view compression;  ///< "" or "zstd", ...
    std::string_view hashes;       ///< Digests of the stored object, "name=hex" joined by spaces.
  };
  virtual std::uint32_t shard_count() const noexcept = 0;
  virtual Shard shard(std::uint32_t index) const = 0;

  /// What it does without, in the order of keys; of a whole dataset empty. Lives as long as it.
  virtual std::span<const BrokenShard> broken_shards() const noexcept { return {}; }
  /// What was passed over because DatasetOptions::lenient was set when the index was made.
  virtual std::span<const CutEnd> cut_ends() const noexcept { return {}; }

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
  /// Appends what says, besides the extents, which bytes are which samples of `block`, in a form
  /// that is good for comparing alone: blocks with equal extents, counts and layouts have the same
  /// samples. Any thread.
  virtual void append_layout(std::uint32_t block, std::string& out) const {
    static_cast<void>(block);
    static_cast<void>(out);
  }
  /// True when the block needs decompress() or unpack() before samples can be cut.
  virtual bool is_compressed(std::uint32_t block) const = 0;
  /// Inflates what append_extents() read of a compressed block into exactly Block::raw_bytes. CPU
  /// work; any thread. Errors: kCorrupt (names the shard).
  virtual Status decompress(std::uint32_t block, std::span<const std::byte> stored,
                            std::span<std::byte> raw) const = 0;
  /// True for a compressed block that unpack() makes ready instead of decompress(). Such a block
  /// may have no extents at all: the package that unpacks it reads by itself.
  virtual bool is_unpacked(std::uint32_t block) const {
    static_cast<void>(block);
    return false;
  }
  /// Unpacks what append_extents() read into memory of `arena`. CPU work, any thread; may call
  /// Python (takes the GIL). The result must not outlive the arena. Errors: kCorrupt, kUnsupported
  /// (name the shard), kExhausted (the columns are larger than Block::raw_bytes, and the pool has
  /// no room for what is missing).
  virtual Result<std::shared_ptr<const UnpackedBlock>> unpack(std::uint32_t block,
                                                              std::span<const std::byte> stored,
                                                              SlabArena& arena) const {
    static_cast<void>(block);
    static_cast<void>(stored);
    static_cast<void>(arena);
    return Status(Code::kInternal, "this dataset has no block to unpack");
  }
  /// Memory outside of the arena that unpack() needs meanwhile (buffers of the package that
  /// unpacks). `stored`: the bytes of the block; before they are read (empty): what blocks of its
  /// kind need as a rule. 0 for blocks that are not unpacked.
  virtual std::uint64_t unpack_workspace_bytes(std::uint32_t block,
                                               std::span<const std::byte> stored) const {
    static_cast<void>(block);
    static_cast<void>(stored);
    return 0;
  }
  /// Checks the format's own integrity marks that do not depend on single samples, when it has them
  /// (MDS hashes of a whole compressed or whole raw shard). Errors: kCorrupt.
  virtual Status verify(std::uint32_t block, std::span<const std::byte> stored) const = 0;

  /// The index that the dataset is a view of (the content of `index.hri`); empty when it has none.
  virtual std::span<const std::byte> index_bytes() const noexcept { return {}; }

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
