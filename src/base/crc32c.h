#pragma once
/// \file
/// CRC-32C (Castagnoli), as TFRecord, NVMe, iSCSI and S3's x-amz-checksum-crc32c use it. Pure; any
/// thread.
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

/// CRC-32C of `bytes`; or, given the CRC of what went before them, of both together.
/// By the processor's instruction where it has one (SSE 4.2), else by tables. Never fails.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

namespace detail {
/// The table variant, for comparison in tests.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t before) noexcept;
}  // namespace detail

}  // namespace headrace
