#include "feed/residency/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace headrace::feed {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(MemoryPlan, NamesLimitNeedAndCure) {
  const MemoryNeeds needs{.limit_bytes = 20 * kMiB,
                          .batch_bytes = 4 * kMiB,
                          .sparse_bytes = 4 * kMiB,
                          .block_bytes = 10 * kMiB,
                          .prefetch_batches = 8};
  EXPECT_EQ(least_memory_bytes(needs), 22 * kMiB);
  auto shares = share_memory(needs);
  ASSERT_FALSE(shares);
  EXPECT_EQ(shares.error().code(), Code::kExhausted);
  EXPECT_THAT(
      std::string(shares.error().message()),
      ::testing::AllOf(::testing::HasSubstr("20.0 MiB"), ::testing::HasSubstr("22.0 MiB"),
                       ::testing::HasSubstr("10.0 MiB"), ::testing::HasSubstr("raise memory")));
}

TEST(MemoryPlan, SharesNeverPassTheLimit) {
  Random random(3);
  for (int i = 0; i < 5000; ++i) {
    MemoryNeeds needs;
    needs.batch_bytes = 4096 * (1 + random.below(4096));
    needs.sparse_bytes = 4096 * (1 + random.below(4096));
    needs.block_bytes = 4096 * (1 + random.below(8192));
    needs.prefetch_batches = static_cast<std::uint32_t>(1 + random.below(64));
    needs.limit_bytes = least_memory_bytes(needs) + random.below(256 * kMiB);
    auto shares = share_memory(needs);
    ASSERT_TRUE(shares);
    ASSERT_GE(shares->ready_batches, 1U);
    ASSERT_LE(shares->ready_batches, needs.prefetch_batches);
    if (shares->window_bytes > 0) {
      ASSERT_LE(shares->window_bytes + (shares->ready_batches + 2) * needs.batch_bytes +
                    needs.sparse_bytes + needs.block_bytes,
                needs.limit_bytes);
    }
    const std::uint64_t window = 4096 * (1 + random.below(8192));
    const auto lanes = static_cast<std::uint32_t>(1 + random.below(64));
    const WindowShares windows = share_windows(shares->window_bytes, window, lanes);
    ASSERT_LE(windows.window_bytes, shares->window_bytes);
    ASSERT_LE(windows.dense_lanes, lanes);
    ASSERT_LE(windows.resident_bytes, windows.first_bytes);
    ASSERT_LE(windows.first_bytes, windows.window_bytes);
  }
}

TEST(MemoryPlan, HeldAndReadyBatchesStayWithinTheirShare) {
  for (std::uint32_t ready = 1; ready <= 64; ++ready) {
    const MemoryShares shares{.ready_batches = ready, .needs = {}};
    for (std::uint32_t wanted = 0; wanted <= 100; ++wanted) {
      const BatchRoom room = room_for_held(shares, wanted);
      ASSERT_LE(room.held, wanted);
      ASSERT_GE(room.held, std::min(wanted, 2U));  // As a training loop may hold anyway.
      ASSERT_LE(room.held + room.ready, ready + 2);
      ASSERT_GE(room.ready, std::max(1U, ready / 2));
    }
    EXPECT_EQ(room_for_held(shares, 0).ready, ready);
    EXPECT_EQ(room_for_held(shares, 2).ready, ready);
  }
}

TEST(MemoryPlan, BeginsToReadAheadWithLittleWhenMemoryIsPlenty) {
  const WindowShares shares = share_windows(4096 * kMiB, 16 * kMiB, 32);
  EXPECT_EQ(shares.dense_lanes, 32U);
  EXPECT_EQ(shares.resident_bytes, 512 * kMiB);
  EXPECT_EQ(shares.first_bytes, (512 + 128) * kMiB);
  EXPECT_EQ(shares.window_bytes, 4096 * kMiB);
  EXPECT_EQ(share_windows(4096 * kMiB, 8 * kMiB, 1).first_bytes, 72 * kMiB);
}

TEST(MemoryPlan, EnoughMemoryIsWhatMakesAllLanesDense) {
  Random random(5);
  for (int round = 0; round < 2'000; ++round) {
    MemoryNeeds needs;
    needs.batch_bytes = 1 + random.below(100'000);
    needs.sparse_bytes = random.below(100'000);
    needs.block_bytes = 1 + random.below(1'000'000);
    needs.workspace_bytes = random.below(2) * random.below(500'000);
    needs.prefetch_batches = 1 + static_cast<std::uint32_t>(random.below(20));
    const std::uint64_t window = 1 + random.below(2'000'000);
    const auto lanes = 1 + static_cast<std::uint32_t>(random.below(70));
    const auto dense_with = [&](std::uint64_t limit) {
      needs.limit_bytes = limit;
      auto shares = share_memory(needs);
      return shares ? share_windows(shares->window_bytes, window, lanes).dense_lanes : 0;
    };
    const std::uint64_t enough = enough_memory_bytes(needs, window, lanes);
    ASSERT_EQ(dense_with(enough), lanes) << round;
    ASSERT_LT(dense_with(enough - enough / 5 - needs.batch_bytes), lanes) << round;
  }
}

}  // namespace
}  // namespace headrace::feed
