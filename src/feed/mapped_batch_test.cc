// Batches as another process sees them; here it is the same process, by mappings of its own.
#include "headrace/mapped_batch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "feed/fake_dataset.h"
#include "feed/loader_test_util.h"

namespace headrace::feed_test {
namespace {

class MappedBatchTest : public ::testing::Test {
 protected:
  MappedBatchTest() {
    FakeSpec spec;
    spec.block_samples.assign(6, 8);
    dataset_ = std::make_shared<FakeDataset>(std::move(spec));
    pool_ = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    store_ = dataset_->make_store(*pool_);
    loader_ = *Loader::create(dataset_, *store_->new_handle(), pool_, {.batch_size = 4});
    is_shared_ = loader_->share_batches(4) > 0;
    mapper_ = BatchMapper::create(loader_->schema());
  }
  void SetUp() override {
    if (!is_shared_) GTEST_SKIP() << "the system has no memory that others can map";
  }
  std::unique_ptr<Batch> next() { return *next_batch(*loader_, {}); }
  std::unique_ptr<Batch> open(const Batch& batch) {
    auto mapped = mapper_->open(batch.shared()->place.fd, place_of(batch));
    EXPECT_TRUE(mapped) << mapped.error().message();
    return *std::move(mapped);
  }

  std::shared_ptr<FakeDataset> dataset_;
  std::shared_ptr<SlabPool> pool_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Loader> loader_;
  bool is_shared_ = false;
  std::unique_ptr<BatchMapper> mapper_;
};

TEST_F(MappedBatchTest, IsTheBatchThatTheLoaderMade) {
  std::uint64_t index = 0;
  while (const auto batch = next()) {
    const auto mapped = open(*batch);
    expect_right_bytes(*dataset_, *mapped);
    EXPECT_TRUE(std::ranges::equal(mapped->ids(), batch->ids()));
    EXPECT_TRUE(std::ranges::equal(mapped->mask(), batch->mask()));
    EXPECT_EQ(mapped->index(), index++);
    EXPECT_EQ(mapped->epoch(), batch->epoch());
    EXPECT_FALSE(mapped->shared()) << "it is nobody's to map further";
    EXPECT_NE(mapped->columns()[0].values.data(), batch->columns()[0].values.data());
  }
  EXPECT_EQ(index, 12U);
}

TEST_F(MappedBatchTest, WhatIsWrittenToItIsSeenByNobodyElse) {
  const auto batch = next();
  {
    const auto mapped = open(*batch);
    std::ranges::fill(mapped->columns()[0].values, std::byte{0});
    expect_right_bytes(*dataset_, *batch);
  }
  mapper_->end();
  expect_right_bytes(*dataset_, *open(*batch));
}

TEST_F(MappedBatchTest, WhatIsHeldAtTheEndIsACopy) {
  const auto batch = next();
  const auto mapped = open(*batch);
  mapper_->end();
  std::ranges::fill(batch->columns()[0].values, std::byte{0});
  expect_right_bytes(*dataset_, *mapped);
}

TEST_F(MappedBatchTest, PlacesThatMakeNoSenseAreRefused) {
  const auto batch = next();
  std::vector<std::int64_t> place = place_of(*batch);
  place.pop_back();
  const int fd = batch->shared()->place.fd;
  EXPECT_EQ(mapper_->open(fd, place).error().code(), Code::kInternal);
  EXPECT_EQ(mapper_->open(fd, std::span(place).first(3)).error().code(), Code::kInternal);
  EXPECT_EQ(BatchMapper::create({})->open(fd, place_of(*batch)).error().code(), Code::kInternal);
  mapper_->end();
}

TEST_F(MappedBatchTest, OneThatIsNotSharedHasNoPlace) {
  const auto alone = *Loader::create(dataset_, *store_->new_handle(), pool_, {.batch_size = 4});
  EXPECT_TRUE(place_of(**next_batch(*alone, {})).empty());
}

}  // namespace
}  // namespace headrace::feed_test
