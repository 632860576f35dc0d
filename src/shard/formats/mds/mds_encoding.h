#pragma once
/// \file
/// Names of MDS encodings: what a column's values are, as far as a table of columns can say it.
/// Pure.
#include <cstdint>
#include <optional>
#include <string_view>

#include "headrace/dataset.h"

namespace headrace::detail {

/// Fills dtype and shape of a column from its encoding and size (0: varies). An encoding that names
/// a fixed dtype and whose size disagrees is kCorrupt. Unknown names are opaque bytes. Other
/// errors: kUnsupported (`pkl` unless allowed).
Status describe_mds_column(Column& column, bool allow_unsafe);

/// Size in bytes of a numpy dtype name (uint8 ... float64); nothing for another name.
std::optional<std::uint64_t> dtype_size_bytes(std::string_view name);

}  // namespace headrace::detail
