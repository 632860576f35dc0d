#pragma once
/// \file
/// RowCutter: finds the columns of one record of a text file. Pure; nothing is allocated.
///
/// Place: text and CSV datasets cut samples with it, raw files the records of their manifest.
///
/// Threads: immutable.
#include <memory>
#include <span>
#include <string_view>

#include "headrace/dataset.h"

namespace headrace::detail {

class RowCutter {
 public:
  virtual ~RowCutter() = default;
  /// Fills `out` (one entry a column) from the bytes of a record, with its line end and blank lines
  /// around it. Errors: kCorrupt (says which field).
  virtual Status cut(std::span<const std::byte> row, std::span<ColumnBytes> out) const = 0;
};

struct RowReader {
  std::unique_ptr<const RowCutter> cutter;
  std::size_t column_count = 0;
};

/// The cutter of an index's layout: lines (text_layout.h) or CSV (csv_layout.h). Errors: kCorrupt.
Result<RowReader> make_row_reader(std::string_view layout_json);

}  // namespace headrace::detail
