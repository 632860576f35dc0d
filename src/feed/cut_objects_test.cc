// Objects that are read whole, in parts: compared with the sum that the store keeps of all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_seed.h"
#include "feed/loader_test_util.h"
#include "feed/sum_store.h"
#include "headrace/loader.h"
#include "store/fault/fault_store.h"

namespace headrace::feed_test {
namespace {

using ::testing::HasSubstr;

/// Samples of 24 bytes in objects that are cut at 1 to 5 bytes: each is above four requests.
struct CutWorld {
  CutWorld(FakeSpec spec, ObjectSums how, ChecksumKind kind, const FaultOptions& faults = {}) {
    spec.only_fixed = spec.is_versioned = true;
    dataset = std::make_shared<FakeDataset>(std::move(spec));
    pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    auto inner = std::make_unique<SumStore>(*dataset, *pool, how, kind);
    sums = &inner->shared();
    store = FaultStore::create(std::move(inner), faults);
  }
  std::unique_ptr<Loader> open(LoaderOptions options) const {
    if (options.large_request_bytes == 0) options.large_request_bytes = 5;
    auto loader = Loader::create(dataset, *store->new_handle(), pool, options);
    EXPECT_TRUE(loader) << loader.error().message();
    return loader ? *std::move(loader) : nullptr;
  }
  /// Reads an epoch: the error that ended it, if one did.
  Status drain(Loader& loader) const {
    std::uint64_t count = 0;
    while (true) {
      auto batch = loader.next(soon());
      if (!batch) return std::move(batch).error();
      if (!*batch) break;
      expect_right_bytes(*dataset, **batch);
      if (::testing::Test::HasFailure()) return {};
      for (const auto is_real : (*batch)->mask()) count += is_real;
    }
    EXPECT_EQ(count, dataset->sample_count());
    return {};
  }

  std::shared_ptr<FakeDataset> dataset;
  std::shared_ptr<SlabPool> pool;
  SumStore::Shared* sums = nullptr;
  std::unique_ptr<FaultStore> store;
};

LoaderOptions options_of(std::uint32_t workers) {
  return {.batch_size = 4, .epoch_end = EpochEnd::kPad, .worker_count = workers};
}

TEST(CutObjects, BitsThatFlipInAPartAreFoundByTheSumOfTheWhole) {
  std::uint64_t flips = 0;
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 29000 + round);
    FakeSpec spec;
    spec.block_samples = random_blocks(random, 12, 9);
    const std::uint64_t kind = random.below(3);
    spec.is_object_per_sample = kind == 0;
    spec.is_compressed = kind > 0;
    spec.is_unpacked = kind == 2;
    const std::uint64_t request_bytes = 1 + random.below(5);
    const CutWorld world(spec, random.below(2) == 0 ? ObjectSums::kHead : ObjectSums::kEveryGet,
                         random.below(2) == 0 ? ChecksumKind::kCrc32c : ChecksumKind::kCrc64Nvme,
                         {.seed = random.next(),
                          .flip_share = 0.0005 * static_cast<double>(request_bytes),
                          .hold_back_count = static_cast<std::uint32_t>(random.below(6))});
    LoaderOptions options = options_of(static_cast<std::uint32_t>(random.below(3)));
    options.seed = random.next();
    options.large_request_bytes = request_bytes;
    options.on_bad_sample = random.below(2) == 0 ? OnBadSample::kReplace : OnBadSample::kRaise;
    auto loader = world.open(options);
    const Status ended = world.drain(*loader);
    ASSERT_TRUE(ended.ok()) << ended.message();
    ASSERT_EQ(value_of(*loader, "loader.bad_samples"), 0);
    const std::uint64_t now = world.store->counts().flips;
    ASSERT_GE(value_of(*loader, "loader.second_reads"), now > 0 ? 1 : 0);
    loader.reset();
    ASSERT_EQ(world.pool->used_bytes(), 0U);
    if (::testing::Test::HasFailure()) return;
    flips += now;
  }
  EXPECT_GT(flips, test_round_count() / 8);
}

TEST(CutObjects, ASumThatNeverFitsIsAnErrorThatNamesTheObject) {
  for (const std::uint32_t workers : {0U, 2U}) {
    const CutWorld world({.is_object_per_sample = true}, ObjectSums::kHead, ChecksumKind::kCrc32c);
    world.sums->sums["file-7"].value ^= 1;
    LoaderOptions options = options_of(workers);
    options.on_bad_sample = OnBadSample::kReplace;
    auto loader = world.open(options);
    const Status ended = world.drain(*loader);
    EXPECT_EQ(ended.code(), Code::kCorrupt);
    EXPECT_THAT(std::string(ended.message()), HasSubstr("file-7: its bytes, read in parts"));
  }
}

TEST(CutObjects, AStoreThatTellsNoSumsIsReadWithoutThem) {
  for (const Code code : {Code::kDenied, Code::kUnsupported}) {
    const CutWorld world({.is_object_per_sample = true}, ObjectSums::kHead, ChecksumKind::kCrc32c);
    world.sums->head_error = code;
    auto loader = world.open(options_of(0));
    EXPECT_TRUE(world.drain(*loader).ok());
    EXPECT_GT(world.sums->heads.value(), 0U);
  }
  const CutWorld world({.is_object_per_sample = true}, ObjectSums::kHead, ChecksumKind::kCrc32c);
  world.sums->head_error = Code::kUnavailable;
  auto loader = world.open(options_of(0));
  EXPECT_EQ(world.drain(*loader).code(), Code::kUnavailable) << "not checked is not the same";
}

TEST(CutObjects, WhatIsReadAtOnceNeedsNoMoreRequests) {
  for (const ObjectSums how : {ObjectSums::kHead, ObjectSums::kEveryGet, ObjectSums::kNotNeeded,
                               ObjectSums::kWholeReads}) {
    const CutWorld world({.is_object_per_sample = true}, how, ChecksumKind::kCrc32c);
    const std::uint64_t samples = world.dataset->sample_count();
    LoaderOptions options = options_of(0);
    options.large_request_bytes = 6;  // Objects are of four times that.
    ASSERT_TRUE(world.drain(*world.open(options)).ok());
    EXPECT_EQ(world.sums->heads.value(), 0U);
    EXPECT_EQ(world.sums->gets.value(), samples);
    options.large_request_bytes = 5;
    ASSERT_TRUE(world.drain(*world.open(options)).ok());
    const bool is_cut = how != ObjectSums::kWholeReads;
    EXPECT_EQ(world.sums->heads.value(), how == ObjectSums::kHead ? samples : 0);
    EXPECT_EQ(world.sums->gets.value(), samples + (is_cut ? 5 * samples : samples));
  }
}

}  // namespace
}  // namespace headrace::feed_test
