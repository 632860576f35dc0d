#include "shard/formats/mds/mds_driver.h"
#include "shard/formats/mds/mds_shard.h"
#include "shard/formats/mds/offset_table.h"

namespace headrace::detail {

bool looks_like_mds(std::span<const std::byte> head) noexcept {
  // The configuration of some hundred columns.
  constexpr std::uint64_t kMostConfigBytes = std::uint64_t{64} << 10;
  if (head.size() < 12) return false;
  const std::uint64_t count = table_word(head, 0), first = table_word(head, 1);
  const std::uint64_t table_bytes = mds_table_bytes(count);
  if (count == 0 || first <= table_bytes || first > table_bytes + kMostConfigBytes) return false;
  if (!table_ascends(head, count)) return false;
  // The configuration is a JSON object; where it lies further on, many offsets have to do.
  return table_bytes < head.size() ? head[table_bytes] == std::byte{'{'}
                                   : head.size() / 4 >= kLeastOffsets;
}

}  // namespace headrace::detail
