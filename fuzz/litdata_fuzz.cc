// The first byte chooses a parser of LitData: index.json, data_spec, a json leaf, framed tables, an
// item, a layout.
#include <string>
#include <string_view>
#include <vector>

#include "require.h"
#include "shard/formats/litdata/data_spec.h"
#include "shard/formats/litdata/fernet.h"
#include "shard/formats/litdata/framed.h"
#include "shard/formats/litdata/item.h"
#include "shard/formats/litdata/json_leaf.h"
#include "shard/formats/litdata/litdata_index.h"
#include "shard/formats/litdata/litdata_layout.h"

namespace {

using headrace::Column;
using headrace::ColumnBytes;
namespace detail = headrace::detail;

void read_index(std::string_view text) {
  auto index = detail::parse_litdata_index(text);
  if (!index) return;
  require(index->leaf_names.size() == index->leaf_formats.size());
  for (const auto& chunk : index->chunks)
    require(chunk.item_count * 4 < chunk.chunk_bytes && chunk.chunk_bytes >> 32 == 0);
  (void)detail::litdata_columns(*index, true);
}

void write_leaf(std::span<const std::byte> leaf) {
  ColumnBytes cell{.bytes = leaf, .present = true};
  if (!detail::make_json_cell(cell)) return;
  require(cell.size() <= detail::most_json_text_bytes(leaf.size()));
  // Bytes that the writer leaves out would keep the mark, which no text of ours has.
  std::vector<std::byte> out(cell.size(), std::byte{0xff});
  cell.write_to(out);
  if (!leaf.empty() && std::to_integer<unsigned>(leaf[0]) < 0x20 && !out.empty())
    require(out.back() != std::byte{0xff} || std::to_integer<unsigned>(leaf[0]) == 0);
}

void read_frames(std::span<const std::byte> bytes) {
  auto tables = detail::parse_framed_tables(bytes, bytes.size());
  if (tables) {
    for (const auto& frame : tables->frames) {
      require(frame.stored_begin + frame.stored_bytes <= bytes.size());
      require(frame.raw_begin + frame.raw_bytes <= tables->offsets.back());
    }
  }
  if (bytes.size() < detail::kArrowFooterBytes) return;
  if (const auto arrow =
          detail::parse_arrow_footer(bytes.last(detail::kArrowFooterBytes), bytes.size()))
    require(arrow->offset_bytes + arrow->length_bytes < bytes.size());
  (void)detail::zstd_content_bytes(bytes.first(std::min<std::size_t>(bytes.size(), 18)));
}

void cut_chunk(std::span<const std::byte> bytes) {
  std::vector<Column> columns(1 + std::to_integer<std::size_t>(bytes[0]) % 4);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const unsigned form = (std::to_integer<unsigned>(bytes[0]) >> (2 * c)) & 3;
    if (form == 1) columns[c].fixed_size_bytes = 8;
    if (form == 2) columns[c].encoding = "json";
    if (form == 3) columns[c].encoding = "list[bytes]";
  }
  const detail::ItemLayout layout(columns);
  const std::uint64_t count = std::to_integer<std::uint64_t>(bytes[1]);
  const auto chunk = bytes.subspan(2);
  (void)detail::parse_chunk_table(chunk, count, chunk.size());
  std::vector<ColumnBytes> out(columns.size());
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto item = detail::chunk_item(chunk, count, i);
    if (!item) continue;
    require(is_inside(*item, chunk));
    if (!layout.cut(*item, out).empty()) continue;
    for (const ColumnBytes& cell : out) {
      require(cell.present && is_inside(cell.bytes, *item));
      std::vector<std::byte> value(cell.size());
      cell.write_to(value);
    }
  }
}

void decode_text(std::span<const std::byte> bytes) {
  std::vector<std::byte> out(bytes.size());
  if (const auto size = detail::decode_base64(bytes, out)) require(*size <= bytes.size() / 4 * 3);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  switch (data[0] % 7) {
    case 0:
      read_index(text);
      break;
    case 1:
      (void)detail::parse_data_spec(text);
      break;
    case 2:
      write_leaf(bytes);
      break;
    case 3:
      read_frames(bytes);
      break;
    case 4:
      cut_chunk(bytes);
      break;
    case 5:
      (void)detail::parse_litdata_layout(text, 1);
      break;
    default:
      decode_text(bytes);
  }
  return 0;
}
