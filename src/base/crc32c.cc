#include "base/crc32c.h"

#include <array>

#include "base/endian.h"
#if defined(__x86_64__)
#include <nmmintrin.h>
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

#if defined(__x86_64__)
// One chain of the 3-cycle instruction: 8 bytes in 3 cycles, above 7 GB/s on current cores. Three
// interleaved chains would be faster, but then memory is the limit.
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::span<const std::byte> bytes,
                                                             std::uint32_t before) noexcept {
  std::uint64_t crc = before ^ 0xffffffffU;
  const std::byte* p = bytes.data();
  std::size_t left_bytes = bytes.size();
  for (; left_bytes >= 8; left_bytes -= 8, p += 8)
    crc = _mm_crc32_u64(crc, load_le<std::uint64_t>(p));
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; left_bytes > 0; --left_bytes, ++p)
    narrow = _mm_crc32_u8(narrow, static_cast<std::uint8_t>(*p));
  return narrow ^ 0xffffffffU;
}
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
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_sse42(bytes, before);
#endif
  return detail::crc32c_portable(bytes, before);
}

}  // namespace headrace
