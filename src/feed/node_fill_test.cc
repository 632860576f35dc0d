#include "headrace/node_fill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "feed/fake_loader.h"

namespace headrace::feed_test {
namespace {

using testing::ElementsAre;
using testing::Pair;

constexpr std::uint32_t kSaid = ForeseenRead::kNever;      // The loader has told the cache itself.
constexpr std::uint32_t kLast = ForeseenRead::kNever - 1;  // Gives way to all that is planned.

/// Two nodes of two ranks; rank 3 asks. Of eight blocks, 5 and 1 are its own in this order, 0 is
/// its neighbour's, and the others are needed elsewhere or never.
struct NodeFillTest : ::testing::Test {
  NodeFillTest() {
    loader.on_needs = [this](std::uint64_t epochs, std::uint32_t first, std::uint32_t ranks) {
      asked_epochs = epochs;
      std::vector<std::uint64_t> needs(8, kNever);
      needs[5] = 2;
      needs[1] = 7;
      if (ranks == 1) {
        EXPECT_EQ(first, 3U);
        return FakeLoader::Needs(needs);
      }
      EXPECT_EQ(std::pair(first, ranks), std::pair(2U, 2U));
      needs[0] = 1;
      return FakeLoader::Needs(needs);
    };
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> wants(std::uint64_t epochs_left) {
    auto options = plan_node_fill(
        loader, {.rank = 3, .first_rank = 2, .rank_count = 2, .epochs_left = epochs_left});
    EXPECT_TRUE(options);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
    for (const FillOptions::Want& want : options->wants) out.emplace_back(want.block, want.need);
    return out;
  }
  FakeLoader loader;
  std::uint64_t asked_epochs = 0;
};

TEST_F(NodeFillTest, WhatIsNeededComesFirstAndThenAShareOfTheRest) {
  // Blocks 2, 3, 4, 6 and 7 are nobody's here; the odd ones fall to the second rank of the node.
  EXPECT_THAT(wants(0),
              ElementsAre(Pair(5, kSaid), Pair(1, kSaid), Pair(3, kLast), Pair(7, kLast)));
  EXPECT_EQ(asked_epochs, 2U);
  EXPECT_EQ(wants(3).size(), 4U);
}

TEST_F(NodeFillTest, WhatNoEpochThatIsLeftNeedsIsLeftOut) {
  EXPECT_THAT(wants(2), ElementsAre(Pair(5, kSaid), Pair(1, kSaid)));
  EXPECT_EQ(asked_epochs, 2U);
  EXPECT_EQ(wants(1).size(), 2U);
  EXPECT_EQ(asked_epochs, 1U);
}

TEST_F(NodeFillTest, ReadsOnlyWhileTheLoaderIsAhead) {
  auto options = plan_node_fill(loader, {.rank = 3, .first_rank = 2, .rank_count = 2});
  ASSERT_TRUE(options);
  EXPECT_FALSE(options->may_read());
  loader.is_far_ahead = true;
  EXPECT_TRUE(options->may_read());
}

TEST_F(NodeFillTest, AnOrderThatCannotBeMadeIsItsError) {
  loader.on_needs = [](std::uint64_t, std::uint32_t, std::uint32_t) {
    return FakeLoader::Needs(Status(Code::kCancelled, "stopped"));
  };
  EXPECT_EQ(plan_node_fill(loader, {}).error().code(), Code::kCancelled);
}

}  // namespace
}  // namespace headrace::feed_test
