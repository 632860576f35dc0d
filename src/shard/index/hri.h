#pragma once
/// \file
/// The side index `*.hri`: writer, and reader over its bytes. Format: docs/formats.md, bit for
/// bit.
///
/// Place: builders of each format fill an IndexWriter; every Dataset is a view of the bytes it
/// made. Pure.
///
/// Threads: IndexWriter has one owner; IndexView is immutable.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"
#include "headrace/status.h"
#include "shard/index/bounds.h"

namespace headrace::detail {

inline constexpr std::string_view kIndexName = "index.hri";

/// Positions inside a shard are 32 bits wide in blocks.
inline constexpr std::uint64_t kMostShardSamples = 0xffff'ffffULL;
/// Bytes of the fixed columns of one sample: keeps every product of a size and a position inside 64
/// bits.
inline constexpr std::uint64_t kMostFixedBytes = 0xffff'ffffULL;

/// How the bytes of a shard, or of each of its frames, are stored. Numbers stand in files.
enum class Compression : std::uint32_t {
  kNone = 0,
  kZstd = 1,   ///< One frame or several, content size optional.
  kGzip = 2,   ///< One member or several.
  kZlib = 3,   ///< RFC 1950.
  kBzip2 = 4,  ///< One stream or several.
  kBrotli = 5,
  kSnappy = 6,  ///< The raw block format of python-snappy's compress().
  kXz = 7,
  kOwn = 8,       ///< The format's own transformation: its Dataset overrides decompress().
  kUnpacked = 9,  ///< Made ready by Dataset::unpack().
};
/// "", "zstd", "gz", "zlib", "br", ...
std::string_view compression_name(Compression compression) noexcept;

/// A part of a compressed shard that is compressed by itself. A compressed shard without frames is
/// one frame as a whole.
struct Frame {
  std::uint64_t stored_begin = 0;  ///< Offset in the object.
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_begin = 0;  ///< Offset in the shard's address space; frames follow one another.
  std::uint64_t raw_bytes = 0;
  std::uint64_t first_sample = 0;  ///< In the shard. Samples do not cross frames.
};

/// One shard. Its samples lie in an address space of raw_bytes bytes: the (inflated) shard file, or
/// for raw files all files laid end to end.
struct ShardRecord {
  std::uint64_t first_sample = 0;
  std::uint64_t sample_count = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t first_object = 0;
  /// sample_count + 1 values when has_gaps is false: sample i is [v[i], v[i + 1]). Else 2 *
  /// sample_count values: [v[2i], v[2i + 1]).
  BoundsRef bounds;
  bool has_gaps = false;
  /// False for a compressed shard whose format finds samples in the inflated bytes (MDS).
  bool has_bounds = true;
  Compression compression = Compression::kNone;
  /// Blocks of a shard with frames are runs of whole frames.
  std::uint64_t first_frame = 0;
  std::uint32_t frame_count = 0;  ///< 0: not compressed, or compressed as a whole.
  /// Digests of the stored object, "name=hex" joined by spaces; empty when none. A view into the
  /// index.
  std::string_view hashes;
  bool is_broken = false;  ///< One of IndexView::broken(): it has positions, and no bytes.

  std::uint64_t bound_count() const noexcept {
    return has_gaps ? 2 * sample_count : sample_count + 1;
  }
};

struct IndexObject {
  std::string_view key;
  std::string_view etag;
  std::uint64_t size_bytes = 0;
};

/// What the index was made from: the manifest object when the format has one, else the first
/// object.
struct IndexSource {
  std::string key;
  std::string etag;
  std::uint64_t size_bytes = 0;
};

/// Columns as the schema of an index and both fingerprints have them.
std::string columns_text(const std::vector<Column>& columns);

/// A shard of `sample_count` samples that has no bytes. `value_bytes`: the one size of its samples,
/// where the format has only such shards.
ShardRecord broken_record(std::uint64_t sample_count, std::uint64_t first_object,
                          std::uint64_t value_bytes = 0) noexcept;

class IndexWriter {
 public:
  void add_object(std::string_view key, std::string_view etag, std::uint64_t size_bytes);
  /// Appends a shard whose objects were added last; fills first_sample. `hashes` need not outlive
  /// the call.
  void add_shard(ShardRecord shard);
  BoundsWriter& bounds() noexcept { return bounds_; }
  /// Appends the frames of the shard that is added next, ascending; returns
  /// ShardRecord::first_frame.
  std::uint64_t add_frames(std::span<const Frame> frames);
  /// Records a key that cannot be cut from the sample's bytes in one piece. Positions must ascend.
  void add_key(std::uint64_t position, std::string_view key);
  std::uint64_t object_count() const noexcept { return object_count_; }
  std::uint64_t sample_count() const noexcept { return sample_count_; }

