#pragma once
/// \file
/// The x-goog-hash field: CRC32C as Google writes it. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/response.h"

namespace headrace::gcs {

/// Four bytes, most significant first, in base64: "nnG/3Q==".
std::string crc32c_text(std::uint32_t crc);
std::optional<std::uint32_t> parse_crc32c_text(std::string_view text) noexcept;

/// The CRC32C of a whole object as it is stored, from all x-goog-hash fields ("crc32c=..,md5=..",
/// in one field or several).
std::optional<std::uint32_t> stored_crc32c(const http::ResponseHead& head) noexcept;

/// Size of the object as it is stored: x-goog-stored-content-length, else that of the answer.
std::optional<std::uint64_t> stored_size_bytes(const http::ResponseHead& head) noexcept;

}  // namespace headrace::gcs
