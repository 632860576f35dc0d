#pragma once
/// \file
/// Where the columns of an `.npz` dataset lie in each of its objects: text in the index. Pure.
///
/// The address space of such a shard is that of its rows, as if the columns of a row lay side by
/// side: row i is [i * row_bytes, (i + 1) * row_bytes).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "shard/index/hri.h"

namespace headrace::detail {

/// By shard: offset of each column's first row in the object.
using RowLayout = std::vector<std::vector<std::uint64_t>>;

std::string format_row_layout(const RowLayout& layout);
/// Errors: kCorrupt (columns that do not lie inside their object).
Result<RowLayout> parse_row_layout(std::string_view text, const IndexView& index);

}  // namespace headrace::detail
