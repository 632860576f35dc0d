#include "store/range_planner.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace headrace {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

RangePlanOptions with_hole(std::uint64_t hole_bytes) {
  RangePlanOptions options;
  options.max_hole_bytes = hole_bytes;
  options.first_byte_s = 1e3;
  return options;
}

TEST(RangePlanner, HoleIsWorthWhatARequestCosts) {
  RangePlanOptions options;
  EXPECT_EQ(worthwhile_hole_bytes(options), 2'550'000U);  // 30 ms x 85 MB/s
  options.max_hole_bytes = 1000;
  EXPECT_EQ(worthwhile_hole_bytes(options), 1000U);
}

TEST(RangePlanner, MergesRangesWithinGap) {
  const std::vector<ByteRange> wanted{{0, 10}, {20, 10}, {100, 5}};
  auto plan = plan_ranges(wanted, with_hole(10));
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->requests.size(), 2U);
  EXPECT_EQ(plan->requests[0].offset_bytes, 0U);
  EXPECT_EQ(plan->requests[0].length_bytes, 30U);
  EXPECT_EQ(plan->requests[0].range_count, 2U);
  EXPECT_EQ(plan->requests[1].offset_bytes, 100U);
  EXPECT_EQ(plan->requests[1].first_range, 2U);
  EXPECT_EQ(plan->wanted_bytes, 25U);
  EXPECT_EQ(plan->planned_bytes, 35U);
}

TEST(RangePlanner, KeepsRangesApartBeyondGap) {
  const std::vector<ByteRange> wanted{{0, 10}, {21, 10}};
  EXPECT_EQ(plan_ranges(wanted, with_hole(10))->requests.size(), 2U);
}

TEST(RangePlanner, SplitsLargeRanges) {
  RangePlanOptions options;
  options.max_request_bytes = 8 * kMiB;
  const std::vector<ByteRange> wanted{{3, 20 * kMiB}};
  auto plan = plan_ranges(wanted, options);
  ASSERT_EQ(plan->requests.size(), 3U);
  EXPECT_EQ(plan->requests[1].offset_bytes, 3 + 8 * kMiB);
  EXPECT_EQ(plan->requests[2].length_bytes, 4 * kMiB);
  for (const PlannedRequest& request : plan->requests) EXPECT_EQ(request.range_count, 1U);
}

TEST(RangePlanner, SplitsFallOnUploadParts) {
  RangePlanOptions options;
  options.max_request_bytes = 16 * kMiB;
  options.part_bytes = 5 * kMiB;
  const std::vector<ByteRange> wanted{{4 * kMiB, 40 * kMiB}};
  auto plan = plan_ranges(wanted, options);
  ASSERT_EQ(plan->requests.size(), 3U);
  EXPECT_EQ(plan->requests[0].length_bytes, 11 * kMiB);  // until 15 MiB
  EXPECT_EQ(plan->requests[1].length_bytes, 15 * kMiB);
}

TEST(RangePlanner, LargePartsAreCutIntoEqualPieces) {
  RangePlanOptions options;
  options.max_request_bytes = 16 * kMiB;
  options.part_bytes = 50 * kMiB;
  EXPECT_EQ(request_bytes_for(options), 50 * kMiB / 4);
  options.part_bytes = 64 * kMiB;
  EXPECT_EQ(request_bytes_for(options), 16 * kMiB);
  options.part_bytes = 8 * kMiB;
  EXPECT_EQ(request_bytes_for(options), 16 * kMiB);
  options.part_bytes = 0;
  EXPECT_EQ(request_bytes_for(options), 16 * kMiB);
}

TEST(RangePlanner, TakesRangesInAnyOrderAndOverlapping) {
  const std::vector<ByteRange> wanted{{50, 50}, {0, 60}, {10, 5}, {500, 0}};
  auto plan = plan_ranges(wanted, with_hole(0));
  ASSERT_EQ(plan->requests.size(), 1U);
  EXPECT_EQ(plan->wanted_bytes, 100U);
  EXPECT_EQ(plan->order, (std::vector<std::size_t>{1, 2, 0}));
  EXPECT_EQ(plan->requests[0].range_count, 3U);
}

TEST(RangePlanner, NothingWantedNothingPlanned) {
  EXPECT_TRUE(plan_ranges({}, {})->requests.empty());
}

TEST(RangePlanner, RefusesWhatCannotBe) {
  const std::vector<ByteRange> past_the_end{{~std::uint64_t{0}, 2}};
  EXPECT_EQ(plan_ranges(past_the_end, {}).error().code(), Code::kInvalidArgument);
  RangePlanOptions options;
  options.max_request_bytes = 0;
  EXPECT_EQ(plan_ranges({}, options).error().code(), Code::kInvalidArgument);
}

TEST(RangePlanner, EveryWantedByteIsInExactlyOneRequest) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<ByteRange> wanted(1 + random.below(20));
    for (ByteRange& range : wanted) range = {random.below(2000), random.below(300)};
    RangePlanOptions options = with_hole(random.below(100));
    options.max_request_bytes = 1 + random.below(400);
    options.part_bytes = random.below(3) == 0 ? 0 : 1 + random.below(500);
    auto plan = plan_ranges(wanted, options);
    ASSERT_TRUE(plan);
    std::vector<int> covered(2400);
    for (const PlannedRequest& request : plan->requests) {
      ASSERT_LE(request.length_bytes, options.max_request_bytes);
      ASSERT_GT(request.length_bytes, 0U);
      for (std::uint64_t i = 0; i < request.length_bytes; ++i) ++covered[request.offset_bytes + i];
    }
    for (const ByteRange& range : wanted) {
      for (std::uint64_t i = 0; i < range.length_bytes; ++i)
        ASSERT_EQ(covered[range.offset_bytes + i], 1);
    }
    for (const int count : covered) ASSERT_LE(count, 1);
  }
}

TEST(RangePlanner, EachRequestKnowsItsRanges) {
  Random random(8);
  for (int round = 0; round < 100; ++round) {
    std::vector<ByteRange> wanted(1 + random.below(20));
    for (ByteRange& range : wanted) range = {random.below(2000), 1 + random.below(300)};
    RangePlanOptions options = with_hole(20);
    options.max_request_bytes = 100;
    auto plan = plan_ranges(wanted, options);
    for (std::size_t i = 0; i < plan->order.size(); ++i) {
      const ByteRange& range = wanted[plan->order[i]];
      for (const PlannedRequest& request : plan->requests) {
        const bool touches = range.offset_bytes < request.offset_bytes + request.length_bytes &&
                             request.offset_bytes < range.offset_bytes + range.length_bytes;
        const bool is_listed =
            i >= request.first_range && i < request.first_range + request.range_count;
        ASSERT_TRUE(!touches || is_listed);
      }
    }
  }
}

TEST(RangePlanner, SpreadsObjectsOverPrefixes) {
  const std::vector<std::string_view> keys{"a/1", "a/2", "a/3", "b/1", "c/d/1", "b/2", "top"};
  EXPECT_EQ(spread_over_prefixes(keys), (std::vector<std::size_t>{0, 3, 4, 6, 1, 5, 2}));
}

}  // namespace
}  // namespace headrace
