#include "feed/block_reads.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "base/test_seed.h"

namespace headrace::feed {
namespace {

// Against a count sample by sample.
TEST(FindParts, HaveTheReadsOfEachOfTheirSamples) {
  Random random(test_seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<BlockRead> reads;
    std::map<std::uint32_t, std::multiset<std::uint64_t>> truth;
    for (std::uint64_t i = 0, count = 1 + random.below(6); i < count; ++i) {
      const auto begin = static_cast<std::uint32_t>(random.below(20));
      const auto end = begin + 1 + static_cast<std::uint32_t>(random.below(20));
      reads.push_back({.block = 7, .begin = begin, .end = end, .batch = random.below(9)});
      for (std::uint32_t sample = begin; sample < end; ++sample)
        truth[sample].insert(reads.back().batch);
    }
    const std::vector<BlockPart> parts = find_parts(reads);
    EXPECT_EQ(parts.front().begin, truth.begin()->first);
    EXPECT_EQ(parts.back().end, truth.rbegin()->first + 1);
    std::uint32_t at = parts.front().begin;
    for (const BlockPart& part : parts) {
      EXPECT_EQ(part.begin, at);
      EXPECT_LT(part.begin, part.end);
      for (at = part.begin; at < part.end; ++at)
        EXPECT_EQ(part.needs, std::vector<std::uint64_t>(truth[at].begin(), truth[at].end()));
    }
    EXPECT_LE(parts.size(), 2 * reads.size() - 1) << "no more cuts than there are ends";
  }
}

TEST(FindParts, AreOneWhereTheyWouldBeTooMany) {
  std::vector<BlockRead> reads;
  for (std::uint32_t i = 0; i < 1000; ++i)
    reads.push_back({.block = 7, .begin = i + 1, .end = i + 2, .batch = 1000 - i});
  const std::vector<BlockPart> parts = find_parts(reads);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].begin, 1U);
  EXPECT_EQ(parts[0].end, 1001U);
  ASSERT_EQ(parts[0].needs.size(), 1000U);
  EXPECT_EQ(parts[0].needs.front(), 1U) << "soonest first";
}

}  // namespace
}  // namespace headrace::feed
