// Reading on into the next epoch, and keeping what it needs: the same batches and states as
// without, nothing read twice, and no memory that the epoch before could not have back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/test_seed.h"
#include "feed/fake_dataset.h"
#include "feed/loader_test_util.h"
#include "headrace/loader.h"
#include "store/fault/fault_store.h"

namespace headrace::feed_test {
namespace {

constexpr std::uint64_t kEpochs = 3;

struct EpochsWorld {
  explicit EpochsWorld(FakeSpec spec) : dataset(std::make_shared<FakeDataset>(std::move(spec))) {
    pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    store = dataset->make_store(*pool);
  }
  std::unique_ptr<Loader> open(const LoaderOptions& options,
                               const FaultOptions& faults = {}) const {
    auto loader =
        Loader::create(dataset, FaultStore::create(*store->new_handle(), faults), pool, options);
    EXPECT_TRUE(loader) << loader.error().message();
    return loader ? *std::move(loader) : nullptr;
  }
  /// To so large a part of the dataset.
  void limit_memory(std::uint64_t part, std::uint64_t of) {
    pool = *SlabPool::create({.limit_bytes = dataset->stored_bytes() * part / of});
    store = dataset->make_store(*pool);
  }
  double received(const Loader& loader) const { return value_of(loader, "store.received_bytes"); }

