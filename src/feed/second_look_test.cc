// Bits that flip on the wire: the samples come right all the same, and none is replaced for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_seed.h"
#include "feed/fake_dataset.h"
#include "feed/fake_decode.h"
#include "feed/listed_test_util.h"
#include "feed/loader_test_util.h"
#include "headrace/loader.h"
#include "store/fault/fault_store.h"

namespace headrace::feed_test {
namespace {

using ::testing::HasSubstr;

/// A dataset that notices every flipped bit, behind a store that flips some.
struct FlippedWorld {
  FlippedWorld(FakeSpec spec, const FaultOptions& faults, bool is_checked = true) {
    spec.is_checked = is_checked;
    dataset = std::make_shared<FakeDataset>(std::move(spec));
    pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    store = FaultStore::create(dataset->make_store(*pool), faults);
  }
  std::unique_ptr<Loader> open(const LoaderOptions& options) {
    auto loader = Loader::create(dataset, *store->new_handle(), pool, options);
    EXPECT_TRUE(loader) << loader.error().message();
    return loader ? *std::move(loader) : nullptr;
  }
  /// Reads an epoch: every sample once and right. The error that ended it, if one did.
  Status drain(Loader& loader, const LoaderOptions& options = {}) const {
    std::vector<int> seen(dataset->sample_count());
    while (true) {
      auto batch = loader.next(soon());
      if (!batch) return std::move(batch).error();
      if (!*batch) break;
      expect_right_bytes(*dataset, **batch, options);
      expect_decoded_bytes(*dataset, **batch, options);
      for (std::uint32_t i = 0; i < (*batch)->count(); ++i)
        seen[static_cast<std::size_t>((*batch)->ids()[i])] += (*batch)->mask()[i];
      EXPECT_TRUE((*batch)->replaced().empty());
      if (::testing::Test::HasFailure()) return {};
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    return {};
  }

  std::shared_ptr<FakeDataset> dataset;
  std::shared_ptr<SlabPool> pool;
  std::unique_ptr<FaultStore> store;
};

FakeSpec random_spec(Random& random) {
  FakeSpec spec;
  spec.block_samples = random_blocks(random, 12, 60);
  const std::uint64_t kind = random.below(5);
  spec.is_compressed = kind == 0 || kind == 1;
  spec.is_unpacked = kind == 1;
  spec.is_object_per_sample = kind == 2;
  spec.only_fixed = kind == 3;
  return spec;
}

LoaderOptions random_options(Random& random, const FakeDataset& dataset) {
  LoaderOptions options;
  options.seed = random.next();
  options.batch_size = static_cast<std::uint32_t>(
      1 + random.below(std::min<std::uint64_t>(dataset.sample_count(), 24)));
  options.epoch_end = EpochEnd::kPad;
  options.worker_count = 2;
  options.on_bad_sample = random.below(2) == 0 ? OnBadSample::kReplace : OnBadSample::kRaise;
  options.order = random.below(4) == 0 ? "sequential" : "headrace";
  options.prefetch_batches = static_cast<std::uint32_t>(1 + random.below(8));
  return options;
}

TEST(FlippedBits, AreReadAgainInAnyOrderAndMemory) {
  std::uint64_t flips = 0;
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 9000 + round);
    FlippedWorld world(random_spec(random),
                       {.seed = random.next(),
                        .flip_share = 0.08,
                        .hold_back_count = static_cast<std::uint32_t>(random.below(6))});
    const LoaderOptions options = random_options(random, *world.dataset);
    for (std::uint64_t limit = std::uint64_t{64} << 10;; limit += limit / 8) {
      world.pool = *SlabPool::create({.limit_bytes = limit});
      if (Loader::create(world.dataset, *world.store->new_handle(), world.pool, options)) break;
    }
    if (random.below(2) == 0) world.pool = *SlabPool::create({.limit_bytes = 64 << 20});
    auto loader = world.open(options);
    const Status ended = world.drain(*loader);
    ASSERT_TRUE(ended.ok()) << ended.message();
    ASSERT_EQ(value_of(*loader, "loader.bad_samples"), 0);
    loader.reset();
    ASSERT_EQ(world.pool->used_bytes(), 0U);
    ASSERT_LE(world.pool->peak_bytes(), world.pool->limit_bytes());
    if (::testing::Test::HasFailure()) return;
    flips += world.store->counts().flips;
  }
  EXPECT_GT(flips, test_round_count() / 4);
}

TEST(FlippedBits, ThatOnlyADecoderSeesAreReadAgain) {
  std::uint64_t flips = 0;
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    Random random(test_seed() + 19000 + round);
    FakeSpec spec = random_spec(random);
    spec.only_fixed = true;  // Else a flip in a text, which nobody checks, would come through.
    FlippedWorld world(spec, {.seed = random.next(), .flip_share = 0.08}, false);
    LoaderOptions options = random_options(random, *world.dataset);
    options.decode["x"] = std::make_shared<FakeDecode>(*world.dataset);
    auto loader = world.open(options);
    const Status ended = world.drain(*loader, options);
    ASSERT_TRUE(ended.ok()) << ended.message();
    ASSERT_EQ(value_of(*loader, "loader.bad_samples"), 0);
    loader.reset();
    ASSERT_EQ(world.pool->used_bytes(), 0U);
    if (::testing::Test::HasFailure()) return;
    flips += world.store->counts().flips;
  }
  EXPECT_GT(flips, test_round_count() / 4);
}

TEST(FlippedBits, OnesThatComeTwiceTheSameAreTheDatas) {
  for (const bool is_compressed : {false, true}) {
    FlippedWorld world({.is_compressed = is_compressed, .bad_samples = {5}}, {});
    auto loader = world.open({.batch_size = 4});
    const Status ended = world.drain(*loader);
    EXPECT_EQ(ended.code(), Code::kCorrupt);
    EXPECT_EQ(value_of(*loader, "loader.second_reads"), 2);
  }
  FlippedWorld world({.is_compressed = true, .bad_blocks = {2}}, {});
  auto loader = world.open({.batch_size = 4});
  EXPECT_EQ(world.drain(*loader).code(), Code::kCorrupt);
  EXPECT_GE(value_of(*loader, "loader.second_reads"), 1);  // Several lanes may read the block.
}

TEST(FlippedBits, ABlockWithManyBadSamplesIsNotReadAgainForEach) {
  FlippedWorld world(
      {.block_samples = {50, 50}, .is_compressed = true, .bad_samples = {1, 2, 3, 4, 5, 6, 7}}, {});
  auto loader = world.open({.batch_size = 4, .on_bad_sample = OnBadSample::kReplace});
  while (*loader->next(soon())) continue;
  EXPECT_EQ(value_of(*loader, "loader.bad_samples"), 7);
  EXPECT_LE(value_of(*loader, "loader.second_reads"), 8);
}

TEST(FlippedBits, BytesThatNeverComeTwiceTheSameAreAnErrorOfTheStore) {
  for (const bool is_compressed : {false, true}) {
    FlippedWorld world({.is_compressed = is_compressed}, {.flip_share = 1});
    auto loader = world.open({.batch_size = 4, .on_bad_sample = OnBadSample::kReplace});
    const Status ended = world.drain(*loader);
    EXPECT_EQ(ended.code(), Code::kUnavailable) << ended.message();
    EXPECT_THAT(std::string(ended.message()), HasSubstr("came differently"));
    EXPECT_EQ(value_of(*loader, "loader.bad_samples"), 0);
  }
}

}  // namespace
}  // namespace headrace::feed_test
