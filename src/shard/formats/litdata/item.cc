#include "shard/formats/litdata/item.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "base/endian.h"
#include "shard/formats/litdata/json_leaf.h"

namespace headrace::detail {
namespace {

// A jpeg_array (u32 count, u32 sizes, values) is a list[bytes] but for the word in front of that.
void write_list(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  std::memset(out.data(), 0, 4);
  if (!cell.bytes.empty()) std::memcpy(out.data() + 4, cell.bytes.data(), cell.bytes.size());
}

void make_list_cell(ColumnBytes& cell) noexcept {
  cell.writer = write_list;
  cell.value_bytes = cell.bytes.size() + 4;
}

}  // namespace

Result<std::vector<std::uint64_t>> parse_chunk_table(std::span<const std::byte> table,
                                                     std::uint64_t item_count,
                                                     std::uint64_t chunk_bytes) {
  if (table.size() < 4 || (table.size() - 4) / 4 < item_count + 1)
    return Status(Code::kCorrupt, "ends inside its table of offsets");
  if (const auto count = load_le<std::uint32_t>(table.data()); count != item_count) {
    return Status(Code::kCorrupt,
                  fmt::format("has {} items, index.json says {}", count, item_count));
  }
  std::vector<std::uint64_t> offsets(item_count + 1);
  std::uint64_t low = chunk_table_bytes(item_count);
  for (std::size_t i = 0; i <= item_count; ++i) {
    offsets[i] = load_le<std::uint32_t>(table.data() + 4 * (i + 1));
    if (offsets[i] < low || offsets[i] > chunk_bytes) {
      return Status(Code::kCorrupt, fmt::format("offset {} is {}, outside [{}, {}]", i, offsets[i],
                                                low, chunk_bytes));
    }
    low = offsets[i];
  }
  return offsets;
}

Result<std::span<const std::byte>> chunk_item(std::span<const std::byte> chunk,
                                              std::uint64_t item_count, std::uint64_t index) {
  if (chunk.size() < chunk_table_bytes(item_count))
    return Status(Code::kCorrupt, "chunk shorter than its table");
  if (const auto count = load_le<std::uint32_t>(chunk.data()); count != item_count) {
    return Status(Code::kCorrupt,
                  fmt::format("chunk of {} items, the index says {}", count, item_count));
  }
  const std::uint64_t begin = load_le<std::uint32_t>(chunk.data() + 4 * (index + 1));
  const std::uint64_t end = load_le<std::uint32_t>(chunk.data() + 4 * (index + 2));
  if (begin > end || end > chunk.size()) return Status(Code::kCorrupt, "offsets outside the chunk");
  return chunk.subspan(begin, end - begin);
}

ItemLayout::ItemLayout(const std::vector<Column>& columns) {
  for (const Column& column : columns) {
    Leaf leaf{.size_bytes = column.fixed_size_bytes};
    if (column.encoding == "json") leaf.form = Form::kJson;
    if (column.encoding == "list[bytes]") leaf.form = Form::kList;
    leaves_.push_back(leaf);
  }
}

std::string_view ItemLayout::cut(std::span<const std::byte> item,
                                 std::span<ColumnBytes> out) const noexcept {
  HEADRACE_DCHECK(out.size() == leaves_.size());
  std::uint64_t at = 4 * leaves_.size();
  if (at > item.size()) return "shorter than the sizes of its leaves";
  for (std::size_t c = 0; c < leaves_.size(); ++c) {
    const std::uint64_t size = load_le<std::uint32_t>(item.data() + 4 * c);
    if (size > item.size() - at) return "sizes of leaves do not add up to the item";
    if (leaves_[c].size_bytes != 0 && size != leaves_[c].size_bytes)
      return "a number has the wrong size";
    out[c] = {item.subspan(at, size), true};
    if (leaves_[c].form == Form::kJson && !make_json_cell(out[c])) return "a json leaf is broken";
    if (leaves_[c].form == Form::kList) make_list_cell(out[c]);
    at += size;
  }
  return at == item.size() ? std::string_view() : "sizes of leaves do not add up to the item";
}

}  // namespace headrace::detail
