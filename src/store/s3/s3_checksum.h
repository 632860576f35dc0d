#pragma once
/// \file
/// Checksums in the form of S3's x-amz-checksum-* fields. Pure.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/store.h"
#include "http/response.h"
#include "store/http_protocol.h"

namespace headrace::s3 {

/// "x-amz-checksum-crc32c", "x-amz-checksum-crc64nvme"; "" for kNone.
std::string_view checksum_field(ChecksumKind kind) noexcept;
/// "CRC32C", "CRC64NVME" as in x-amz-checksum-algorithm; "" for kNone.
std::string_view checksum_algorithm(ChecksumKind kind) noexcept;
/// "ChecksumCRC32C", "ChecksumCRC64NVME" as in XML; "" for kNone.
std::string_view checksum_element(ChecksumKind kind) noexcept;

/// Sum of `bytes`.
std::uint64_t checksum_value(ChecksumKind kind, std::span<const std::byte> bytes) noexcept;
/// Appends base64 of the big-endian sum. No allocation beyond the caller's string.
void append_checksum_text(ChecksumKind kind, std::uint64_t value, std::string& out);
/// Undoes it; nullopt for anything else, such as a sum of sums ("AAAAAA==-3").
std::optional<std::uint64_t> parse_checksum_text(ChecksumKind kind, std::string_view text) noexcept;

/// Sum of the whole object from the sums of its parts; nullopt unless all have sum and size.
std::optional<std::uint64_t> combined_checksum(ChecksumKind kind,
                                               std::span<const UploadedPart> parts) noexcept;

/// The sum that a successful answer to a GET announces for exactly the bytes of its body: that of
/// a whole object, or that of a part of an object whose own sum is a sum of sums. Never one that
/// speaks of more than the body.
BodyChecksum announced_checksum(const http::ResponseHead& head) noexcept;

}  // namespace headrace::s3
