#pragma once
/// \file
/// Bytes of LitData chunks and items: the table of offsets in front, and the leaves of an item.
/// Pure.
///
/// Threads: ItemLayout is immutable.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/dataset.h"

namespace headrace::detail {

/// Bytes in front of a classic chunk: u32 N, u32 offset[N + 1].
constexpr std::uint64_t chunk_table_bytes(std::uint64_t item_count) noexcept {
  return 4 + 4 * (item_count + 1);
}

/// Reads the table in the first bytes of a chunk. Offsets ascend, begin after the table and end
/// within `chunk_bytes`. Errors: kCorrupt.
Result<std::vector<std::uint64_t>> parse_chunk_table(std::span<const std::byte> table,
                                                     std::uint64_t item_count,
                                                     std::uint64_t chunk_bytes);

/// Finds item `index` in a whole classic chunk. Errors: kCorrupt.
Result<std::span<const std::byte>> chunk_item(std::span<const std::byte> chunk,
                                              std::uint64_t item_count, std::uint64_t index);

/// Where the leaves of an item are: a u32 size for each, then their bytes.
class ItemLayout {
 public:
  explicit ItemLayout(const std::vector<Column>& columns);
  /// Fills `out` (one entry a column) with views into `item`. Returns what is wrong; empty:
  /// nothing.
  std::string_view cut(std::span<const std::byte> item, std::span<ColumnBytes> out) const noexcept;

 private:
  enum class Form : std::uint8_t { kPlain, kJson, kList };
  struct Leaf {
    std::uint64_t size_bytes = 0;  // 0: varies.
    Form form = Form::kPlain;
  };
  std::vector<Leaf> leaves_;
};

}  // namespace headrace::detail
