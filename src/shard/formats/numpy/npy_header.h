#pragma once
/// \file
/// Header of a `.npy` file: what array follows. Pure.
///
/// Source: numpy/lib/format.py (versions 1 to 3). The header is the text of a Python dict; it is
/// read by a small parser of literals, never evaluated.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/dataset.h"

namespace headrace::detail {

/// Longest header that is read. Only structured dtypes, which are refused, have longer ones.
inline constexpr std::uint64_t kMostNpyHeaderBytes = std::uint64_t{64} << 10;
/// Magic, version and length.
inline constexpr std::uint64_t kNpyPrefixBytes = 12;

struct NpyHeader {
  std::string dtype;                 ///< numpy name: "float32".
  std::vector<std::uint64_t> shape;  ///< Of a row.
  std::uint64_t row_count = 0;
  std::uint64_t row_bytes = 0;    ///< > 0
  std::uint64_t data_offset = 0;  ///< From the begin of the file.
  /// < 2^63.
  std::uint64_t data_bytes() const noexcept { return row_count * row_bytes; }
};

/// Bytes up to the array, from the first kNpyPrefixBytes of a file. Errors: kCorrupt (no .npy),
/// kUnsupported (newer version, header above kMostNpyHeaderBytes).
Result<std::uint64_t> npy_header_bytes(std::span<const std::byte> prefix);

/// `head`: at least npy_header_bytes() of a file. Errors: kCorrupt, kUnsupported (objects,
/// structures, text, dates, big-endian, Fortran order of more than one axis, no axis, rows without
/// bytes): names what it saw.
Result<NpyHeader> parse_npy_header(std::span<const std::byte> head);

}  // namespace headrace::detail
