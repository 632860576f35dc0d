#include "io/read_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "base/log_capture.h"
#include "headrace/range_fetcher.h"
#include "io/testing/fake_store.h"

namespace headrace::io {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Reads of 1 MiB from a store that brings each within 100 ms, `most` of them at a time: what the
/// budget has come to after `count` reads.
std::uint64_t found(ReadBudget& budget, int most, int count) {
  constexpr Microseconds kTook{100'000};
  struct Read {
    Microseconds begin, end;
  };
  std::deque<Read> under_way;
  Microseconds now{0};
  for (int i = 0; i < count; ++i) {
    while (budget.try_take(kMiB, under_way.empty())) {
      const Microseconds soonest = now + kTook;
      under_way.push_back({now, under_way.empty()
                                    ? soonest
                                    : std::max(soonest, under_way.back().end + kTook / most)});
    }
    budget.on_wait();
    const Read read = under_way.front();
    now = read.end;
    under_way.pop_front();
    budget.give_back(kMiB);
    Completion completion;
    completion.length_bytes = kMiB;
    completion.submitted = completion.sent = TimePoint(read.begin);
    completion.finished = TimePoint(read.end);
    budget.on_end(completion);
  }
  return budget.bytes();
}

TEST(ReadBudget, GrowsToWhatFillsTheWay) {
  ReadBudget budget(4096 * kMiB);
  const std::uint64_t bytes = found(budget, 200, 4000);
  EXPECT_GE(bytes, 200 * kMiB);
  EXPECT_LE(bytes, 512 * kMiB);
}

TEST(ReadBudget, StaysSmallWhereMoreBringsNothing) {
  ReadBudget budget(4096 * kMiB);
  EXPECT_LE(found(budget, 16, 4000), 80 * kMiB);
}

TEST(ReadBudget, NeverExceedsWhatItMayTake) {
  ReadBudget budget(10 * kMiB);
  EXPECT_EQ(budget.bytes(), 10 * kMiB);
  EXPECT_EQ(found(budget, 1000, 1000), 10 * kMiB);
}

TEST(ReadBudget, SaysOnceThatMemoryLimitsAndHowMuchAllowsTwiceAsMuch) {
  LogCapture log(LogLevel::kWarning);
  ReadBudget budget(256 * kMiB, {.subject = "s3://b", .memory_bytes = 320 * kMiB});
  EXPECT_EQ(found(budget, 1000, 8000), 256 * kMiB);
  EXPECT_THAT(log.take(), ::testing::ElementsAre(
                              "store warning: s3://b: its memory of 320 MiB keeps reading from "
                              "filling the pipe to the store; 640 MiB would allow twice as "
                              "much (said once): see docs/sizing.md#other-reads"));
}

TEST(ReadBudget, SaysNothingWhereMoreMemoryBringsNothing) {
  LogCapture log(LogLevel::kWarning);
  ReadBudget little(32 * kMiB, {.subject = "s3://b", .memory_bytes = 32 * kMiB});
  found(little, 8, 4000);
  ReadBudget plenty(4096 * kMiB, {.subject = "s3://b", .memory_bytes = 4096 * kMiB});
  found(plenty, 200, 8000);
  // All of it is taken, and was of no use.
  ReadBudget enough(64 * kMiB, {.subject = "s3://b", .memory_bytes = 64 * kMiB});
  found(enough, 30, 8000);
  EXPECT_THAT(log.take(), ::testing::IsEmpty());
}

TEST(ReadBudget, WhoHasNothingUnderWayIsNeverRefused) {
  ReadBudget budget(kMiB);
  EXPECT_TRUE(budget.try_take(kMiB, false));
  EXPECT_FALSE(budget.try_take(1, false));
  EXPECT_TRUE(budget.try_take(5 * kMiB, true));
  budget.give_back(5 * kMiB);
  budget.give_back(kMiB);
  EXPECT_TRUE(budget.try_take(kMiB, false));
}

TEST(ReadBudget, FetchersShareItAndBothGoOn) {
  headrace::testing::FakeStore store;
  store.set("k", std::string(64 << 10, 'x'));
  const auto pool = SlabPool::create({.limit_bytes = 16 * kMiB});
  ReadBudget budget(256 << 10);
  auto first = RangeFetcher::create(store, **pool, {.budget = &budget});
  auto second = RangeFetcher::create(store, **pool, {.budget = &budget});
  for (std::uint64_t i = 0; i < 20; ++i) {
    (*first)->start({.key = "k", .etag = {}, .length_bytes = 64 << 10, .tag = i});
    (*second)->start({.key = "k", .etag = {}, .length_bytes = 64 << 10, .tag = i});
  }
  while ((*first)->pending() + (*second)->pending() > 0) {
    if ((*first)->pending() > 0) {
      ASSERT_TRUE((*first)->next().has_value());
    }
    if ((*second)->pending() > 0) {
      ASSERT_TRUE((*second)->next().has_value());
    }
    // One more than fits: whoever has nothing under way.
    EXPECT_LE((*pool)->used_bytes(), (256 << 10) + SlabPool::charged_bytes(64 << 10));
  }
  first->reset();
  second->reset();
  EXPECT_TRUE(budget.try_take(256 << 10, false)) << "all was given back";
}

TEST(ReadBudget, AFetcherThatGoesGivesBackWhatWasUnderWay) {
  headrace::testing::FakeStore store;
  store.set("k", std::string(64 << 10, 'x'));
  const auto pool = SlabPool::create({.limit_bytes = 16 * kMiB});
  ReadBudget budget(kMiB);
  {
    auto fetcher = RangeFetcher::create(store, **pool, {.budget = &budget});
    for (std::uint64_t i = 0; i < 10; ++i)
      (*fetcher)->start({.key = "k", .etag = {}, .length_bytes = 64 << 10, .tag = i});
    ASSERT_TRUE((*fetcher)->next().has_value());
    EXPECT_FALSE(budget.try_take(kMiB, false));
  }
  EXPECT_TRUE(budget.try_take(kMiB, false));
}

}  // namespace
}  // namespace headrace::io
