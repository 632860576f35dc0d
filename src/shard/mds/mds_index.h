#pragma once
/// \file
/// The `index.json` of an MDS dataset. Pure.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"
#include "shard/index/hri.h"

namespace headrace::detail {

inline constexpr std::string_view kMdsIndexName = "index.json";
/// A million shards of 600 bytes each fit; more is not a dataset index.
inline constexpr std::uint64_t kMostIndexJsonBytes = std::uint64_t{1} << 30;
/// Bounds the work of a hostile index; real ones have tens.
inline constexpr std::size_t kMostColumns = 1024;

struct MdsShard {
  std::string basename;  ///< Of the file that is stored: relative to the index, '/' allowed, never
                         ///< '..' or absolute.
  std::uint64_t sample_count = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_bytes = 0;  ///< < 2^32
  Compression compression = Compression::kNone;
  std::string hashes;  ///< Of the stored file, as digest.h takes them.
};

struct MdsIndex {
  std::vector<Column> columns;
  std::vector<MdsShard> shards;
};

/// What an `index.json` belongs to, judged by its top-level keys.
enum class IndexJsonKind { kMds, kLitData, kOther };
IndexJsonKind kind_of_index_json(std::string_view json);

/// Errors: kCorrupt (not JSON, fields missing or impossible), kUnsupported (version, shard format,
/// compression, pickled columns, shards with different columns): the message names the shard and
/// the thing.
Result<MdsIndex> parse_mds_index(std::string_view json, bool allow_unsafe);

}  // namespace headrace::detail
