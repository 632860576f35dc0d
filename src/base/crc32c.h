#pragma once
/// \file
/// CRC-32C (Castagnoli), as TFRecord, NVMe, iSCSI and S3's x-amz-checksum-crc32c use it. Pure; any
/// thread.
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

/// CRC-32C of `bytes`; or, given the CRC of what went before them, of both together.
/// By the processor's instructions where it has them (SSE 4.2 and PCLMULQDQ, ARMv8 CRC), else by
/// tables. Never fails.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept;

/// CRC of two texts one after the other, of which the second has `second_bytes` bytes: sums of
/// whole objects from those of their parts. O(log second_bytes).
std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second,
                             std::uint64_t second_bytes) noexcept;

namespace detail {
/// The table variant, for comparison in tests.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t before) noexcept;
}  // namespace detail

}  // namespace headrace
