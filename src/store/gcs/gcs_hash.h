#pragma once
/// \file
/// What Google's answers say of an object as it is stored. Pure.
#include <cstdint>
#include <optional>

#include "http/response.h"

namespace headrace::gcs {

/// The CRC32C of a whole object as it is stored, from all x-goog-hash fields ("crc32c=..,md5=..",
/// in one field or several).
std::optional<std::uint64_t> stored_crc32c(const http::ResponseHead& head) noexcept;

/// Size of the object as it is stored: x-goog-stored-content-length, else that of the answer.
std::optional<std::uint64_t> stored_size_bytes(const http::ResponseHead& head) noexcept;

}  // namespace headrace::gcs
