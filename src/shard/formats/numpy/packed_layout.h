#pragma once
/// \file
/// Where the arrays of a compressed `.npz` lie in their object: text in the index. Pure.
///
/// Such an object is one block, read whole. Ready to cut it is its chosen members one after the
/// other, each a whole `.npy`.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "shard/index/hri.h"

namespace headrace::detail {

struct PackedMember {
  std::uint64_t offset_bytes = 0;  ///< Of its stored bytes in the object.
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_bytes = 0;     ///< Of the `.npy`.
  std::uint64_t header_bytes = 0;  ///< Of the `.npy`, before its first row.
  std::uint32_t crc32 = 0;         ///< Of the `.npy`.
  bool is_deflated = false;
};
/// By shard, by column.
using PackedLayout = std::vector<std::vector<PackedMember>>;

std::string format_packed_layout(const PackedLayout& layout);
/// True for a layout of this kind; else it is a RowLayout.
bool is_packed_layout(std::string_view text);
/// Errors: kCorrupt (members that do not lie inside their object, or hold other rows than the
/// shard).
Result<PackedLayout> parse_packed_layout(std::string_view text, const IndexView& index);

}  // namespace headrace::detail
