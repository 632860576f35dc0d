#pragma once
/// \file
/// What Google Cloud Storage's XML API has beside S3's: bearer tokens, generations, x-goog-hash,
/// x-goog-copy-source. Requests that carry a bearer token are Google's. Pure.
/// Source of names: Cloud Storage, "XML API" reference.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/request.h"
#include "sim/file_cache.h"

namespace headrace::sim {

bool is_google_request(const http::RequestHead& head) noexcept;
/// The token of "Authorization: Bearer TOKEN"; empty without one.
std::string_view bearer_token(const http::RequestHead& head) noexcept;

/// A version's generation: grows with each write of the object.
std::uint64_t generation_of(const FileInfo& info) noexcept;

/// x-goog-if-generation-match; nullopt when it is not there. 0: the object must not exist.
std::optional<std::uint64_t> wanted_generation(const http::RequestHead& head);

/// "crc32c" of an x-goog-hash field, base64; empty without one.
std::string_view crc32c_of_hash(std::string_view field) noexcept;

/// Header lines of answers about a version: generation, stored length and encoding, hash.
/// `sums`: text of ObjectSums.
void append_google_fields(const FileInfo& info, std::string_view sums, std::string& out);

}  // namespace headrace::sim
