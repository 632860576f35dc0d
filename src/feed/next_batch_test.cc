#include <gtest/gtest.h>

#include <thread>

#include "feed/fake_loader.h"
#include "headrace/loader.h"

namespace headrace::feed_test {
namespace {

using Next = Result<std::unique_ptr<Batch>>;

/// A slice that lasts as long as it may.
Next slice_end(TimePoint until) {
  while (system_clock().now() < until) std::this_thread::yield();
  return Status(Code::kDeadline, "nothing yet");
}

struct NextBatch : ::testing::Test {
  FakeLoader loader;
  int pauses = 0;
  const Pause pause = [this] { ++pauses; };
};

TEST_F(NextBatch, WaitsOverTheEndsOfSlices) {
  int calls = 0;
  loader.on_next = [&](TimePoint until) { return ++calls < 3 ? slice_end(until) : Next(nullptr); };
  const auto batch = next_batch(loader, pause);
  ASSERT_TRUE(batch);
  EXPECT_EQ(*batch, nullptr) << "the end of the epoch";
  EXPECT_EQ(pauses, 2);
}

TEST_F(NextBatch, TheDeadlineOfAReadIsAnError) {
  int calls = 0;
  loader.on_next = [&](TimePoint) {
    ++calls;
    return Next(Status(Code::kDeadline, "GET took too long"));
  };
  EXPECT_EQ(next_batch(loader, pause).error().message(), "GET took too long");
  EXPECT_EQ(calls, 1);
}

TEST_F(NextBatch, EndsWhenTheHoldersOfBatchesGiveNothingBack) {
  loader.on_next = slice_end;
  loader.on_starved = [] { return true; };
  const auto batch = next_batch(loader, pause, 2 * kPauseSlice);
  EXPECT_EQ(batch.error().code(), Code::kExhausted);
  EXPECT_NE(batch.error().message().find("hold all of memory="), std::string_view::npos);
  EXPECT_EQ(pauses, 2);
}

TEST_F(NextBatch, CountsOnlyWhatLacksMemoryWithoutABreak) {
  int calls = 0;
  loader.on_next = [&](TimePoint until) { return ++calls < 5 ? slice_end(until) : Next(nullptr); };
  loader.on_starved = [&] { return calls % 2 == 1; };
  EXPECT_TRUE(next_batch(loader, pause, 2 * kPauseSlice));
}

TEST_F(NextBatch, WhatAPauseThrowsComesOut) {
  loader.on_next = slice_end;
  EXPECT_THROW(static_cast<void>(next_batch(loader, [] { throw 1; })), int);
}

}  // namespace
}  // namespace headrace::feed_test
