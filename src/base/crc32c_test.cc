#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "base/random.h"

namespace headrace {
namespace {

std::uint32_t crc_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

TEST(Crc32c, MatchesPublishedVectors) {
  EXPECT_EQ(crc_of(""), 0U);
  EXPECT_EQ(crc_of("123456789"), 0xe3069283U);  // the check value of CRC-32C
  // RFC 3720 appendix B.4.
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<char>(i));
  EXPECT_EQ(crc_of(rising), 0x46dd794eU);
}

TEST(Crc32c, InstructionAndTablesAgreeAtEveryLengthAndAlignment) {
  Random random(1);
  std::vector<std::byte> bytes(1200);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length < 1100; ++length) {
      const std::span<const std::byte> part(bytes.data() + begin, length);
      ASSERT_EQ(crc32c(part, 77), detail::crc32c_portable(part, 77)) << begin << " " << length;
    }
  }
}

TEST(Crc32c, ContinuesFromTheCrcOfWhatWentBefore) {
  const std::string_view text = "the quick brown fox jumps over the lazy dog";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const auto rest = std::as_bytes(std::span(text.substr(cut)));
    EXPECT_EQ(crc32c(rest, crc_of(text.substr(0, cut))), crc_of(text));
  }
}

TEST(Crc32c, CombinesTheSumsOfPieces) {
  const std::string text(100'003, 'a');
  for (std::size_t cut : {0U, 1U, 2U, 4096U, 65'537U, 100'003U}) {
    const std::string_view first = std::string_view(text).substr(0, cut);
    const std::string_view second = std::string_view(text).substr(cut);
    EXPECT_EQ(crc32c_combine(crc_of(first), crc_of(second), second.size()), crc_of(text)) << cut;
  }
}

}  // namespace
}  // namespace headrace
