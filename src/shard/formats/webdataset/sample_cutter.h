#pragma once
/// \file
/// Finds the fields of one WebDataset sample in its run of bytes. Pure; no allocation.
///
/// Threads: immutable.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"

namespace headrace::detail {

class SampleCutter {
 public:
  /// `columns`: "__key__" and then the suffixes, in lower case.
  explicit SampleCutter(const std::vector<Column>& columns);

  /// Fills `out` (one entry a column) from the run of a sample. Errors: kCorrupt, kUnsupported (as
  /// parse_tar_member).
  Status cut(std::span<const std::byte> run, std::span<ColumnBytes> out) const;

 private:
  /// Column of a suffix, tried from `hint` on: members of most samples come in the same order. 0:
  /// none.
  std::size_t column_of(std::string_view suffix, std::size_t hint) const noexcept;
  std::vector<std::string> names_;
};

}  // namespace headrace::detail
