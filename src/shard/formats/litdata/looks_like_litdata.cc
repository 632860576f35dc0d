#include "shard/formats/litdata/litdata_driver.h"
#include "shard/formats/mds/mds_shard.h"
#include "shard/formats/mds/offset_table.h"

namespace headrace::detail {

bool looks_like_litdata(std::span<const std::byte> head) noexcept {
  constexpr std::string_view kFrames{"LDFZ01\0\0", 8};
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with(kFrames)) return true;
  if (head.size() < 4 * (kLeastOffsets + 2)) return false;
  const std::uint64_t count = table_word(head, 0);
  return count >= kLeastOffsets && table_word(head, 1) == mds_table_bytes(count) &&
         table_ascends(head, count);
}

}  // namespace headrace::detail
