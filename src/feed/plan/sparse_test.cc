#include "feed/plan/sparse.h"

#include <gtest/gtest.h>

#include "feed/fake_dataset.h"

namespace headrace::feed {
namespace {

using feed_test::FakeDataset;
using feed_test::FakeSpec;

std::vector<Piece> pieces_of(const std::vector<SparseRun>& runs) {
  std::vector<Piece> pieces;
  for (const SparseRun& run : runs) pieces.push_back(run.fetch->piece);
  return pieces;
}

FakeSpec wide_samples() {
  FakeSpec spec;
  spec.block_samples = {50, 50};
  spec.text_bytes = 6000;  // About 3,000 bytes a sample: a page's hole is one sample.
  return spec;
}

TEST(SparseRuns, MergesNeighboursWithinAPage) {
  const FakeDataset dataset(wide_samples());
  const auto runs = plan_runs(dataset, {{0, 0, 7}, {1, 0, 5}, {2, 0, 20}, {3, 0, 6}, {4, 1, 7}},
                              SlabSizes::of(dataset));
  const auto pieces = pieces_of(runs);
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[0].begin, 5U);
  EXPECT_EQ(pieces[0].end, 8U);
  EXPECT_EQ(runs[0].slots.size(), 3U);
  EXPECT_EQ(pieces[1].begin, 20U);
  EXPECT_EQ(pieces[2].block, 1U);
}

TEST(SparseRuns, LeaveOutObjectsThatNobodyWants) {
  FakeSpec spec = wide_samples();
  spec.is_object_per_sample = true;
  const FakeDataset dataset(spec);
  const auto pieces =
      pieces_of(plan_runs(dataset, {{0, 0, 7}, {1, 0, 5}, {2, 0, 8}}, SlabSizes::of(dataset)));
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].begin, 5U);
  EXPECT_EQ(pieces[0].end, 6U);
  EXPECT_EQ(pieces[1].begin, 7U);
  EXPECT_EQ(pieces[1].end, 9U);
}

TEST(SparseRuns, ReadASampleWantedTwiceOnce) {
  const FakeDataset dataset(wide_samples());
  const auto runs = plan_runs(dataset, {{0, 0, 7}, {9, 0, 7}}, SlabSizes::of(dataset));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].fetch->piece.end - runs[0].fetch->piece.begin, 1U);
  EXPECT_EQ(runs[0].slots.size(), 2U);
}

TEST(SparseRuns, ReadACompressedBlockOnceHoweverFarApart) {
  FakeSpec spec = wide_samples();
  spec.is_compressed = true;
  const FakeDataset dataset(spec);
  EXPECT_EQ(plan_runs(dataset, {{0, 0, 0}, {1, 0, 49}}, SlabSizes::of(dataset)).size(), 1U);
}

TEST(SparseRuns, KeepOnlyTheSamplesNeededOfAnInflatedBlock) {
  FakeSpec spec = wide_samples();
  spec.is_compressed = true;
  const FakeDataset dataset(spec);
  auto pool = *SlabPool::create({.limit_bytes = 4 << 20});
  auto store = dataset.make_store(*pool);
  auto runs = plan_runs(dataset, {{0, 1, 3}, {1, 1, 40}}, SlabSizes::of(dataset));
  SparseRun& run = runs[0];
  const Block block = dataset.block(1);
  auto stored = read_object(*store, *pool, "shard-1", 1 << 20);
  ASSERT_TRUE(stored);
  run.fetch->raw = *pool->try_acquire(block.raw_bytes);
  ASSERT_TRUE(
      dataset.decompress(1, std::as_bytes(std::span(*stored)), run.fetch->raw.bytes()).ok());
  run.fetch->bytes = {1, 0, block.sample_count, run.fetch->raw.bytes()};
  const std::uint64_t before = pool->used_bytes();
  ASSERT_TRUE(keep_samples(dataset, *pool, run).ok());
  EXPECT_LT(pool->used_bytes(), before / 4);
  EXPECT_EQ(feed_test::text_of(run.cells[0].bytes), FakeDataset::fixed_value(53));
  EXPECT_EQ(feed_test::text_of(run.cells[4].bytes), dataset.text_value(90));
}

}  // namespace
}  // namespace headrace::feed
