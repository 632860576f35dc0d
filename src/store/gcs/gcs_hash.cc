#include "store/gcs/gcs_hash.h"

#include <openssl/evp.h>

#include <array>

#include "auth/google_signature.h"
#include "base/strings.h"
#include "http/fields.h"

namespace headrace::gcs {

std::string crc32c_text(std::uint32_t crc) {
  const char bytes[4] = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16),
                         static_cast<char>(crc >> 8), static_cast<char>(crc)};
  return auth::base64({bytes, 4});
}

std::optional<std::uint32_t> parse_crc32c_text(std::string_view text) noexcept {
  if (text.size() != 8 || !text.ends_with("==")) return std::nullopt;
  std::array<unsigned char, 6> bytes{};
  if (EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()), 8) != 6)
    return std::nullopt;
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | bytes[3];
}

std::optional<std::uint32_t> stored_crc32c(const http::ResponseHead& head) noexcept {
  constexpr std::string_view kName = "crc32c=";
  std::string_view fields = head.fields;
  http::Field field;
  while (http::next_field(fields, field)) {
    if (!http::equals_ignoring_case(field.name, "x-goog-hash")) continue;
    std::string_view value = field.value;
    while (!value.empty()) {
      const std::size_t comma = std::min(value.find(','), value.size());
      const std::string_view piece = trim(value.substr(0, comma));
      if (piece.starts_with(kName)) return parse_crc32c_text(piece.substr(kName.size()));
      value.remove_prefix(std::min(comma + 1, value.size()));
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> stored_size_bytes(const http::ResponseHead& head) noexcept {
  const auto stored = parse_decimal<std::uint64_t>(head.header("x-goog-stored-content-length"));
  return stored ? stored : head.content_length;
}

}  // namespace headrace::gcs
