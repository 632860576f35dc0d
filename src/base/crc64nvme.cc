#include "base/crc64nvme.h"

#include "base/crc_combine.h"
#include "base/crc_fold.h"
#include "base/crc_tables.h"

namespace headrace {
namespace {

// 0xad93d23594c93659 with its bits reflected (NVM Express NVM Command Set Specification 1.0,
// section 5.2.1.3.4).
constexpr std::uint64_t kPolynomial = 0x9a6c9329ac4bc9b5;

constexpr detail::CrcTables<std::uint64_t> kTables = detail::make_crc_tables(kPolynomial);
constexpr auto kByteShifts = detail::make_byte_shifts(kPolynomial);
constexpr detail::FoldPlan kFold = detail::make_fold_plan<64>(kPolynomial);

std::uint64_t advance(std::uint64_t crc, std::span<const std::byte> bytes) noexcept {
  return detail::advance_crc(kTables, crc, bytes);
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
  return detail::combine_crcs(first, second, second_bytes, kByteShifts, kPolynomial);
}

}  // namespace headrace
