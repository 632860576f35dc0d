#pragma once
/// \file
/// Parquet footers: where the column chunks of each row group lie, and small footers made anew for
/// the row groups of one block, whose offsets point into what was fetched. Pure.
///
/// Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
///
/// Threads: functions and values.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"

namespace headrace::detail {

/// A column as it is stored: a leaf of the schema's tree.
struct ParquetLeaf {
  std::int32_t physical_type = 0;  ///< parquet.thrift's Type; 6: BYTE_ARRAY.
  std::uint32_t type_length = 0;   ///< Bytes of a FIXED_LEN_BYTE_ARRAY.
};

/// The values of one leaf in one row group. Offsets are the file's.
struct ParquetChunk {
  std::uint64_t begin_bytes = 0;  ///< Its dictionary page, else its first data page.
  std::uint64_t length_bytes = 0;
  std::uint64_t uncompressed_bytes = 0;
  std::uint64_t value_count = 0;
  std::uint64_t dictionary_bytes = 0;  ///< 0: no dictionary page, else where data pages begin.
  std::uint8_t codec = 0;
  std::vector<std::uint8_t> encodings;
  /// About what the unpacked values take: exact for values of a fixed width; for byte arrays the
  /// largest of what the file tells (page bytes, size statistics, lengths of minimum and maximum).
  std::uint64_t unpacked_bytes = 0;
};

struct ParquetRowGroup {
  std::uint64_t row_count = 0;
  std::vector<ParquetChunk> chunks;  ///< One a leaf, in the schema's order.
};

struct ParquetFooter {
  /// FileMetaData of version, schema, writer and column orders only: equal for files of one writer
  /// and schema.
  std::string head;
  std::string key_values;  ///< Thrift list of KeyValue as it stands in the file; empty: none.
  std::vector<ParquetLeaf> leaves;
  std::vector<ParquetRowGroup> row_groups;
  std::uint64_t row_count = 0;
};

/// What a file ends with: u32 footer length, "PAR1".
inline constexpr std::uint64_t kParquetTailBytes = 8;

/// Bytes of the footer with its tail, from the last kParquetTailBytes of a file of `file_bytes`.
/// Errors: kCorrupt, kUnsupported (encrypted footers).
Result<std::uint64_t> parquet_footer_bytes(std::span<const std::byte> tail,
                                           std::uint64_t file_bytes);

/// `footer`: the last parquet_footer_bytes() of the file. Every chunk lies inside the file before
/// the footer. Memory: a few times the footer. Errors: kCorrupt, kUnsupported (encrypted columns,
/// chunks in other files).
Result<ParquetFooter> parse_parquet_footer(std::span<const std::byte> footer,
                                           std::uint64_t file_bytes);

/// Of `key_values` those that change what columns are (Arrow's schema, Petastorm's codecs), for
/// telling files apart: a writer's other notes may differ from file to file.
std::string described_key_values(std::string_view key_values);

/// Leaves of a head. Errors: kCorrupt.
Result<std::vector<ParquetLeaf>> parquet_leaves(std::string_view head);

/// A file without data, as pyarrow reads it ("PAR1", FileMetaData, its length, "PAR1"): the schema
/// of `head`, `key_values` (may be empty) and `groups`. A chunk of length 0 is one that was not
/// fetched. \pre `head` comes from parse_parquet_footer(); each group has a chunk a leaf.
std::string compose_parquet_footer(std::string_view head, std::string_view key_values,
                                   std::span<const ParquetLeaf> leaves,
                                   std::span<const ParquetRowGroup> groups);

}  // namespace headrace::detail
