#pragma once
/// \file
/// LitData's `data_format`: what the bytes of a leaf are. Pure.
#include <cstdint>
#include <optional>
#include <string_view>

#include "headrace/dataset.h"

namespace headrace::detail {

/// Fills encoding, dtype and size of a column from a data_format ("int", "no_header_numpy:9", ...).
/// A name that litdata does not know (a serializer of the user) is opaque bytes. Errors:
/// kUnsupported (pickles unless allowed, arrays of objects), kCorrupt (a number that is
/// no dtype). docs/formats.md, "LitData", lists what becomes what.
Status describe_litdata_leaf(std::string_view data_format, bool allow_unsafe, Column& column);

/// Whether values of the column are pickles, or may contain them.
bool is_pickled_leaf(const Column& column) noexcept;

/// numpy name and size in bytes of the dtype of "no_header_tensor:N" and "no_header_numpy:N".
struct LeafDtype {
  std::string_view name;
  std::uint64_t size_bytes = 0;
};
/// Errors: kUnsupported (another data_format, objects), kCorrupt.
Result<LeafDtype> headless_dtype(std::string_view data_format);

}  // namespace headrace::detail
