#include "pack/sample_format.h"

#include <array>

#include "base/endian.h"

namespace headrace::pack_detail {

Status in_column(const TargetColumn& column, Status status) {
  return std::move(status).annotate("column '" + column.name + "'");
}

void append_u32(std::vector<std::byte>& out, std::uint64_t value) {
  std::array<std::byte, 4> bytes{};
  store_le(bytes.data(), static_cast<std::uint32_t>(value));
  append_bytes(out, bytes);
}

std::string offsets_head(std::span<const std::uint64_t> ends, std::string_view config) {
  const std::uint64_t begin = 4 + 4 * (ends.size() + 1) + config.size();
  std::string head(begin, '\0');
  auto* const bytes = reinterpret_cast<std::byte*>(head.data());
  store_le(bytes, static_cast<std::uint32_t>(ends.size()));
  store_le(bytes + 4, static_cast<std::uint32_t>(begin));
  for (std::size_t i = 0; i < ends.size(); ++i)
    store_le(bytes + 8 + 4 * i, static_cast<std::uint32_t>(begin + ends[i]));
  head.replace(begin - config.size(), config.size(), config);
  return head;
}

}  // namespace headrace::pack_detail
