#pragma once
/// \file
/// What the index keeps of each block of a table (text of the `keys` section, at the position of
/// the block's first row), and which bytes to fetch for it. Pure.
///
/// Source of the coding: docs/formats.md, "Tables".
///
/// Threads: functions and values.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "shard/formats/table/parquet_footer.h"

namespace headrace::detail {

/// Bytes of an object.
struct TableRange {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
};

struct TableRecord {
  std::uint32_t head = 0;       ///< Of TableLayout::heads.
  std::uint64_t first_row = 0;  ///< Lance: of the whole table.
  /// Parquet: the row groups, each with the chunks of the chosen leaves only.
  std::vector<ParquetRowGroup> row_groups;
  /// Arrow files: dictionaries, then record batches.
  std::vector<TableRange> messages;
};

std::string write_table_record(const TableRecord& record);
/// Errors: kCorrupt (an index that is damaged).
Result<TableRecord> parse_table_record(std::string_view text);

/// One read: `length_bytes` at `offset_bytes` of the object go to `target_bytes` of the buffer.
struct TableRead {
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t target_bytes = 0;
};
struct FetchPlan {
  std::vector<TableRead> reads;        ///< Ascending, disjoint.
  std::vector<std::uint64_t> targets;  ///< Where each wanted range begins in the buffer.
  std::uint64_t buffer_bytes = 0;
};

/// Chunks of a row group lie back to back unless columns were left out. A gap up to this is read
/// rather than skipped: 64 KiB take 0.7 ms at 90 MB/s, less than a request's first byte.
inline constexpr std::uint64_t kMostGapBytes = std::uint64_t{64} << 10;

/// The first read begins this much earlier: readers of Parquet take a dictionary page at offset 0
/// of the buffer for none. There always is a byte before ("PAR1").
inline constexpr std::uint64_t kLeadBytes = 1;

/// Reads that cover `wanted`, in any order, overlaps allowed.
FetchPlan plan_fetch(std::span<const TableRange> wanted);
/// Ranges of a record, in the order of its chunks or messages.
std::vector<TableRange> ranges_of(const TableRecord& record);

}  // namespace headrace::detail
