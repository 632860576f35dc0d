#include "store/transfer/hedge_policy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace headrace::transfer {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kLarge = 8 << 20;

TEST(FirstByteTimes, QuantilesAreWithinAnEighth) {
  FirstByteTimes times;
  EXPECT_FALSE(times.is_known(2));
  for (int i = 1; i <= 1000; ++i) times.record(2, Microseconds(i * 100));
  EXPECT_TRUE(times.is_known(2));
  EXPECT_FALSE(times.is_known(0));
  EXPECT_NEAR(static_cast<double>(times.p95(2).count()), 95'000, 95'000 / 7.0);
  EXPECT_NEAR(static_cast<double>(times.p99(2).count()), 99'000, 99'000 / 7.0);
}

TEST(FirstByteTimes, ForgetsOldTimes) {
  FirstByteTimes times;
  for (int i = 0; i < 5000; ++i) times.record(0, 100ms);
  for (int i = 0; i < 10'000; ++i) times.record(0, 1ms);
  EXPECT_LT(times.p95(0), 2ms);
}

TEST(FirstByteTimes, TakesTimesOutOfItsRange) {
  FirstByteTimes times;
  for (int i = 0; i < 64; ++i) times.record(1, Microseconds(0));
  EXPECT_LE(times.p99(1), 64us);
  for (int i = 0; i < 200; ++i) times.record(1, 10h);
  EXPECT_GE(times.p99(1), 60s);
}

TEST(HedgePolicy, ALengthThatAServerMakesUpIsWaitedForADayAtMost) {
  EXPECT_EQ(HedgePolicy::longest_unknown(UINT64_MAX), std::chrono::hours(24));
  EXPECT_EQ(HedgePolicy::longest_unknown(0), std::chrono::seconds(40));
}

TEST(HedgePolicy, ABodyMayTakeFarLongerThanIsUsual) {
  HedgePolicy policy({});
  constexpr std::uint64_t kSmall = 64 << 10;
  EXPECT_EQ(policy.longest_body(kSmall), Microseconds(64s)) << "1 KiB/s, nothing is known";
  EXPECT_EQ(policy.longest_body(10), Microseconds(40s));
  for (int i = 0; i < 100; ++i) {
    policy.on_body(kSmall, 10ms);
    policy.on_body(kLarge, 1s);
  }
  EXPECT_EQ(policy.longest_body(kSmall), Microseconds(2s));
  EXPECT_GE(policy.longest_body(kLarge), 16s);
  EXPECT_LT(policy.longest_body(kLarge), 20s);
  EXPECT_EQ(policy.longest_body(4 * kLarge), 4 * policy.longest_body(kLarge));
  policy.on_attempt(true, true);
  EXPECT_EQ(policy.longest_body(kSmall), Microseconds(4s)) << "longer after each loss";
}

TEST(HedgePolicy, SlowAttemptsTakeFromTheSameBucket) {
  HedgePolicy policy({});
  EXPECT_FALSE(policy.take_spare());
  for (int i = 0; i < 100; ++i) policy.on_request();
  EXPECT_TRUE(policy.take_spare());
  EXPECT_TRUE(policy.take(0, 1));
  EXPECT_FALSE(policy.take_spare());
}

class HedgePolicyTest : public testing::Test {
 protected:
  void warm_up(HedgePolicy& policy, int count = 500) {
    for (int i = 0; i < count; ++i) {
      policy.on_request();
      policy.on_attempt(false, false);
      policy.on_first_byte(kLarge, 20ms + Microseconds(random_.below(20'000)));
    }
  }
  Random random_{1};
};

TEST_F(HedgePolicyTest, NothingIsLateBeforeTimesAreKnown) {
  HedgePolicy policy({});
  EXPECT_EQ(policy.late_after(kLarge), Microseconds::max());
  EXPECT_EQ(policy.deadline(kLarge), Microseconds(10s));
  warm_up(policy);
  EXPECT_GT(policy.late_after(kLarge), 50ms);
  EXPECT_LT(policy.late_after(kLarge), 80ms);
}

TEST_F(HedgePolicyTest, ZeroFractionNeverHedges) {
  HedgePolicy::Options options;
  options.fraction = 0;
  HedgePolicy policy(options);
  warm_up(policy);
  EXPECT_EQ(policy.late_after(kLarge), Microseconds::max());
}

TEST_F(HedgePolicyTest, FastStoresKeepAFloor) {
  HedgePolicy policy({});
  for (int i = 0; i < 500; ++i) policy.on_first_byte(kLarge, 100us);
  EXPECT_EQ(policy.late_after(kLarge), Microseconds(4ms));
}

TEST_F(HedgePolicyTest, HedgesNeverExceedTheirFraction) {
  HedgePolicy policy({});
  int requests = 0;
  int hedges = 0;
  for (int i = 0; i < 10'000; ++i) {
    ++requests;
    policy.on_request();
    policy.on_attempt(false, false);
    if (i % 10 == 0 && policy.take(1, 64)) ++hedges;
    ASSERT_LE(hedges, requests * 0.02 + 1e-9);
  }
  EXPECT_GE(hedges, 190);
}

TEST_F(HedgePolicyTest, WhatIsTenTimesAsLateAsUsualIsHedgedOnCredit) {
  HedgePolicy policy({});
  warm_up(policy, 40);  // 0.8 tokens
  EXPECT_FALSE(policy.is_far(kLarge, 200ms));
  EXPECT_TRUE(policy.is_far(kLarge, 500ms));
  EXPECT_FALSE(policy.take(1, 64));
  int hedges = 0;
  while (policy.take(1, 64, true)) ++hedges;
  EXPECT_EQ(hedges, 8);
  EXPECT_FALSE(policy.take(20, 64, true)) << "many at once are an outage";
  for (int i = 0; i < 300; ++i) policy.on_request();
  EXPECT_FALSE(policy.take(1, 64)) << "the debt is paid first";
  EXPECT_TRUE(policy.take(1, 64, true));
}

TEST_F(HedgePolicyTest, NothingIsFarBeforeTimesAreKnown) {
  const HedgePolicy policy({});
  EXPECT_FALSE(policy.is_far(kLarge, 60s));
}

TEST_F(HedgePolicyTest, QuietTimeSavesOnlyABurst) {
  HedgePolicy policy({});
  warm_up(policy, 100'000);
  int hedges = 0;
  while (policy.take(1, 64)) ++hedges;
  EXPECT_LE(hedges, 16);
  EXPECT_GE(hedges, 15);
}

TEST_F(HedgePolicyTest, DryBucketMakesLaterRequestsWait) {
  HedgePolicy policy({});
  warm_up(policy);
  while (policy.take(1, 64)) {
  }
  const Microseconds before = policy.late_after(kLarge);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(policy.take(1, 64));
  EXPECT_GT(policy.late_after(kLarge), before * 2);
}

TEST_F(HedgePolicyTest, OutageIsNotHedged) {
  HedgePolicy policy({});
  warm_up(policy);
  EXPECT_FALSE(policy.take(20, 64));
  EXPECT_TRUE(policy.take(2, 2));  // few requests: two late ones are no outage
  EXPECT_TRUE(policy.take(20, 20 + 200)) << "the last of many";
}

TEST_F(HedgePolicyTest, ThrottlingStopsHedgesAndQuickRepetitions) {
  HedgePolicy policy({});
  warm_up(policy);
  EXPECT_TRUE(policy.is_calm());
  for (int i = 0; i < 30; ++i) policy.on_attempt(true, false);
  EXPECT_FALSE(policy.is_calm());
  EXPECT_FALSE(policy.take(1, 64));
  warm_up(policy);
  EXPECT_TRUE(policy.take(1, 64));
}

TEST_F(HedgePolicyTest, FailuresOfANormalDayAreCalm) {
  HedgePolicy policy({});
  int calm = 0;
  for (int i = 0; i < 10'000; ++i) {
    policy.on_attempt(random_.unit() < 0.02, false);
    if (policy.is_calm()) ++calm;
  }
  EXPECT_GE(calm, 9'900);
}

TEST_F(HedgePolicyTest, DeadlineFollowsTheStoreAndGrowsWithEachLoss) {
  HedgePolicy policy({});
  warm_up(policy);
  EXPECT_EQ(policy.deadline(kLarge), Microseconds(2s));
  policy.on_attempt(true, true);
  policy.on_attempt(true, true);
  EXPECT_GE(policy.deadline(kLarge), 7s);
  policy.on_attempt(true, true);
  EXPECT_EQ(policy.deadline(kLarge), Microseconds(10s));
  warm_up(policy, 2000);
  EXPECT_EQ(policy.deadline(kLarge), Microseconds(2s));
}

}  // namespace
}  // namespace headrace::transfer
