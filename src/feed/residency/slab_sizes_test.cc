#include "feed/residency/slab_sizes.h"

#include <gtest/gtest.h>

#include "feed/fake_dataset.h"

namespace headrace::feed {
namespace {

TEST(SlabSizes, OfSamplesThatAreObjectsNoneIsDear) {
  const feed_test::FakeDataset files({.block_samples = {1, 30, 30}, .is_object_per_sample = true});
  EXPECT_TRUE(are_samples_objects(files));
  EXPECT_FALSE(are_singles_dear(files, /*is_local=*/false));
}

TEST(SlabSizes, SmallSamplesOfARemoteShardAreDear) {
  const feed_test::FakeDataset shards({.block_samples = {30, 30}});
  EXPECT_FALSE(are_samples_objects(shards));
  EXPECT_TRUE(are_singles_dear(shards, /*is_local=*/false));
  EXPECT_FALSE(are_singles_dear(shards, /*is_local=*/true));
}

TEST(SlabSizes, SamplesOfCompressedBlocksAreDearAnywhere) {
  const feed_test::FakeDataset shards({.block_samples = {30, 30}, .is_compressed = true});
  EXPECT_FALSE(are_samples_objects(shards));
  EXPECT_TRUE(are_singles_dear(shards, /*is_local=*/true));
}

TEST(SlabSizes, BlocksOfOneSampleAreNoFolderOfFiles) {
  const feed_test::FakeDataset shards({.block_samples = {1, 1, 1}});
  EXPECT_FALSE(are_samples_objects(shards));
}

}  // namespace
}  // namespace headrace::feed
