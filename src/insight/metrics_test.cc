#include "headrace/metrics.h"

#include <gtest/gtest.h>

#include "insight/counter.h"
#include "insight/histogram.h"
#include "insight/stall_clock.h"

namespace headrace {
namespace {

TEST(Metrics, SumsAddWhatCountsAndKeepTheLargestQuantile) {
  MetricList all;
  for (const std::uint64_t n : {std::uint64_t{3}, std::uint64_t{4}}) {
    append_counter(all, "store.requests", "requests", n);
    append_gauge(all, "store.level", "requests", static_cast<double>(n));
    Histogram times;
    times.record(n);
    times.append_to(all, "store.request", "us");
  }
  const MetricList sums = sum_of(all);
  ASSERT_EQ(sums.size(), 5U);
  EXPECT_EQ(sums[0].name, "store.requests");
  EXPECT_EQ(sums[0].value, 7);
  EXPECT_EQ(sums[1].value, 7);
  EXPECT_EQ(sums[2].name, "store.request_p50_us");
  EXPECT_EQ(sums[2].value, 4);
  EXPECT_EQ(sums[2].kind, MetricKind::kQuantile);
}

TEST(Metrics, SayWhatAnExporterHasToKnow) {
  MetricList list;
  Histogram times;
  times.append_to(list, "store.request", "us");
  ASSERT_EQ(list.size(), 3U);
  for (const Metric& metric : list) {
    EXPECT_EQ(metric.family, "store.request_us");
    EXPECT_EQ(metric.unit, "us");
    ASSERT_EQ(metric.labels.size(), 1U);
    EXPECT_EQ(metric.labels[0].first, "quantile");
  }
  EXPECT_EQ(list[0].labels[0].second, "0.5");
  EXPECT_EQ(list[2].labels[0].second, "1");

  list.clear();
  StallClock<1>().append_to(list, [](std::size_t) { return "memory"; });
  EXPECT_EQ(list[0].name, "stall.memory_us");
  EXPECT_EQ(list[0].family, "stall.waited_us");
  EXPECT_EQ(list[0].kind, MetricKind::kCounter);
  EXPECT_EQ(list[0].labels[0], (std::pair<std::string, std::string>("cause", "memory")));
}

}  // namespace
}  // namespace headrace
