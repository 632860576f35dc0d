#include "pack/memory_share.h"

#include <gtest/gtest.h>

namespace headrace::pack_detail {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// As S3.
const StoreTraits kTarget{.min_part_bytes = 5 * kMiB};

PackPlan plan_of(std::uint64_t shards, std::uint64_t shard_bytes) {
  PackPlan plan;
  plan.shard_bytes = shard_bytes;
  plan.shards.assign(shards, {.image_bytes = shard_bytes});
  return plan;
}

TEST(MemoryShare, AllWorkersThatAreWantedWhereTheyFit) {
  auto share = share_memory(plan_of(100, 64 * kMiB), 512 * kMiB, 4, 4, kTarget);
  ASSERT_TRUE(share);
  EXPECT_EQ(share->worker_count, 4U);
  EXPECT_GE(share->part_bytes, 64 * kMiB);
}

TEST(MemoryShare, MoreOnlyWhereEachMakesAShardInOnePiece) {
  const PackPlan plan = plan_of(100, 64 * kMiB);
  // 16 would have 32 MiB each, 8 of them 64, and reads need some of it.
  auto share = share_memory(plan, 512 * kMiB, 4, 16, kTarget);
  ASSERT_TRUE(share);
  EXPECT_GT(share->worker_count, 4U);
  EXPECT_LT(share->worker_count, 8U);
  EXPECT_GE(share->part_bytes, 64 * kMiB);
  EXPECT_LE(share->worker_count * share->share_bytes, 512 * kMiB);
  EXPECT_EQ(share_memory(plan, 4096 * kMiB, 4, 16, kTarget)->worker_count, 16U);
  EXPECT_EQ(share_memory(plan_of(3, 64 * kMiB), 4096 * kMiB, 4, 16, kTarget)->worker_count, 3U);
}

TEST(MemoryShare, WhereNoneFitsInOnePieceThoseThatAreWantedWorkInParts) {
  auto few = share_memory(plan_of(100, 512 * kMiB), 512 * kMiB, 4, 4, kTarget);
  auto more = share_memory(plan_of(100, 512 * kMiB), 512 * kMiB, 4, 16, kTarget);
  ASSERT_TRUE(few);
  ASSERT_TRUE(more);
  EXPECT_EQ(more->worker_count, few->worker_count);
  EXPECT_EQ(more->part_bytes, few->part_bytes);
}

TEST(MemoryShare, TellsWhetherMoreMemoryWouldReadMoreAtOnce) {
  const PackPlan plan = plan_of(2, 64 * kMiB);
  EXPECT_FALSE(share_memory(plan, 512 * kMiB, 2, 2, kTarget)->is_read_bounded);
  EXPECT_TRUE(share_memory(plan, 4096 * kMiB, 2, 2, kTarget)->is_read_bounded);
}

TEST(MemoryShare, SaysWhatAShardNeeds) {
  PackPlan plan = plan_of(2, 64 * kMiB);
  plan.compression = "zstd";
  auto share = share_memory(plan, 64 * kMiB, 2, 2, kTarget);
  ASSERT_FALSE(share);
  EXPECT_EQ(share.error().code(), Code::kExhausted);
}

TEST(MemoryShare, PartsAreNoSmallerThanTheTargetTakes) {
  const PackPlan plan = plan_of(2, 64 * kMiB);
  for (const std::uint64_t memory : {4 * kMiB, 8 * kMiB, 64 * kMiB}) {
    auto share = share_memory(plan, memory, 4, 4, kTarget);
    ASSERT_EQ(share.has_value(), memory > 4 * kMiB) << memory;
    if (share) {
      EXPECT_GE(share->part_bytes, 5 * kMiB);
    } else {
      EXPECT_EQ(share.error().code(), Code::kExhausted);
    }
  }
  EXPECT_TRUE(share_memory(plan, 4 * kMiB, 4, 4, StoreTraits{}));
  // 640 GB in 10,000 parts.
  PackPlan large = plan_of(1, 64 * kMiB);
  large.shards[0].image_bytes = 640'000 * kMiB;
  EXPECT_GE(share_memory(large, 512 * kMiB, 4, 4, kTarget)->part_bytes, 64 * kMiB);
  EXPECT_FALSE(share_memory(large, 64 * kMiB, 4, 4, kTarget));
}

TEST(MemoryShare, WhatIsMadeAsAWholeMayBeAsLargeAsTheTargetTakes) {
  PackPlan plan = plan_of(1, 1200 * kMiB);
  plan.compression = "zstd";
  EXPECT_TRUE(share_memory(plan, 8192 * kMiB, 1, 1, kTarget));
  plan = plan_of(1, 6000 * kMiB);
  plan.compression = "zstd";
  auto share = share_memory(plan, 65536 * kMiB, 1, 1, kTarget);
  ASSERT_FALSE(share);
  EXPECT_EQ(share.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::pack_detail
