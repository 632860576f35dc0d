#pragma once
/// \file
/// CRC-64/NVME, as NVMe and S3's x-amz-checksum-crc64nvme use it. Pure; any thread.
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

/// CRC-64/NVME of `bytes`; or, given the CRC of what went before them, of both together. By
/// carry-less multiplication where the processor has it, else by tables. Never fails.
std::uint64_t crc64nvme(std::span<const std::byte> bytes, std::uint64_t before = 0) noexcept;

/// CRC of two texts one after the other, of which the second has `second_bytes` bytes: sums of
/// whole objects from those of their parts. O(log second_bytes).
std::uint64_t crc64nvme_combine(std::uint64_t first, std::uint64_t second,
                                std::uint64_t second_bytes) noexcept;

namespace detail {
/// The table variant, for comparison in tests.
std::uint64_t crc64nvme_portable(std::span<const std::byte> bytes, std::uint64_t before) noexcept;
}  // namespace detail

}  // namespace headrace
