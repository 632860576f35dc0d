#pragma once
/// \file
/// Checksums as S3's x-amz-checksum-* fields and Google's x-goog-hash have them. Pure.
///
/// Place: below s3/ and gcs/.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/store.h"

namespace headrace::vendor {

/// Sum of `bytes`.
std::uint64_t checksum_value(ChecksumKind kind, std::span<const std::byte> bytes) noexcept;
/// Appends base64 of the big-endian sum. No allocation beyond the caller's string.
void append_checksum_text(ChecksumKind kind, std::uint64_t value, std::string& out);
/// Undoes it; nullopt for anything else, such as a sum of sums ("AAAAAA==-3").
std::optional<std::uint64_t> parse_checksum_text(ChecksumKind kind, std::string_view text) noexcept;

/// Sum of the whole object from the sums of its parts; nullopt unless all have sum and size.
std::optional<std::uint64_t> combined_checksum(ChecksumKind kind,
                                               std::span<const UploadedPart> parts) noexcept;

}  // namespace headrace::vendor
