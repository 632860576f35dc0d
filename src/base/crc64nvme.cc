#include "base/crc64nvme.h"

#include <array>

#include "base/crc_combine.h"
#include "base/crc_fold.h"
#include "base/endian.h"

namespace headrace {
namespace {

// 0xad93d23594c93659 with its bits reflected (NVM Express NVM Command Set Specification 1.0,
// section 5.2.1.3.4).
constexpr std::uint64_t kPolynomial = 0x9a6c9329ac4bc9b5;

using Tables = std::array<std::array<std::uint64_t, 256>, 8>;

// tables[k][b]: effect of byte b followed by k zero bytes ("slicing by 8").
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint64_t b = 0; b < 256; ++b) {
    std::uint64_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint64_t shorter = tables[k - 1][b];
      tables[k][b] = (shorter >> 8) ^ tables[0][shorter & 0xff];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();
constexpr detail::FoldPlan kFold = detail::make_fold_plan<64>(kPolynomial);

/// The register after `bytes`, without the inversions at both ends.
std::uint64_t advance(std::uint64_t crc, std::span<const std::byte> bytes) noexcept {
  const std::byte* p = bytes.data();
  std::size_t left_bytes = bytes.size();
  for (; left_bytes >= 8; left_bytes -= 8, p += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(p) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left_bytes > 0; --left_bytes, ++p)
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint8_t>(*p)) & 0xff];
  return crc;
}

}  // namespace

std::uint64_t detail::crc64nvme_portable(std::span<const std::byte> bytes,
                                         std::uint64_t before) noexcept {
  return ~advance(~before, bytes);
}

std::uint64_t crc64nvme(std::span<const std::byte> bytes, std::uint64_t before) noexcept {
  const detail::FoldWidth width = detail::best_fold_width();
  if (bytes.size() < detail::kLeastFoldBytes || width == detail::FoldWidth::kNone)
    return detail::crc64nvme_portable(bytes, before);
  const std::size_t folded_bytes = bytes.size() & ~std::size_t{15};
  const auto folded = detail::fold(bytes.first(folded_bytes), ~before, kFold, width);
  return ~advance(advance(0, folded), bytes.subspan(folded_bytes));
}

std::uint64_t crc64nvme_combine(std::uint64_t first, std::uint64_t second,
                                std::uint64_t second_bytes) noexcept {
  return detail::combine_crcs(first, second, second_bytes, kPolynomial);
}

}  // namespace headrace
