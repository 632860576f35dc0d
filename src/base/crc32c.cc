#include "base/crc32c.h"

#include <array>

#include "base/crc_combine.h"
#include "base/crc_fold.h"
#include "base/endian.h"
#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace headrace {
namespace {

constexpr std::uint32_t kPolynomial =
    0x82f63b78;  // Castagnoli, bits reversed (RFC 3720 appendix B.4)

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b]: effect of byte b followed by k zero bytes ("slicing by 8").
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t shorter = tables[k - 1][b];
      tables[k][b] = (shorter >> 8) ^ tables[0][shorter & 0xff];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

constexpr detail::FoldPlan kFold = detail::make_fold_plan<32>(std::uint64_t{kPolynomial} << 32);

#if defined(__x86_64__)
// One chain of the 3-cycle instruction: 8 bytes in 3 cycles. For short runs, and for processors
// that cannot fold.
__attribute__((target("sse4.2"))) std::uint32_t advance(std::uint32_t before,
                                                        std::span<const std::byte> bytes) noexcept {
  std::uint64_t crc = before;
  const std::byte* p = bytes.data();
  std::size_t left_bytes = bytes.size();
  for (; left_bytes >= 8; left_bytes -= 8, p += 8)
    crc = _mm_crc32_u64(crc, load_le<std::uint64_t>(p));
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; left_bytes > 0; --left_bytes, ++p)
    narrow = _mm_crc32_u8(narrow, static_cast<std::uint8_t>(*p));
  return narrow;
}
bool can_advance() noexcept { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__linux__)
// One instruction a cycle that takes 8 bytes, results after 2 to 3: about 8 GB/s at 3 GHz.
__attribute__((target("+crc"))) std::uint32_t advance(std::uint32_t crc,
                                                      std::span<const std::byte> bytes) noexcept {
  const std::byte* p = bytes.data();
  std::size_t left_bytes = bytes.size();
  for (; left_bytes >= 8; left_bytes -= 8, p += 8) crc = __crc32cd(crc, load_le<std::uint64_t>(p));
  for (; left_bytes > 0; --left_bytes, ++p) crc = __crc32cb(crc, static_cast<std::uint8_t>(*p));
  return crc;
}
bool can_advance() noexcept { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
std::uint32_t advance(std::uint32_t crc, std::span<const std::byte>) noexcept { return crc; }
bool can_advance() noexcept { return false; }
#endif

}  // namespace

std::uint32_t detail::crc32c_portable(std::span<const std::byte> bytes,
                                      std::uint32_t before) noexcept {
  std::uint32_t crc = before ^ 0xffffffffU;
  const std::byte* p = bytes.data();
  std::size_t left_bytes = bytes.size();
  for (; left_bytes >= 8; left_bytes -= 8, p += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(p) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left_bytes > 0; --left_bytes, ++p)
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint8_t>(*p)) & 0xff];
  return crc ^ 0xffffffffU;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  if (!can_advance()) return detail::crc32c_portable(bytes, before);
  std::uint32_t crc = ~before;
  const detail::FoldWidth width = detail::best_fold_width();
  if (bytes.size() >= detail::kLeastFoldBytes && width != detail::FoldWidth::kNone) {
    const std::size_t folded_bytes = bytes.size() & ~std::size_t{15};
    crc = advance(0, detail::fold(bytes.first(folded_bytes), crc, kFold, width));
    bytes = bytes.subspan(folded_bytes);
  }
  return ~advance(crc, bytes);
}

std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second,
                             std::uint64_t second_bytes) noexcept {
  return detail::combine_crcs(first, second, second_bytes, kPolynomial);
}

}  // namespace headrace
