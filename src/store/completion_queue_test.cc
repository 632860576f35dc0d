#include "store/completion_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <stop_token>
#include <thread>
#include <vector>

namespace headrace {
namespace {

using Outcome = CompletionQueue::Outcome;

Completion completion(std::uint64_t tag) {
  Completion done;
  done.tag = tag;
  return done;
}

TEST(CompletionQueue, AcceptsUpToItsCapacityUntilCompletionsAreTaken) {
  CompletionQueue queue(3);
  EXPECT_EQ(queue.accept(2), 2U);
  EXPECT_EQ(queue.accept(2), 1U);
  EXPECT_EQ(queue.accept(2), 0U);
  queue.push(completion(1));
  EXPECT_EQ(queue.accept(1), 0U);  // done, but not taken
  Completion out;
  EXPECT_EQ(queue.wait({&out, 1}, TimePoint::max(), {}), 1U);
  EXPECT_EQ(queue.accept(2), 1U);
  EXPECT_EQ(queue.outstanding(), 3U);
}

TEST(CompletionQueue, HandsOutInOrderOfCompletionInBatchesOfAnySize) {
  CompletionQueue queue(100);
  ASSERT_EQ(queue.accept(100), 100U);
  for (std::uint64_t tag = 0; tag < 50; ++tag) queue.push(completion(tag));
  std::vector<Completion> out(7);
  std::uint64_t next = 0;
  while (next < 100) {
    if (next == 49) {
      for (std::uint64_t tag = 50; tag < 100; ++tag) queue.push(completion(tag));
    }
    const std::size_t count = queue.wait(out, TimePoint::max(), {});
    ASSERT_GT(count, 0U);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i].tag, next++);
  }
}

TEST(CompletionQueue, TellsWhyItReturned) {
  CompletionQueue queue(2);
  Completion out;
  Outcome why{};
  EXPECT_EQ(queue.wait({&out, 1}, TimePoint::min(), {}, &why), 0U);
  EXPECT_EQ(why, Outcome::kTimedOut);
  queue.wake();
  EXPECT_EQ(queue.wait({&out, 1}, TimePoint::max(), {}, &why), 0U);
  EXPECT_EQ(why, Outcome::kWoken);
  std::stop_source source;
  source.request_stop();
  EXPECT_EQ(queue.wait({&out, 1}, TimePoint::max(), source.get_token(), &why), 0U);
  EXPECT_EQ(why, Outcome::kStopped);
}

TEST(CompletionQueue, AWakeIsSpentByTheWaitThatItEnds) {
  CompletionQueue queue(2);
  Completion out;
  queue.wake();
  queue.wake();
  EXPECT_EQ(queue.wait({&out, 1}, TimePoint::max(), {}), 0U);
  Outcome why{};
  EXPECT_EQ(queue.wait({&out, 1}, TimePoint::min(), {}, &why), 0U);
  EXPECT_EQ(why, Outcome::kTimedOut);
}

TEST(CompletionQueue, ClosedItDrainsAndThenReturnsAtOnce) {
  CompletionQueue queue(2);
  ASSERT_EQ(queue.accept(1), 1U);
  queue.close();
  EXPECT_EQ(queue.accept(1), 0U);
  std::jthread finisher([&queue] { queue.push(completion(9)); });
  Completion out;
  EXPECT_EQ(queue.wait({&out, 1}, TimePoint::max(), {}), 1U);
  EXPECT_EQ(out.tag, 9U);
  EXPECT_EQ(queue.wait({&out, 1}, TimePoint::max(), {}), 0U);
}

TEST(CompletionQueue, LosesNothingBetweenProducersAndAConsumer) {
  constexpr std::uint64_t kEach = 2'000;
  CompletionQueue queue(64);
  std::vector<std::jthread> producers;
  for (int p = 0; p < 3; ++p) {
    producers.emplace_back([&queue] {
      for (std::uint64_t i = 0; i < kEach;) {
        if (queue.accept(1) == 0) {
          std::this_thread::yield();
        } else {
          queue.push(completion(i++));
        }
      }
    });
  }
  std::array<Completion, 16> out;
  std::uint64_t sum = 0;
  for (std::uint64_t taken = 0; taken < 3 * kEach;) {
    const std::size_t count = queue.wait(out, TimePoint::max(), {});
    for (std::size_t i = 0; i < count; ++i) sum += out[i].tag;
    taken += count;
  }
  EXPECT_EQ(sum, 3 * (kEach * (kEach - 1) / 2));
}

}  // namespace
}  // namespace headrace
