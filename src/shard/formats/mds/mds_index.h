#pragma once
/// \file
/// The `index.json` of an MDS dataset, as a whole or as a stream. Pure.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// One entry of the list of shards; with the most columns of long names it has 300 KiB.
inline constexpr std::size_t kMostEntryBytes = std::size_t{4} << 20;
/// Bounds the work of a hostile index; real ones have tens.
inline constexpr std::size_t kMostColumns = 1024;

/// Where the offsets of a split shard (json, csv, tsv, xsv) are; empty names for MDS itself.
struct MdsMeta {
  std::string basename;
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_bytes = 0;  ///< < 2^32
  std::string hashes;           ///< Of the stored file, as digest.h takes them.
};

struct MdsShard {
  std::string basename;  ///< Of the file that is stored: relative to the index, '/' allowed, never
                         ///< '..' or absolute.
  std::uint64_t sample_count = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_bytes = 0;  ///< < 2^32
  Compression compression = Compression::kNone;
  std::string hashes;  ///< Of the stored file, as digest.h takes them.
  MdsMeta meta;        ///< Stored with the same compression.
};

/// How the lines of split shards are made.
struct MdsSplit {
  enum class Kind : std::uint8_t { kNone, kJson, kXsv };
  Kind kind = Kind::kNone;  ///< kNone: MDS itself. kXsv: csv and tsv as well.
  std::string separator;    ///< Of kXsv; not empty.
  std::string newline;
  bool operator==(const MdsSplit&) const = default;
};
/// For IndexWriter::Summary::layout; empty for kNone.
std::string layout_of(const MdsSplit& split);
/// Errors: kCorrupt.
Result<MdsSplit> parse_mds_layout(std::string_view layout);

struct MdsIndex {
  MdsSplit split;
  std::vector<Column> columns;
  std::vector<MdsShard> shards;
};

/// Errors: kCorrupt (not JSON, fields missing or impossible), kUnsupported (version, shard format,
/// compression, pickled columns, shards with different columns): the message names the shard and
/// the thing.
Result<MdsIndex> parse_mds_index(std::string_view json, bool allow_unsafe);

/// The same for a text that comes in pieces of any size. Holds the shards found so far and one
/// entry of at most kMostEntryBytes. One owner.
class MdsIndexStream {
 public:
  explicit MdsIndexStream(bool allow_unsafe);
  ~MdsIndexStream();
  MdsIndexStream(const MdsIndexStream&) = delete;
  MdsIndexStream& operator=(const MdsIndexStream&) = delete;
  /// Takes the next bytes of the text. Errors: as parse_mds_index().
  Status feed(std::string_view piece);
  /// The text has ended. Call once, last. Errors: as parse_mds_index().
  Result<MdsIndex> finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::detail
