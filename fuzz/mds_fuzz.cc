// The first byte chooses: an index.json, or a shard whose samples are cut with columns that the
// next bytes choose.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "shard/inflate.h"
#include "shard/mds/mds_index.h"
#include "shard/mds/mds_shard.h"

namespace {

using headrace::Column;
using headrace::ColumnBytes;

void require(bool condition) {
  if (!condition) std::abort();
}

void read_index(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  (void)headrace::detail::kind_of_index_json(text);
  auto index = headrace::detail::parse_mds_index(text, true);
  if (!index) return;
  for (const auto& shard : index->shards) {
    require(shard.sample_count * 4 < shard.raw_bytes && shard.raw_bytes >> 32 == 0);
    require(!shard.basename.empty() && shard.basename.front() != '/');
  }
}

bool is_inside(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] == 'z') {
    std::vector<std::byte> raw(1000);
    (void)headrace::detail::inflate_zstd(bytes, raw);
  } else if (data[0] % 2 == 0) {
    cut_shard(bytes);
  } else {
    read_index(bytes);
  }
  return 0;
}
