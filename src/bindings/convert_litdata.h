#pragma once
/// \file
/// Headers of LitData's arrays, tensors and graphs (docs/formats.md, "LitData").
///
/// Threads: functions of their arguments.
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace headrace {

enum class LitDataHeader { kNumpy, kTensor };

struct LitDataArray {
  std::string_view dtype;  ///< numpy name.
  std::vector<std::size_t> shape;
  std::span<const std::byte> data;  ///< Of any size: the caller compares it with the shape.
};
/// Throws nb::value_error (cut off, unknown dtype).
LitDataArray parse_litdata_array(std::span<const std::byte> bytes, LitDataHeader kind);

struct LitDataField {
  std::span<const std::byte> name;    ///< UTF-8.
  std::span<const std::byte> tensor;  ///< With its header.
};
/// The tensors of a graph; its `_meta`, a pickle that says which class it was, is left out. Throws
/// nb::value_error (cut off, no graph, another pickle).
std::vector<LitDataField> parse_litdata_graph(std::span<const std::byte> bytes);

}  // namespace headrace
