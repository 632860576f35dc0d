#pragma once
/// \file
/// One framed record of a TFRecord file: length, checksum of the length, payload, checksum of the
/// payload. Pure.
///
/// Source: tensorflow/core/lib/io/record_writer.h ("Format of a single record"), with the golden
/// records of docs/formats.md, "TFRecord".
///
/// Threads: functions.
#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/status.h"

namespace headrace::detail {

inline constexpr std::uint64_t kRecordHeaderBytes = 12;
inline constexpr std::uint64_t kRecordTrailerBytes = 4;
/// Largest payload that is believed: keeps sums of offsets from overflowing.
inline constexpr std::uint64_t kMostRecordBytes = std::uint64_t{1} << 62;

/// The checksum that stands in a file for CRC-32C `crc`.
constexpr std::uint32_t mask_crc(std::uint32_t crc) noexcept {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

/// Payload bytes of the record whose header is at the start of `bytes` (at least
/// kRecordHeaderBytes). Errors: kCorrupt (checksum of the length).
Result<std::uint64_t> parse_record_header(std::span<const std::byte> bytes);

/// True when the trailer that follows `payload` in memory is its checksum. \pre kRecordTrailerBytes
/// are readable behind it.
bool is_record_data_right(std::span<const std::byte> payload) noexcept;

/// The payload of the record that fills `frame`, both checksums checked. Errors: kCorrupt.
Result<std::span<const std::byte>> open_record(std::span<const std::byte> frame);

}  // namespace headrace::detail
