#pragma once
/// \file
/// Columns of the lines of split MDS shards: json, csv, tsv, xsv. Pure; nothing is allocated.
///
/// Values are texts: numbers as they are written, strings of json without their escapes.
///
/// Threads: immutable.
#include <span>
#include <string>
#include <vector>

#include "headrace/dataset.h"
#include "shard/dataset/name_table.h"
#include "shard/formats/mds/mds_index.h"

namespace headrace::detail {

class MdsLineCutter {
 public:
  /// \pre split.kind != kNone
  MdsLineCutter(MdsSplit split, const std::vector<Column>& columns);

  /// Fills `out` (one entry a column) from a line and its newline. Errors: kCorrupt (another number
  /// of fields, no JSON object, a column that is missing).
  Status cut(std::span<const std::byte> sample, std::span<ColumnBytes> out) const;

 private:
  Status cut_fields(std::string_view line, std::span<ColumnBytes> out) const;
  Status cut_json(std::string_view line, std::span<ColumnBytes> out) const;

  const MdsSplit split_;
  const NameTable names_;
};

}  // namespace headrace::detail
