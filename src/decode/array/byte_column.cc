#include "decode/array/byte_column.h"

#include <string>

namespace headrace::detail {

bool has_plain_bytes(const OutputColumn& column) noexcept {
  constexpr std::string_view kStructured[] = {
      "list[",    "list:", "array:",     "nullable_list:", "ndarray",
      "litdata:", "pil",   "jpeg_array", "jpegarray",      "pkl",
      "pickle",   "npz",   "str_int",    "str_decimal",    "str_float"};
  for (const std::string_view prefix : kStructured) {
    if (column.encoding.starts_with(prefix)) return false;
  }
  return column.dtype.empty() && column.fixed_size_bytes == 0;
}

Status not_plain_bytes(const OutputColumn& column, std::string_view what) {
  const std::string has = column.dtype.empty() ? column.encoding : "numbers of " + column.dtype;
  return Status(Code::kInvalidArgument, "column '" + column.name + "' has values of '" + has +
                                            "', which cannot be read as " + std::string(what) +
                                            ": that takes a column of bytes");
}

}  // namespace headrace::detail
