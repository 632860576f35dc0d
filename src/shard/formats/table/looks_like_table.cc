#include <string_view>

#include "shard/formats/table/ipc_stream.h"
#include "shard/formats/table/table_driver.h"

namespace headrace::detail {

bool looks_like_table(std::span<const std::byte> head) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  // "PARE" files have an encrypted footer: found here, refused with their name when opened.
  return text.starts_with("PAR1") || text.starts_with("PARE") || text.starts_with("ARROW1") ||
         looks_like_ipc_stream(head);
}

}  // namespace headrace::detail
