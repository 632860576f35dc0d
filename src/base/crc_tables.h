#pragma once
/// \file
/// CRCs by tables, for bytes that no instruction of the processor takes. Private to base: crc32c.cc
/// and crc64nvme.cc. Pure; any thread.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/endian.h"

namespace headrace::detail {

/// [k][b]: effect of byte b followed by k zero bytes ("slicing by 8").
template <class Word>
using CrcTables = std::array<std::array<Word, 256>, 8>;

/// `polynomial`: bits reflected.
template <class Word>
constexpr CrcTables<Word> make_crc_tables(Word polynomial) {
  CrcTables<Word> tables{};
  for (std::size_t b = 0; b < 256; ++b) {
    auto crc = static_cast<Word>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const Word shorter = tables[k - 1][b];
      tables[k][b] = (shorter >> 8) ^ tables[0][shorter & 0xff];
    }
  }
  return tables;
}

/// The register after `bytes`, without the inversions at both ends.
template <class Word>
Word advance_crc(const CrcTables<Word>& tables, Word crc,
                 std::span<const std::byte> bytes) noexcept {
  const std::byte* p = bytes.data();
  std::size_t left_bytes = bytes.size();
  for (; left_bytes >= 8; left_bytes -= 8, p += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(p) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= tables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left_bytes > 0; --left_bytes, ++p)
    crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<std::uint8_t>(*p)) & 0xff];
  return crc;
}

}  // namespace headrace::detail
