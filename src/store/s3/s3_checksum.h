#pragma once
/// \file
/// Checksums in the form of S3's x-amz-checksum-* fields. Pure.
#include <string_view>

#include "headrace/store.h"
#include "http/response.h"
#include "store/http_protocol.h"
#include "store/vendor/checksum_text.h"

namespace headrace::s3 {

/// "x-amz-checksum-crc32c", "x-amz-checksum-crc64nvme"; "" for kNone.
std::string_view checksum_field(ChecksumKind kind) noexcept;
/// "CRC32C", "CRC64NVME" as in x-amz-checksum-algorithm; "" for kNone.
std::string_view checksum_algorithm(ChecksumKind kind) noexcept;
/// "ChecksumCRC32C", "ChecksumCRC64NVME" as in XML; "" for kNone.
std::string_view checksum_element(ChecksumKind kind) noexcept;

/// The sum that a successful answer to a GET announces for exactly the bytes of its body: that of
/// a whole object, or that of a part of an object whose own sum is a sum of sums. Never one that
/// speaks of more than the body.
Checksum announced_checksum(const http::ResponseHead& head) noexcept;

/// The sum of the whole object that a successful answer to a HEAD tells: none where it is a sum of
/// sums.
Checksum object_checksum(const http::ResponseHead& head) noexcept;

}  // namespace headrace::s3
