// CRC-32C and CRC-64/NVME: published values, and that instructions, tables and sums of pieces
// agree.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/crc32c.h"
#include "base/crc64nvme.h"
#include "base/crc_fold.h"
#include "base/random.h"

namespace headrace {
namespace {

struct Crc32c {
  static auto of(std::span<const std::byte> bytes, std::uint32_t before = 0) {
    return crc32c(bytes, before);
  }
  static auto portable(std::span<const std::byte> bytes, std::uint32_t before) {
    return detail::crc32c_portable(bytes, before);
  }
  static auto combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
    return crc32c_combine(first, second, second_bytes);
  }
};

struct Crc64Nvme {
  static auto of(std::span<const std::byte> bytes, std::uint64_t before = 0) {
    return crc64nvme(bytes, before);
  }
  static auto portable(std::span<const std::byte> bytes, std::uint64_t before) {
    return detail::crc64nvme_portable(bytes, before);
  }
  static auto combine(std::uint64_t first, std::uint64_t second, std::uint64_t second_bytes) {
    return crc64nvme_combine(first, second, second_bytes);
  }
};

template <class Crc>
auto crc_of(std::string_view text) {
  return Crc::of(std::as_bytes(std::span(text)));
}

std::vector<std::byte> random_bytes(std::size_t count) {
  Random random(1);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  return bytes;
}

std::string rising_bytes(int count) {
  std::string rising;
  for (int i = 0; i < count; ++i) rising.push_back(static_cast<char>(i));
  return rising;
}

TEST(Crc32cTest, MatchesPublishedVectors) {
  EXPECT_EQ(crc_of<Crc32c>(""), 0U);
  EXPECT_EQ(crc_of<Crc32c>("123456789"), 0xe3069283U);  // the check value of CRC-32C
  // RFC 3720 appendix B.4.
  EXPECT_EQ(crc_of<Crc32c>(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc_of<Crc32c>(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc_of<Crc32c>(rising_bytes(32)), 0x46dd794eU);
}

TEST(Crc64NvmeTest, MatchesPublishedVectors) {
  EXPECT_EQ(crc_of<Crc64Nvme>(""), 0U);
  // The check value of CRC-64/NVME.
  EXPECT_EQ(crc_of<Crc64Nvme>("123456789"), 0xae8b14860a799888U);
  // NVM Express NVM Command Set Specification 1.0, table "64b CRC Test Cases for 4 KiB Logical
  // Block with no Metadata".
  EXPECT_EQ(crc_of<Crc64Nvme>(std::string(4096, '\0')), 0x6482d367eb22b64eU);
  EXPECT_EQ(crc_of<Crc64Nvme>(std::string(4096, '\xff')), 0xc0ddba7302eca3acU);
  EXPECT_EQ(crc_of<Crc64Nvme>(rising_bytes(4096)), 0x3e729f5f6750449cU);
}

template <class Crc>
class CrcTest : public testing::Test {};
using Crcs = testing::Types<Crc32c, Crc64Nvme>;
TYPED_TEST_SUITE(CrcTest, Crcs);

TYPED_TEST(CrcTest, InstructionsAndTablesAgreeAtEveryLengthAndAlignment) {
  const std::vector<std::byte> bytes = random_bytes(1200);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length < 1100; ++length) {
      const std::span<const std::byte> part(bytes.data() + begin, length);
      ASSERT_EQ(TypeParam::of(part, 77), TypeParam::portable(part, 77)) << begin << " " << length;
    }
  }
}

TYPED_TEST(CrcTest, ContinuesFromTheCrcOfWhatWentBefore) {
  const std::vector<std::byte> bytes = random_bytes(700);
  const std::span<const std::byte> all(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 7)
    EXPECT_EQ(TypeParam::of(all.subspan(cut), TypeParam::of(all.first(cut))), TypeParam::of(all));
}

TYPED_TEST(CrcTest, CombinesTheSumsOfPieces) {
  const std::string text(100'003, 'a');
  for (std::size_t cut : {0U, 1U, 2U, 4096U, 65'537U, 100'003U}) {
    const std::string_view first = std::string_view(text).substr(0, cut);
    const std::string_view second = std::string_view(text).substr(cut);
    EXPECT_EQ(
        TypeParam::combine(crc_of<TypeParam>(first), crc_of<TypeParam>(second), second.size()),
        crc_of<TypeParam>(text))
        << cut;
  }
}

TEST(CrcFold, AllWidthsOfThisMachineAgree) {
  const detail::FoldWidth best = detail::best_fold_width();
  if (best == detail::FoldWidth::kNone) GTEST_SKIP() << "no carry-less multiplication here";
  constexpr std::uint64_t kPolynomial = 0x9a6c9329ac4bc9b5;
  const detail::FoldPlan plan = detail::make_fold_plan<64>(kPolynomial);
  const std::vector<std::byte> bytes = random_bytes(2000);
  for (std::size_t length = detail::kLeastFoldBytes; length < 2000; length += 16) {
    const std::span<const std::byte> part(bytes.data(), length);
    const auto narrow = detail::fold(part, 5, plan, detail::FoldWidth::k128);
    const auto wide = detail::fold(part, 5, plan, best);
    // The 16 bytes may differ; what counts is that they leave the same remainder.
    ASSERT_EQ(detail::crc64nvme_portable(narrow, 0), detail::crc64nvme_portable(wide, 0)) << length;
  }
}

}  // namespace
}  // namespace headrace