  std::shared_ptr<FakeDataset> dataset;
  std::shared_ptr<SlabPool> pool;
  std::unique_ptr<Store> store;
};

/// The ids of a batch; empty: the epoch's end.
std::vector<std::int64_t> take(const EpochsWorld& world, Loader& loader) {
  auto batch = loader.next(soon());
  EXPECT_TRUE(batch) << batch.error().message();
  if (!batch || !*batch) return {};
  expect_right_bytes(*world.dataset, **batch);
  EXPECT_EQ((*batch)->epoch(), loader.has_ended() ? loader.epoch() - 1 : loader.epoch());
  return {(*batch)->ids().begin(), (*batch)->ids().end()};
}

/// Takes the rest of an epoch, or the next one.
void finish_epoch(const EpochsWorld& world, Loader& loader) {
  ASSERT_TRUE(loader.start_epoch().ok());
  while (!take(world, loader).empty()) continue;
}

struct Step {
  std::vector<std::int64_t> ids;
  std::string state;
  bool operator==(const Step&) const = default;
};

Step step(const EpochsWorld& world, Loader& loader) {
  Step made{.ids = take(world, loader), .state = {}};
  made.state = loader.state();
  if (made.ids.empty()) {
    EXPECT_TRUE(loader.start_epoch().ok());
  }
  return made;
}

FakeSpec spec_of(std::uint32_t blocks, std::uint32_t samples) {
  FakeSpec spec;
  spec.block_samples.assign(blocks, samples);
  return spec;
}

void wait_for_bytes(const EpochsWorld& world, const Loader& loader, double bytes) {
  const TimePoint until = soon();
  while (world.received(loader) < bytes && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  EXPECT_GE(world.received(loader), bytes);
}

TEST(Epochs, TheNextIsReadBeforeItBegins) {
  EpochsWorld world(spec_of(40, 400));
  world.limit_memory(9, 10);
  auto loader = world.open(
      {.batch_size = 8, .seed = 3, .lane_count = 2, .epoch_count = kEpochs, .prefetch_batches = 2});
  const auto stored = static_cast<double>(world.dataset->stored_bytes());
  finish_epoch(world, *loader);
  wait_for_bytes(world, *loader, 1.2 * stored);
  for (std::uint64_t epoch = 1; epoch < kEpochs; ++epoch) finish_epoch(world, *loader);
  // Each byte once an epoch at most, but for the first batch of the first, which is read singly.
  EXPECT_LE(world.received(*loader), 1.02 * stored * kEpochs);
}

TEST(Epochs, WhatHasRoomIsReadOnce) {
  for (const std::uint32_t lanes : {0U, 1U, 7U}) {
    for (const std::uint64_t told : {std::uint64_t{0}, kEpochs}) {
      SCOPED_TRACE(std::to_string(lanes) + " lanes, epochs told: " + std::to_string(told));
      const EpochsWorld world(spec_of(20, 400));
      auto loader =
          world.open({.batch_size = 8, .seed = 3, .lane_count = lanes, .epoch_count = told});
      const auto stored = static_cast<double>(world.dataset->stored_bytes());
      for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) finish_epoch(world, *loader);
      EXPECT_LE(world.received(*loader), 1.02 * stored);
      EXPECT_GE(value_of(*loader, "loader.spared_reads"), 20 * (kEpochs - 1));
    }
  }
}

TEST(Epochs, WhatIsKeptIsOfTheRoomThatIsThere) {
  EpochsWorld world(spec_of(40, 400));
  world.limit_memory(9, 10);
  auto loader = world.open({.batch_size = 8, .seed = 3, .lane_count = 2, .prefetch_batches = 2});
  const auto stored = static_cast<double>(world.dataset->stored_bytes());
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) finish_epoch(world, *loader);
  EXPECT_GT(value_of(*loader, "loader.spared_reads"), 0);
  EXPECT_LT(world.received(*loader), 0.95 * kEpochs * stored);
}

TEST(Epochs, NothingIsKeptThatMayNotBe) {
  const EpochsWorld world(spec_of(20, 400));
  auto loader = world.open({.batch_size = 8, .seed = 3, .epoch_count = 2, .keep_in_memory = false});
  const auto stored = static_cast<double>(world.dataset->stored_bytes());
  for (int epoch = 0; epoch < 2; ++epoch) finish_epoch(world, *loader);
  EXPECT_GE(world.received(*loader), 2 * stored);
  EXPECT_EQ(value_of(*loader, "loader.spared_reads"), 0);
}

TEST(Epochs, TheLastKeepsNothing) {
  const EpochsWorld world(spec_of(20, 400));
  auto loader = world.open({.batch_size = 8, .seed = 3, .epoch_count = kEpochs});
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    EXPECT_TRUE(epoch == 0 || world.pool->used_bytes() > world.dataset->stored_bytes() / 2);
    finish_epoch(world, *loader);
  }
  // The feed thread gives up what the last batch needed after it is delivered.
  for (const TimePoint until = soon();
       world.pool->used_bytes() > 0 && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  EXPECT_EQ(world.pool->used_bytes(), 0U);
}

TEST(Epochs, ASetEpochToTheNextKeepsWhatWasRead) {
  const EpochsWorld world(spec_of(20, 400));
  auto loader = world.open({.batch_size = 8, .seed = 3, .epoch_count = 2});
  const auto stored = static_cast<double>(world.dataset->stored_bytes());
  finish_epoch(world, *loader);
  ASSERT_TRUE(loader->seek(1, 0).ok());
  EXPECT_FALSE(loader->has_ended());
  finish_epoch(world, *loader);
  EXPECT_LE(world.received(*loader), 1.02 * stored);
  // Another one gives it up.
  auto other = world.open({.batch_size = 8, .seed = 3, .epoch_count = 9});
  finish_epoch(world, *other);
  ASSERT_TRUE(other->seek(5, 0).ok());
  EXPECT_EQ(other->epoch(), 5U);
  auto reference = world.open({.batch_size = 8, .seed = 3});
  ASSERT_TRUE(reference->seek(5, 0).ok());
  EXPECT_EQ(take(world, *other), take(world, *reference));
}

TEST(Epochs, NothingIsReadBeyondTheLast) {
  for (const std::uint64_t count : {0U, 1U}) {
    const EpochsWorld world(spec_of(20, 400));
    auto loader = world.open({.batch_size = 8, .seed = 3, .epoch_count = count});
    finish_epoch(world, *loader);
    loader->stop();
    EXPECT_LE(world.received(*loader), 1.02 * static_cast<double>(world.dataset->stored_bytes()));
  }
}

TEST(Epochs, AStateWithinTheNextIsNotThatOfItsBeginning) {
  const EpochsWorld world(spec_of(8, 100));
  const LoaderOptions options{.batch_size = 8, .seed = 3, .epoch_count = kEpochs};
  auto reference = world.open(options);
  finish_epoch(world, *reference);
  ASSERT_TRUE(reference->start_epoch().ok());
  for (int i = 0; i < 5; ++i) static_cast<void>(take(world, *reference));
  const std::string state = reference->state();
  const std::vector<std::int64_t> expected = take(world, *reference);
  // The feed thread may see the new position as one step, or as an end and a beginning.
  for (int round = 0; round < 50; ++round) {
    auto loader = world.open(options);
    ASSERT_FALSE(take(world, *loader).empty());
    wait_for_bytes(world, *loader, static_cast<double>(world.dataset->stored_bytes()));
    ASSERT_TRUE(loader->load_state(state).ok());
    ASSERT_EQ(take(world, *loader), expected) << "round " << round;
  }
}

TEST(Epochs, ReadsAreSharedWhileTheyAreUnpacked) {
  FakeSpec spec = spec_of(12, 60);
  spec.text_bytes = 20'000;
  spec.is_unpacked = true;
  spec.told_percent = 15;  // Workers take more memory for them meanwhile.
  for (const std::uint32_t lanes : {3U, 4U, 5U}) {
    EpochsWorld world(spec);
    world.pool = *SlabPool::create({.limit_bytes = std::uint64_t{256} << 20});
    auto loader = world.open({.batch_size = 8,
                              .seed = lanes,
                              .lane_count = lanes,
                              .epoch_count = kEpochs,
                              .prefetch_batches = 2,
                              .worker_count = 2},
                             {.seed = lanes, .hold_back_count = 3});
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) finish_epoch(world, *loader);
    EXPECT_GT(value_of(*loader, "loader.spared_reads"), 0);
  }
}

