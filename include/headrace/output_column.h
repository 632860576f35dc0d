#pragma once
/// \file
/// OutputColumn: a column as batches have it.
#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

/// A column as batches have it, which may be another than the dataset stores.
struct OutputColumn {
  std::string name;
  std::string encoding;  ///< As Column::encoding: how the bytes mean a value.
  std::string dtype;     ///< As Column::dtype: numpy dtype name, or "" where values are no arrays.
  std::vector<std::uint64_t> shape;    ///< Of one value, where it has a dtype.
  std::uint64_t fixed_size_bytes = 0;  ///< Of each value; 0: they vary.
  bool is_ragged() const noexcept { return fixed_size_bytes == 0; }
};
/// The columns of a batch, in order.
using BatchSchema = std::vector<OutputColumn>;

}  // namespace headrace
