#pragma once
/// \file
/// What the index keeps of a whole table: how its files are unpacked (the `layout` JSON).
///
/// Source: docs/formats.md, "Tables".
///
/// Threads: values.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "shard/formats/table/parquet_footer.h"

namespace headrace::detail {

enum class TableKind : std::uint8_t { kParquet, kIpc, kLance };
std::string_view table_kind_name(TableKind kind) noexcept;
/// Whether files of this kind are what DatasetOptions::kind asks for. Errors: kInvalidArgument.
Status check_table_kind(TableKind kind, std::string_view wanted);

/// What files of one schema and writer share.
struct TableHead {
  std::string bytes;  ///< Parquet: ParquetFooter::head. Arrow files: the schema message.
  std::string spec;   ///< JSON, for TableUnpacker::unpack().
  std::vector<std::uint32_t> chosen;  ///< Parquet: leaves that are read, ascending.
  std::vector<ParquetLeaf> leaves;    ///< Parquet: all; not stored, they follow from `bytes`.
};

struct TableLayout {
  TableKind kind = TableKind::kParquet;
  std::vector<TableHead> heads;
  /// Names of Hive partitions in the keys; they are the last columns.
  std::vector<std::string> partitions;
  /// DatasetOptions::row_groups_where: two filters may keep as many rows of the same files, and the
  /// layout is what tells their fingerprints apart. Not read back.
  std::string where;
};

std::string write_table_layout(const TableLayout& layout);
/// Errors: kCorrupt.
Result<TableLayout> parse_table_layout(std::string_view json);

/// The value of partition `name` in a key ("year=2024/part.parquet"), percent-unpacked; false when
/// it is Hive's null or absent.
bool partition_value(std::string_view key, std::string_view name, std::string& value);
/// Names of the partitions in a key, in order.
std::vector<std::string> partition_names(std::string_view key);

}  // namespace headrace::detail