TEST(Epochs, BatchesAndStatesAreThoseOfALoaderThatDoesNotReadOn) {
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 39000 + round);
    FakeSpec spec;
    spec.block_samples = random_blocks(random, 16, 40);
    const std::uint64_t kind = random.below(6);
    spec.is_compressed = kind < 2;
    spec.is_unpacked = kind == 1;
    spec.is_object_per_sample = kind == 2;
    EpochsWorld world(spec);
    LoaderOptions options;
    options.seed = random.next();
    options.batch_size = static_cast<std::uint32_t>(
        1 + random.below(std::min<std::uint64_t>(world.dataset->sample_count(), 24)));
    options.worker_count = 1 + static_cast<std::uint32_t>(random.below(2));
    options.prefetch_batches = static_cast<std::uint32_t>(1 + random.below(8));
    options.order = random.below(5) == 0 ? "sequential" : "headrace";
    options.epoch_end = random.below(2) == 0 ? EpochEnd::kPad : EpochEnd::kUneven;
    auto reference = world.open(options);
    const std::string begin = reference->state();
    std::vector<Step> right;
    while (reference->epoch() < kEpochs) right.push_back(step(world, *reference));
    reference.reset();

    options.epoch_count = kEpochs;
    for (std::uint64_t limit = std::uint64_t{64} << 10;; limit += limit / 8) {
      world.pool = *SlabPool::create({.limit_bytes = limit});
      if (Loader::create(world.dataset, *world.store->new_handle(), world.pool, options)) break;
    }
    const std::uint64_t least = world.pool->limit_bytes();
    world.pool = *SlabPool::create({.limit_bytes = least + random.below(3) * random.below(least)});
    const FaultOptions faults{.seed = random.next(),
                              .hold_back_count = static_cast<std::uint32_t>(random.below(6))};
    auto loader = world.open(options, faults);
    ASSERT_TRUE(loader->load_state(begin).ok());
    int jumps_left = 3;
    for (std::size_t i = 0; i < right.size(); ++i) {
      const Step made = step(world, *loader);
      ASSERT_EQ(made.ids, right[i].ids) << i;
      ASSERT_EQ(made.state, right[i].state) << i;
      // A state of an epoch's end goes on with the next, and says nothing of the end again.
      const bool is_last = i + 1 == right.size() || right[i + 1].ids.empty();
      const std::uint64_t what = is_last ? 9 : random.below(12);
      if (const std::uint64_t to = random.below(right.size() - 1);
          what == 3 && jumps_left > 0 && !right[to + 1].ids.empty()) {
        --jumps_left;
        ASSERT_TRUE(loader->load_state(right[to].state).ok());
        i = to;
      }
      if (what == 0) {  // Another process goes on.
        loader = world.open(options, faults);
        ASSERT_TRUE(loader->load_state(made.state).ok());
      } else if (what == 1) {
        ASSERT_TRUE(loader->load_state(made.state).ok());
      } else if (what == 2 && made.ids.empty()) {
        ASSERT_TRUE(loader->seek(loader->epoch(), 0).ok());
      }
    }
    loader.reset();
    ASSERT_EQ(world.pool->used_bytes(), 0U);
    ASSERT_LE(world.pool->peak_bytes(), world.pool->limit_bytes());
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace headrace::feed_test
