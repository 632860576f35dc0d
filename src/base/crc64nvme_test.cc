#include "base/crc64nvme.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/crc_fold.h"
#include "base/random.h"

namespace headrace {
namespace {

std::uint64_t crc_of(std::string_view text) { return crc64nvme(std::as_bytes(std::span(text))); }

std::vector<std::byte> random_bytes(std::size_t count) {
  Random random(1);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  return bytes;
}

TEST(Crc64Nvme, MatchesPublishedVectors) {
  EXPECT_EQ(crc_of(""), 0U);
  EXPECT_EQ(crc_of("123456789"), 0xae8b14860a799888U);  // the check value of CRC-64/NVME
  // NVM Express NVM Command Set Specification 1.0, table "64b CRC Test Cases for 4 KiB Logical
  // Block with no Metadata".
  EXPECT_EQ(crc_of(std::string(4096, '\0')), 0x6482d367eb22b64eU);
  EXPECT_EQ(crc_of(std::string(4096, '\xff')), 0xc0ddba7302eca3acU);
  std::string rising;
  for (int i = 0; i < 4096; ++i) rising.push_back(static_cast<char>(i));
  EXPECT_EQ(crc_of(rising), 0x3e729f5f6750449cU);
}

TEST(Crc64Nvme, FoldingAndTablesAgreeAtEveryLengthAndAlignment) {
  const std::vector<std::byte> bytes = random_bytes(1200);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length < 1100; ++length) {
      const std::span<const std::byte> part(bytes.data() + begin, length);
      ASSERT_EQ(crc64nvme(part, 77), detail::crc64nvme_portable(part, 77))
          << begin << " " << length;
    }
  }
}

TEST(Crc64Nvme, ContinuesFromTheCrcOfWhatWentBefore) {
  const std::vector<std::byte> bytes = random_bytes(700);
  const std::span<const std::byte> all(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 7) {
    EXPECT_EQ(crc64nvme(all.subspan(cut), crc64nvme(all.first(cut))), crc64nvme(all));
  }
}

TEST(Crc64Nvme, CombinesTheSumsOfPieces) {
  const std::string text(100'003, 'a');
  for (std::size_t cut : {0U, 1U, 2U, 4096U, 65'537U, 100'003U}) {
    const std::string_view first = std::string_view(text).substr(0, cut);
    const std::string_view second = std::string_view(text).substr(cut);
    EXPECT_EQ(crc64nvme_combine(crc_of(first), crc_of(second), second.size()), crc_of(text)) << cut;
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
