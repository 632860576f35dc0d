#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/random.h"
#include "insight/counter.h"
#include "insight/histogram.h"
#include "insight/stall_clock.h"

namespace headrace {
namespace {

using std::chrono::microseconds;

TEST(Counter, LosesNothingBetweenThreads) {
  Counter counter;
  Gauge gauge;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) {
          counter.add(2);
          gauge.add(i % 2 == 0 ? 3 : -3);
        }
      });
    }
  }
  EXPECT_EQ(counter.value(), 8000U);
  EXPECT_EQ(gauge.value(), 0);
}

TEST(Histogram, BucketsCoverAllValuesWithoutGaps) {
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < Histogram::kBucketCount; ++i) {
    ASSERT_EQ(Histogram::bucket_of(first), i);
    ASSERT_EQ(Histogram::bucket_of(Histogram::bucket_bound(i)), i);
    first = Histogram::bucket_bound(i) + 1;
  }
  EXPECT_EQ(first, 0U);  // the last bound is 2^64 - 1
}

TEST(Histogram, PercentilesAreWithinASixteenthAbove) {
  Histogram histogram;
  Random random(3);
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 10'000; ++i) {
    values.push_back(random.below(std::uint64_t{1} << (1 + random.below(40))));
    histogram.record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double share : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const auto rank = static_cast<std::size_t>(share * 10'000) - 1;
    EXPECT_GE(histogram.percentile(share), values[rank]) << share;
    EXPECT_LE(histogram.percentile(share), values[rank] + values[rank] / 16) << share;
  }
  EXPECT_EQ(histogram.count(), 10'000U);
}

TEST(Histogram, IsZeroWhenEmptyAndNamesItsMetrics) {
  Histogram histogram;
  EXPECT_EQ(histogram.percentile(0.5), 0U);
  histogram.record(7);
  EXPECT_EQ(histogram.sum(), 7U);
  MetricList out;
  histogram.append_to(out, "store.first_byte", "us");
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[0].name, "store.first_byte_p50_us");
  EXPECT_EQ(out[2].name, "store.first_byte_max_us");
  EXPECT_EQ(out[2].value, 7);
}

TEST(StallClock, BooksEachMicrosecondToOneCause) {
  StallClock<2> clock;
  clock.book(0, microseconds(5));
  clock.book(1, microseconds(7));
  clock.book(0, microseconds(1));
  clock.book(1, microseconds(-3));
  EXPECT_EQ(clock.total_us(0), 6U);
  EXPECT_EQ(clock.total_us(), 13U);
  MetricList out;
  clock.append_to(out, [](std::size_t i) { return i == 0 ? "memory" : "other"; });
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].name, "stall.memory_us");
  EXPECT_EQ(out[1].value, 7);
}

}  // namespace
}  // namespace headrace
