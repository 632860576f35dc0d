#pragma once
/// \file
/// Finds the columns of one record of separated values. Pure; nothing is allocated.
///
/// Threads: immutable.
#include <vector>

#include "shard/formats/csv/csv_layout.h"
#include "shard/formats/text/row_cutter.h"

namespace headrace::detail {

class CsvCutter final : public RowCutter {
 public:
  explicit CsvCutter(const CsvLayout& layout);

  /// Errors: kCorrupt (another number of fields than the header has; a broken quote; a value that
  /// is not UTF-8).
  Status cut(std::span<const std::byte> row, std::span<ColumnBytes> out) const override;

 private:
  const char delimiter_;
  std::vector<std::size_t> column_of_;  ///< Of each field of a record; kNoColumn: none.
};

}  // namespace headrace::detail
