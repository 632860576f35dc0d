#include "pack/memory_share.h"

#include <gtest/gtest.h>

namespace headrace::pack_detail {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

PackPlan plan_of(std::uint64_t shards, std::uint64_t shard_bytes) {
  PackPlan plan;
  plan.shard_bytes = shard_bytes;
  plan.shards.assign(shards, {.image_bytes = shard_bytes});
  return plan;
}

TEST(MemoryShare, AllWorkersThatAreWantedWhereTheyFit) {
  auto share = share_memory(plan_of(100, 64 * kMiB), 512 * kMiB, 4, 4);
  ASSERT_TRUE(share);
  EXPECT_EQ(share->worker_count, 4U);
  EXPECT_GE(share->part_bytes, 64 * kMiB);
}

TEST(MemoryShare, MoreOnlyWhereEachMakesAShardInOnePiece) {
  const PackPlan plan = plan_of(100, 64 * kMiB);
  // 16 would have 32 MiB each, 8 of them 64, and reads need some of it.
  auto share = share_memory(plan, 512 * kMiB, 4, 16);
  ASSERT_TRUE(share);
  EXPECT_GT(share->worker_count, 4U);
  EXPECT_LT(share->worker_count, 8U);
  EXPECT_GE(share->part_bytes, 64 * kMiB);
  EXPECT_LE(share->worker_count * share->share_bytes, 512 * kMiB);
  EXPECT_EQ(share_memory(plan, 4096 * kMiB, 4, 16)->worker_count, 16U);
  EXPECT_EQ(share_memory(plan_of(3, 64 * kMiB), 4096 * kMiB, 4, 16)->worker_count, 3U);
}

TEST(MemoryShare, WhereNoneFitsInOnePieceThoseThatAreWantedWorkInParts) {
  auto few = share_memory(plan_of(100, 512 * kMiB), 512 * kMiB, 4, 4);
  auto more = share_memory(plan_of(100, 512 * kMiB), 512 * kMiB, 4, 16);
  ASSERT_TRUE(few);
  ASSERT_TRUE(more);
  EXPECT_EQ(more->worker_count, few->worker_count);
  EXPECT_EQ(more->part_bytes, few->part_bytes);
}

TEST(MemoryShare, TellsWhetherMoreMemoryWouldReadMoreAtOnce) {
  const PackPlan plan = plan_of(2, 64 * kMiB);
  EXPECT_FALSE(share_memory(plan, 512 * kMiB, 2, 2)->is_read_bounded);
  EXPECT_TRUE(share_memory(plan, 4096 * kMiB, 2, 2)->is_read_bounded);
}

TEST(MemoryShare, SaysWhatAShardNeeds) {
  PackPlan plan = plan_of(2, 64 * kMiB);
  plan.compression = "zstd";
  auto share = share_memory(plan, 64 * kMiB, 2, 2);
  ASSERT_FALSE(share);
  EXPECT_EQ(share.error().code(), Code::kExhausted);
}

}  // namespace
}  // namespace headrace::pack_detail
