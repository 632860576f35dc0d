#include "feed/stall.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace headrace::feed {
namespace {

TimePoint at(std::int64_t us) { return TimePoint(std::chrono::hours(1) + Microseconds(us)); }

/// wanted 10, submitted 20, sent 40, first byte 70, finished 110, inflated 160; memory for the
/// batch 170 .. 190.
BatchTimeline example() {
  return {.slowest = {.wanted = at(10),
                      .submitted = at(20),
                      .sent = at(40),
                      .first_byte = at(70),
                      .finished = at(110),
                      .inflated = at(160),
                      .was_held_off = true},
          .memory_from = at(170),
          .memory_until = at(190)};
}

std::uint64_t booked(const StallBook& book, StallCause cause) {
  return book.total_us(static_cast<std::size_t>(cause));
}

TEST(Stall, BooksEveryPhaseOfTheSlowestRead) {
  StallBook book;
  book_wait(book, {at(0), at(200)}, example());
  EXPECT_EQ(booked(book, StallCause::kMemory), 10U + 20U);
  EXPECT_EQ(booked(book, StallCause::kThrottled), 20U);
  EXPECT_EQ(booked(book, StallCause::kFirstByte), 30U);
  EXPECT_EQ(booked(book, StallCause::kTransfer), 40U);
  EXPECT_EQ(booked(book, StallCause::kDecompress), 50U);
  EXPECT_EQ(booked(book, StallCause::kOther), 10U + 10U + 10U);
}

TEST(Stall, WaitingForTheBytesOfOthersIsTransferUnlessTheStoreRefuses) {
  for (const bool was_held_off : {false, true}) {
    BatchTimeline timeline = example();
    timeline.slowest.was_held_off = was_held_off;
    StallBook book;
    book_wait(book, {at(20), at(40)}, timeline);
    EXPECT_EQ(booked(book, StallCause::kThrottled), was_held_off ? 20U : 0U);
    EXPECT_EQ(booked(book, StallCause::kTransfer), was_held_off ? 0U : 20U);
  }
}

TEST(Stall, WhatComesFromACacheIsWaitedForThere) {
  BatchTimeline timeline = example();
  timeline.slowest.was_held_off = false;
  timeline.slowest.was_cached = true;
  StallBook book;
  book_wait(book, {at(20), at(160)}, timeline);
  EXPECT_EQ(booked(book, StallCause::kCacheRead), 90U);
  EXPECT_EQ(booked(book, StallCause::kDecompress), 50U);
  EXPECT_EQ(book.total_us(), 140U);
}

TEST(Stall, BooksOnlyWhatLiesInTheWait) {
  StallBook book;
  book_wait(book, {at(60), at(80)}, example());
  EXPECT_EQ(booked(book, StallCause::kFirstByte), 10U);
  EXPECT_EQ(booked(book, StallCause::kTransfer), 10U);
  EXPECT_EQ(book.total_us(), 20U);
}

TEST(Stall, PhasesThatDidNotHappenTakeNothing) {
  StallBook book;
  book_wait(book, {at(0), at(200)}, {.slowest = {.submitted = at(20), .finished = at(110)}});
  EXPECT_EQ(booked(book, StallCause::kMemory), 20U);
  EXPECT_EQ(booked(book, StallCause::kTransfer), 90U);
  EXPECT_EQ(booked(book, StallCause::kOther), 90U);
}

TEST(Stall, CausesAddUpToTheWaitExactly) {
  Random random(11);
  const auto some_time = [&] {
    return random.below(4) == 0 ? TimePoint()
                                : at(0) + std::chrono::nanoseconds(random.below(1'000'000));
  };
  for (int i = 0; i < 2000; ++i) {
    StallBook book;
    BatchTimeline timeline;
    for (TimePoint* time :
         {&timeline.slowest.wanted, &timeline.slowest.submitted, &timeline.slowest.sent,
          &timeline.slowest.first_byte, &timeline.slowest.finished, &timeline.slowest.inflated,
          &timeline.memory_from, &timeline.memory_until}) {
      *time = some_time();
    }
    WaitInterval wait{at(0) + std::chrono::nanoseconds(random.below(1'000'000)), {}};
    wait.until = wait.from + std::chrono::nanoseconds(random.below(1'000'000));
    book_wait(book, wait, timeline);
    ASSERT_EQ(book.total_us(), static_cast<std::uint64_t>(wait_length(wait).count()));
  }
}

TEST(Stall, CausesHaveTheirNames) {
  EXPECT_EQ(stall_cause_name(StallCause::kMemory), "memory");
  EXPECT_EQ(stall_cause_name(StallCause::kFirstByte), "first_byte");
  EXPECT_EQ(stall_cause_name(StallCause::kCacheRead), "cache_read");
  EXPECT_EQ(stall_cause_name(StallCause::kOther), "other");
}

}  // namespace
}  // namespace headrace::feed
