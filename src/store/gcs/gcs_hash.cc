#include "store/gcs/gcs_hash.h"

#include "base/list_item.h"
#include "base/strings.h"
#include "http/fields.h"
#include "store/vendor/checksum_text.h"

namespace headrace::gcs {

std::optional<std::uint64_t> stored_crc32c(const http::ResponseHead& head) noexcept {
  constexpr std::string_view kName = "crc32c=";
  std::string_view fields = head.fields;
  http::Field field;
  while (http::next_field(fields, field)) {
    if (!http::equals_ignoring_case(field.name, "x-goog-hash")) continue;
    std::string_view value = field.value;
    while (!value.empty()) {
      const std::string_view piece = take_item(value);
      if (piece.starts_with(kName))
        return vendor::parse_checksum_text(ChecksumKind::kCrc32c, piece.substr(kName.size()));
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> stored_size_bytes(const http::ResponseHead& head) noexcept {
  const auto stored = parse_decimal<std::uint64_t>(head.header("x-goog-stored-content-length"));
  return stored ? stored : head.content_length;
}

}  // namespace headrace::gcs
