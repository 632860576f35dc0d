// The first byte chooses: an index.json (whole and in pieces), a shard whose samples are cut with
// columns that the next bytes choose, or a line of a split shard.
#include <algorithm>
#include <string_view>
#include <vector>

#include "require.h"
#include "shard/codec/inflate.h"
#include "shard/dataset/index_json.h"
#include "shard/formats/mds/mds_index.h"
#include "shard/formats/mds/mds_lines.h"
#include "shard/formats/mds/mds_shard.h"

namespace {

using headrace::Column;
using headrace::ColumnBytes;

void read_index(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  (void)headrace::detail::owner_of_index_json(text);
  auto index = headrace::detail::parse_mds_index(text, true);
  headrace::detail::MdsIndexStream stream(true);
  headrace::Status fed;
  for (std::size_t at = 0; at < text.size() && fed.ok(); at += 3)
    fed = stream.feed(text.substr(at, 3));
  auto streamed = stream.finish();
  if (fed.ok()) require(streamed.has_value() == index.has_value());
  (void)headrace::detail::parse_mds_layout(text);
  if (!index) return;
  require(fed.ok() && streamed->shards.size() == index->shards.size());
  for (const auto& shard : index->shards) {
    require(shard.raw_bytes >> 32 == 0 && shard.meta.raw_bytes >> 32 == 0);
    require(shard.sample_count * 4 < std::max(shard.raw_bytes, shard.meta.raw_bytes));
    require(!shard.basename.empty() && shard.basename.front() != '/');
  }
}

void cut_shard(std::span<const std::byte> bytes) {
  std::vector<Column> columns(1 + std::to_integer<std::size_t>(bytes[0]) % 4);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    columns[c].fixed_size_bytes = (std::to_integer<unsigned>(bytes[0]) >> (2 + c)) & 1 ? c + 1 : 0;
  }
  const headrace::detail::MdsLayout layout(columns);
  const std::uint64_t sample_count = std::to_integer<std::uint64_t>(bytes[1]);
  const auto shard = bytes.subspan(2);
  std::vector<ColumnBytes> out(columns.size());
  for (std::uint64_t i = 0; i < sample_count; ++i) {
    const auto sample = headrace::detail::mds_sample(shard, sample_count, i);
    if (!sample) continue;
    require(is_inside(*sample, shard));
    if (!layout.cut(*sample, out)) continue;
    for (const ColumnBytes& column : out)
      require(column.present && is_inside(column.bytes, *sample));
  }
  std::vector<std::uint64_t> offsets;
  headrace::detail::append_mds_offsets(shard, 0, offsets);
  if (!offsets.empty()) (void)headrace::detail::check_mds_offsets(offsets, shard.size());
}

void cut_line(std::span<const std::byte> bytes) {
  std::vector<Column> columns(1 + std::to_integer<std::size_t>(bytes[0]) % 3);
  columns[0].name = "a";
  if (columns.size() > 1) columns[1].name = "b";
  using headrace::detail::MdsSplit;
  const bool is_json = std::to_integer<unsigned>(bytes[1]) % 2 == 0;
  const headrace::detail::MdsLineCutter cutter(
      {is_json ? MdsSplit::Kind::kJson : MdsSplit::Kind::kXsv, ",", "\n"}, columns);
  std::vector<ColumnBytes> out(columns.size());
  const auto line = bytes.subspan(2);
  if (!cutter.cut(line, out).ok()) return;
  for (const ColumnBytes& column : out) {
    require(column.present && is_inside(column.bytes, line) && column.size() <= line.size());
    std::vector<std::byte> value(column.size());
    column.write_to(value);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] == 'z') {
    std::vector<std::byte> raw(1000);
    (void)headrace::detail::inflate(headrace::detail::Compression::kZstd, bytes, raw);
  } else if (data[0] == 'l') {
    cut_line(bytes);
  } else if (data[0] % 2 == 0) {
    cut_shard(bytes);
  } else {
    read_index(bytes);
  }
  return 0;
}