  struct Summary {
    Format format = Format::kMds;
    std::vector<Column> columns;
    IndexSource source;
    std::uint64_t block_bytes = 0;
    /// What the format's Dataset needs to know besides (text, as a rule a JSON object; UTF-8; part
    /// of the fingerprint); empty: nothing.
    std::string layout = {};
    /// What the index does without; those with samples are shards of it (broken_record()). Part of
    /// the fingerprint.
    std::vector<BrokenShard> broken = {};
    std::vector<CutEnd> cut_ends = {};
  };
  /// The content of the file.
  std::string finish(const Summary& summary);

 private:
  std::string text_, objects_, shards_, keys_, frames_;
  BoundsWriter bounds_;
  std::uint64_t object_count_ = 0;
  std::uint64_t sample_count_ = 0;
  std::uint64_t stored_bytes_ = 0;
  std::uint32_t shard_count_ = 0;
};

class IndexView {
 public:
  /// Checks everything whose breach could lead a reader astray in memory, and the checksums of what
  /// is small: those of gigabytes would cost more than all else, see verify_sums(). `bytes` must
  /// outlive the view and all its strings. `check_sums` is false only in fuzzers. `pages`: where
  /// the boundaries are read when `bytes` has none; outlives the view. O(shards + frames). Errors:
  /// kCorrupt, kUnsupported (another version).
  static Result<IndexView> parse(std::span<const std::byte> bytes, bool check_sums = true,
                                 const IndexPages* pages = nullptr);

  /// Compares the checksums of all sections, whatever their size. Errors: as parse().
  static Status verify_sums(std::span<const std::byte> bytes);

  Format format() const noexcept { return format_; }
  const std::vector<Column>& columns() const noexcept { return columns_; }
  const IndexSource& source() const noexcept { return source_; }
  /// IndexWriter::Summary::layout.
  const std::string& layout() const noexcept { return layout_; }
  const std::vector<BrokenShard>& broken() const noexcept { return broken_; }
  const std::vector<CutEnd>& cut_ends() const noexcept { return cut_ends_; }
  /// Frames ascend in both address spaces, do not overlap and lie inside the shard. An empty frame
  /// for an index out of range.
  Frame frame_of(const ShardRecord& shard, std::uint32_t index) const noexcept;
  /// Dataset::version_fingerprint(); stands in the header.
  const std::string& fingerprint() const noexcept { return fingerprint_; }
  std::uint64_t sample_count() const noexcept { return sample_count_; }
  std::uint64_t stored_bytes() const noexcept { return stored_bytes_; }
  std::uint64_t object_count() const noexcept { return objects_.size() / kObjectBytes; }
  const std::vector<ShardRecord>& shards() const noexcept { return shards_; }
  /// Empty views for an index out of range or a broken record.
  IndexObject object(std::uint64_t index) const noexcept;
  /// [begin, end) of sample `index` of `shard` in its address space; always begin <= end <=
  /// raw_bytes.
  std::uint64_t begin_of(const ShardRecord& shard, std::uint64_t index) const noexcept;
  std::uint64_t end_of(const ShardRecord& shard, std::uint64_t index) const noexcept;
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  /// Both at once.
  Range range_of(const ShardRecord& shard, std::uint64_t index) const noexcept;
  /// Key stored for a dataset position by add_key(); a null view when there is none.
  std::string_view key_of(std::uint64_t position) const noexcept;

  static constexpr std::size_t kObjectBytes = 24;
  static constexpr std::size_t kShardBytes = 96;
  static constexpr std::size_t kKeyBytes = 24;
  static constexpr std::size_t kFrameBytes = 40;

 private:
  Status parse_schema(std::string_view json);
  Status parse_broken(std::string_view json);
  Status parse_cut_ends(std::string_view json);
  Status mark_broken();
  Status parse_shards(std::span<const std::byte> records);
  Status check_storage(const ShardRecord& shard, bool sample_is_object) const;
  Status check_frames(const ShardRecord& shard) const;
  std::string_view text(std::uint64_t offset, std::uint64_t length_bytes) const noexcept;

  std::span<const std::byte> text_, objects_, keys_, frames_;
  std::string layout_;
  BoundsView bounds_;
  std::vector<ShardRecord> shards_;
  std::vector<Column> columns_;
  std::vector<BrokenShard> broken_;
  std::vector<CutEnd> cut_ends_;
  IndexSource source_;
  std::string fingerprint_;
  Format format_ = Format::kAuto;
  std::uint64_t sample_count_ = 0;
  std::uint64_t stored_bytes_ = 0;
};

}  // namespace headrace::detail
