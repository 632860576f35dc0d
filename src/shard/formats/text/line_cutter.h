#pragma once
/// \file
/// Finds the columns of one line. Pure; nothing is allocated.
///
/// Threads: immutable.
#include <span>
#include <string_view>

#include "headrace/dataset.h"
#include "shard/dataset/name_table.h"
#include "shard/formats/text/row_cutter.h"
#include "shard/formats/text/text_layout.h"

namespace headrace::detail {

class LineCutter final : public RowCutter {
 public:
  explicit LineCutter(TextLayout layout);

  /// Fills `out` (one entry a column) from the bytes of a sample: its line, with the line's end and
  /// blank lines around it. Fields that are no column are passed over; of a field that comes twice
  /// the last counts; null is no value. Errors: kCorrupt (not an object; a value of another kind
  /// than the column).
  Status cut(std::span<const std::byte> sample, std::span<ColumnBytes> out) const override;

 private:
  Status cut_fields(std::string_view line, std::span<ColumnBytes> out) const;

  const TextLayout layout_;
  const NameTable names_;
  const bool needs_fields_;
};

}  // namespace headrace::detail
