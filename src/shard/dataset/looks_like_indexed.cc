// Marks of the shards that an index.json describes: MDS and LitData begin with a table of offsets.
#include <algorithm>
#include <string_view>

#include "base/endian.h"
#include "shard/dataset/build.h"
#include "shard/formats/mds/mds_shard.h"

namespace headrace::detail {
namespace {

// The configuration of some hundred columns.
constexpr std::uint64_t kMostConfigBytes = std::uint64_t{64} << 10;
// Offsets that ascend by chance are rarer than that.
constexpr std::size_t kLeastOffsets = 8;

std::uint64_t word(std::span<const std::byte> head, std::size_t i) {
  return load_le<std::uint32_t>(head.data() + 4 * i);
}

// The part of a table in front of a shard that `head` holds ascends.
bool ascends(std::span<const std::byte> head, std::uint64_t count) {
  const std::size_t words = std::min<std::uint64_t>(head.size() / 4, count + 2);
  for (std::size_t i = 2; i < words; ++i)
    if (word(head, i) < word(head, i - 1)) return false;
  return true;
}

}  // namespace

bool looks_like_mds(std::span<const std::byte> head) noexcept {
  if (head.size() < 12) return false;
  const std::uint64_t count = word(head, 0), first = word(head, 1);
  const std::uint64_t table_bytes = mds_table_bytes(count);
  if (count == 0 || first <= table_bytes || first > table_bytes + kMostConfigBytes) return false;
  if (!ascends(head, count)) return false;
  // The configuration is a JSON object; where it lies further on, many offsets have to do.
  return table_bytes < head.size() ? head[table_bytes] == std::byte{'{'}
                                   : head.size() / 4 >= kLeastOffsets;
}

bool looks_like_litdata(std::span<const std::byte> head) noexcept {
  constexpr std::string_view kFrames{"LDFZ01\0\0", 8};
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with(kFrames)) return true;
  if (head.size() < 4 * (kLeastOffsets + 2)) return false;
  const std::uint64_t count = word(head, 0);
  return count >= kLeastOffsets && word(head, 1) == mds_table_bytes(count) && ascends(head, count);
}

}  // namespace headrace::detail
