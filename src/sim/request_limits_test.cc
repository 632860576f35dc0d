#include "sim/request_limits.h"

#include <gtest/gtest.h>

#include "sim/behaviour.h"
#include "sim/shared_pacer.h"

namespace headrace::sim {
namespace {

using namespace std::chrono_literals;

class RequestLimitsTest : public ::testing::Test {
 protected:
  /// How many of `count` requests spread evenly over `span` pass.
  int admitted(int count, std::chrono::milliseconds span, const std::string& key = "k",
               bool is_read = true) {
    int passed = 0;
    for (int i = 0; i < count; ++i) {
      passed += limits_.admit("b", key, is_read, rules_, now_) ? 1 : 0;
      now_ += std::chrono::nanoseconds(span) / count;
    }
    return passed;
  }
  RequestLimits limits_;
  RequestLimits::Rules rules_;
  TimePoint now_{1h};
};

TEST_F(RequestLimitsTest, NoLimitAdmitsAll) { EXPECT_EQ(admitted(1000, 1ms), 1000); }

TEST_F(RequestLimitsTest, RatesAreHeldForReadsAndWritesApart) {
  rules_.reads_per_s = 5500;
  rules_.writes_per_s = 3500;
  EXPECT_NEAR(admitted(20'000, 2s), 11'000, 560);
  EXPECT_NEAR(admitted(20'000, 2s, "k", false), 7'000, 360);
  EXPECT_EQ(admitted(5'000, 1s), 5'000);
}

TEST_F(RequestLimitsTest, APrefixOverItsLimitSplitsAfterItsTime) {
  rules_.reads_per_s = 100;
  rules_.partition_after = 60s;
  EXPECT_NEAR(admitted(2000, 10s, "a/1"), 1000, 20);
  EXPECT_EQ(limits_.partition_count(), 1u);
  now_ += 51s;
  EXPECT_NEAR(admitted(200, 1s, "a/1"), 110, 20);
  EXPECT_NEAR(admitted(100, 1s, "a/1"), 100, 10);
  EXPECT_NEAR(admitted(100, 1s, "b/1"), 100, 10);
  EXPECT_EQ(limits_.partition_count(), 3u);  // the bucket, a/, b/
}

TEST_F(RequestLimitsTest, AShortBurstDoesNotSplit) {
  rules_.reads_per_s = 100;
  rules_.partition_after = 60s;
  admitted(2000, 10s);
  now_ += 130s;
  admitted(2000, 10s);
  EXPECT_EQ(limits_.partition_count(), 1u);
}

TEST_F(RequestLimitsTest, UsedLimitsDouble) {
  rules_.reads_per_s = 100;
  rules_.ramp_period = 1min;
  admitted(6100, 61s);
  EXPECT_NEAR(admitted(10'000, 10s), 2000, 100);
  admitted(12'000, 60s);
  EXPECT_NEAR(admitted(10'000, 10s), 4000, 200);
}

TEST_F(RequestLimitsTest, LimitsDoubleOncePerPeriodHoweverLongTheyWereUnused) {
  rules_.reads_per_s = 100;
  rules_.ramp_period = 1min;
  admitted(2000, 200s);
  EXPECT_NEAR(admitted(10'000, 10s), 1900, 50);
}

TEST_F(RequestLimitsTest, ResetForgets) {
  rules_.reads_per_s = 1;
  EXPECT_EQ(admitted(5, 1ms), 1);
  limits_.reset();
  EXPECT_EQ(admitted(5, 1ms), 1);
}

TEST(SharedPacer, BooksTheRateInOrder) {
  SharedPacer pacer;
  const TimePoint now{1h};
  EXPECT_LE(pacer.book(1000, 1e6, now), now);
  TimePoint last = now;
  for (int i = 0; i < 1000; ++i) last = pacer.book(1000, 1e6, now);
  EXPECT_NEAR(std::chrono::duration<double>(last - now).count(), 1.0, 0.021);
}

TEST(SharedPacer, TimeUnusedIsLost) {
  SharedPacer pacer;
  const TimePoint now{1h};
  (void)pacer.book(1000, 1e6, now);
  EXPECT_GE(pacer.book(1000, 1e6, now + 10s), now + 10s - 20ms);
}

TEST(Collapse, GoodputGrowsToTheKneeStaysAndFalls) {
  const SimBehaviour behaviour = *profile_behaviour("collapse-8");
  const auto goodput = [&](std::uint64_t n) {
    return std::min(static_cast<double>(n) * transfer_rate(behaviour), total_rate(behaviour, n));
  };
  EXPECT_DOUBLE_EQ(goodput(1), 50e6);
  EXPECT_DOUBLE_EQ(goodput(4), 200e6);
  EXPECT_DOUBLE_EQ(goodput(8), 400e6);
  EXPECT_DOUBLE_EQ(goodput(16), 400e6);
  EXPECT_DOUBLE_EQ(goodput(32), 200e6);
  EXPECT_DOUBLE_EQ(goodput(100'000), 40e6);  // collapse_floor
}

}  // namespace
}  // namespace headrace::sim
