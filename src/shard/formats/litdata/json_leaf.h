#pragma once
/// \file
/// LitData's `json` leaf: a value in a binary form of its own (docs/formats.md, "LitData"), handed
/// on as JSON text. Pure.
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/dataset.h"

namespace headrace::detail {

/// Bound of the text: records name each key once and the text names it in every row, so a small
/// leaf could ask for any amount. 256 times the leaf and a little is far above what nulls with long
/// keys need.
constexpr std::uint64_t most_json_text_bytes(std::uint64_t leaf_bytes) noexcept {
  return 256 * leaf_bytes + 4096;
}

/// Size of the JSON text that a leaf means; nothing when it is malformed, nested too deeply or
/// beyond the bound above. O(text).
std::optional<std::uint64_t> json_leaf_text_bytes(std::span<const std::byte> leaf) noexcept;

/// Makes a cell whose bytes are a leaf deliver its text. False when the leaf is malformed.
bool make_json_cell(ColumnBytes& cell) noexcept;

}  // namespace headrace::detail
