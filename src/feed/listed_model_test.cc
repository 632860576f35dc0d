// Listed orders: random lists in any memory, with faults, stops and other worlds, against the list;
// and how many bytes they take from the store.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/test_seed.h"
#include "feed/fake_dataset.h"
#include "feed/listed_test_util.h"
#include "feed/loader_test_util.h"
#include "headrace/loader.h"
#include "store/fault/fault_store.h"

namespace headrace::feed_test {
namespace {

using Ids = std::vector<std::int64_t>;

FakeSpec random_spec(Random& random) {
  FakeSpec spec = random_layout(random);
  spec.is_unpacked = spec.is_compressed && random.below(2) == 0;
  if (spec.is_unpacked) spec.workspace_bytes = random.below(3) * 20'000;
  spec.has_extents = !spec.is_unpacked || random.below(2) == 0;
  spec.has_writers = random.below(2) == 0;
  spec.text_bytes = static_cast<std::uint32_t>(random.below(2) == 0 ? 60 : 6000);
  return spec;
}

Ids in_order(std::uint64_t count) {
  Ids ids(count);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  return ids;
}

/// Shuffles stretches of `width` ids.
void shuffle(Random& random, Ids& ids, std::uint64_t width) {
  for (std::size_t begin = 0; begin < ids.size(); begin += width) {
    const std::size_t end = std::min<std::size_t>(begin + width, ids.size());
    for (std::size_t i = end - 1; i > begin; --i)
      std::swap(ids[i], ids[begin + random.below(i - begin + 1)]);
  }
}

/// Anything that a list may be: shuffled near or far, with repeats, parts left out, and holes.
Ids random_list(Random& random, std::uint64_t sample_count) {
  Ids ids = in_order(sample_count);
  shuffle(random, ids, 1 + random.below(2 * sample_count));
  const std::uint64_t kind = random.below(4);
  if (kind == 1) ids.resize(1 + random.below(ids.size()));
  if (kind == 2) {
    const Ids again = ids;
    ids.insert(ids.end(), again.begin(), again.end());
  }
  if (kind == 3) {
    for (auto& id : ids) id = static_cast<std::int64_t>(random.below(sample_count));
  }
  if (random.below(2) == 0) {
    const std::uint64_t share = 1 + random.below(8);
    for (auto& id : ids) id = random.below(share) == 0 ? -1 : id;
  }
  return ids;
}

struct ListedRun {
  explicit ListedRun(Random& r)
      : random(r), dataset(std::make_shared<FakeDataset>(random_spec(r))) {
    big_pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    store = dataset->make_store(*big_pool);
    list = random_list(random, dataset->sample_count());
    std::vector<std::uint32_t> blocks;
    for (std::uint32_t b = 0; b < dataset->block_count(); ++b)
      blocks.push_back(dataset->block(b).sample_count);
    options.order_source = std::make_shared<ListSource>(blocks, list);
    options.epoch_end = static_cast<EpochEnd>(random.below(3));
    options.worker_count = 2;
    if (options.batch_size % 2 == 0) options.hand_over_bytes = 0;
    faults.seed = random.next();
    faults.hold_back_count = static_cast<std::uint32_t>(random.below(6));
    faults.short_accept_share = random.below(2) == 0 ? 0.3 : 0;
  }

  /// A loader in memory between the least possible and plenty.
  std::unique_ptr<Loader> open() {
    for (std::uint64_t limit = std::uint64_t{64} << 10;; limit += limit / 8) {
      pool = *SlabPool::create({.limit_bytes = limit});
      if (!Loader::create(dataset, *store->new_handle(), pool, options)) continue;
      const std::uint64_t more = random.below(3) == 0 ? 0 : random.below(4 * limit);
      pool = *SlabPool::create({.limit_bytes = limit + more});
      auto loader =
          Loader::create(dataset, FaultStore::create(*store->new_handle(), faults), pool, options);
      EXPECT_TRUE(loader);
      return *std::move(loader);
    }
  }

  /// What the batch that takes slots from list place `start` on must hold on this rank.
  Ids expected(std::uint64_t start, Ids& mask) const {
    const BatchPlan plan{
        .segment = {.start = start,
                    .global_batch = std::uint64_t{options.batch_size} * options.world_size},
        .sample_count = list.size(),
        .rank = options.rank,
        .world_size = options.world_size,
        .epoch_end = options.epoch_end};
    const BatchPlan::Slots slots = plan.slots(0);
    Ids ids;
    for (std::uint32_t i = 0; i < slots.count; ++i) {
      if (list[slots.sample(i)] < 0) continue;
      ids.push_back(list[slots.sample(i)]);
      mask.push_back(slots.is_real(i) ? 1 : 0);
    }
    return ids;
  }

  /// Delivers batches from `start` on, and checks each; returns the place after them.
  void deliver(Loader& loader, std::uint64_t start, std::uint64_t batches) {
    const std::uint64_t global = std::uint64_t{options.batch_size} * options.world_size;
    for (std::uint64_t count = 0; count < batches;) {
      Ids mask;
      Ids ids;
      while (ids.empty() && has_batch(start)) {
        mask.clear();
        ids = expected(start, mask);
        start = std::min<std::uint64_t>(start + global, list.size());
      }
      auto batch = loader.next(soon());
      ASSERT_TRUE(batch) << batch.error().message();
      ASSERT_EQ(*batch == nullptr, ids.empty());
      if (*batch == nullptr) return;
      expect_right_bytes(*dataset, **batch);
      ASSERT_EQ(Ids((*batch)->ids().begin(), (*batch)->ids().end()), ids);
      ASSERT_EQ(Ids((*batch)->mask().begin(), (*batch)->mask().end()), mask);
      ++count;
    }
  }
  bool has_batch(std::uint64_t start) const {
    const std::uint64_t global = std::uint64_t{options.batch_size} * options.world_size;
    const std::uint64_t left = list.size() - start;
    return options.epoch_end == EpochEnd::kDrop ? left >= global : left > 0;
  }

  Random& random;
  std::shared_ptr<FakeDataset> dataset;
  std::shared_ptr<SlabPool> big_pool;
  std::shared_ptr<SlabPool> pool;
  std::unique_ptr<Store> store;
  Ids list;
  LoaderOptions options;
  FaultOptions faults;
};

void choose_world(ListedRun& run) {
  run.options.world_size = static_cast<std::uint32_t>(1 + run.random.below(4));
  run.options.rank = static_cast<std::uint32_t>(run.random.below(run.options.world_size));
  run.options.batch_size = static_cast<std::uint32_t>(1 + run.random.below(24));
}

TEST(ListedModel, DeliversTheListInAnyMemoryFromAnyPlace) {
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 5000 + round);
    ListedRun run(random);
    for (int part = 0; part < 3; ++part) {
      choose_world(run);
      {
        const auto loader = run.open();
        const std::uint64_t start = random.below(run.list.size());
        ASSERT_TRUE(loader->load_state(R"({"elsewhere":)" + std::to_string(start)).ok());
        // Half of the runs end before the epoch does.
        run.deliver(*loader, start, random.below(2) == 0 ? 1 + random.below(20) : SIZE_MAX);
        if (::testing::Test::HasFailure()) return;
        ASSERT_LE(run.pool->peak_bytes(), run.pool->limit_bytes());
      }
      ASSERT_EQ(run.pool->used_bytes(), 0U);
    }
  }
}

TEST(ListedModel, GoesOnFromItsStateWithAnotherWorld) {
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 6000 + round);
    ListedRun run(random);
    run.options.epoch_end = EpochEnd::kPad;
    std::string state;
    std::uint64_t start = 0;
    while (start < run.list.size()) {
      choose_world(run);
      const auto loader = run.open();
      if (!state.empty()) {
        const Status loaded = loader->load_state(state);
        ASSERT_TRUE(loaded.ok()) << loaded.message();
      }
      run.deliver(*loader, start, 1 + random.below(8));
      if (::testing::Test::HasFailure()) return;
      state = loader->state();
      const std::size_t at = state.find("\"t\":");
      ASSERT_NE(at, std::string::npos);
      ASSERT_NE(state.find("\"list\":"), std::string::npos);
      const std::uint64_t t = std::stoull(state.substr(at + 4));
      if (state.find("\"epoch\":0") == std::string::npos) break;
      ASSERT_GT(t, start);
      start = t;
    }
  }
}

TEST(ListedModel, ErrorsOfTheStoreEndARunInsteadOfHangingIt) {
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 7000 + round);
    ListedRun run(random);
    run.faults.error_share = 0.1;
    const auto loader = run.open();
    const Ids ids = first_ids_despite_errors(*loader, 60);
    Ids wanted = run.list;
    std::erase(wanted, -1);
    wanted.resize(std::min(wanted.size(), ids.size()));
    ASSERT_EQ(ids, wanted);
  }
}

/// A dataset of 64 blocks (of 64 samples and 128 KiB), and a loader over a list of it.
struct PlainRun {
  PlainRun(Ids ids, std::uint64_t memory_bytes, std::uint32_t text_bytes = 2000) {
    FakeSpec spec;
    spec.block_samples.assign(kBlocks, kSamples);
    spec.text_bytes = text_bytes;
    dataset = std::make_shared<FakeDataset>(spec);
    pool = *SlabPool::create({.limit_bytes = memory_bytes});
    big_pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    store = dataset->make_store(*big_pool);
    LoaderOptions options;
    options.batch_size = 8;
    options.order_source = std::make_shared<ListSource>(spec.block_samples, std::move(ids));
    auto opened = Loader::create(dataset, *store->new_handle(), pool, options);
    EXPECT_TRUE(opened) << opened.error().message();
    loader = *std::move(opened);
  }
  /// Bytes fetched for an epoch.
  double drain() {
    EXPECT_TRUE(loader->start_epoch().ok());
    const double before = value_of(*loader, "store.received_bytes");
    while (true) {
      auto batch = loader->next(soon());
      EXPECT_TRUE(batch) << batch.error().message();
      if (!batch || !*batch) break;
      expect_right_bytes(*dataset, **batch);
    }
    return value_of(*loader, "store.received_bytes") - before;
  }
  static constexpr std::uint32_t kBlocks = 64;
  static constexpr std::uint32_t kSamples = 64;
  std::shared_ptr<FakeDataset> dataset;
  std::shared_ptr<SlabPool> pool;
  std::shared_ptr<SlabPool> big_pool;
  std::unique_ptr<Store> store;
  std::unique_ptr<Loader> loader;
};

constexpr std::uint64_t kAll = std::uint64_t{PlainRun::kBlocks} * PlainRun::kSamples;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(ListedFetch, TakesEachByteOnceWhenMemorySuffices) {
  Random random(test_seed());
  for (const std::uint64_t width : {std::uint64_t{1}, std::uint64_t{256}, kAll}) {
    Ids ids = in_order(kAll);
    shuffle(random, ids, width);
    PlainRun run(ids, 32 * kMiB);
    EXPECT_LE(run.drain(), 1.02 * static_cast<double>(run.dataset->stored_bytes())) << width;
  }
}

TEST(ListedFetch, TakesNothingOfWhatTheEpochBeforeHasLeft) {
  Random random(test_seed());
  for (const std::uint64_t width : {std::uint64_t{1}, kAll}) {
    Ids ids = in_order(kAll);
    shuffle(random, ids, width);
    PlainRun run(ids, 32 * kMiB);
    run.drain();
    for (int epoch = 1; epoch < 3; ++epoch) EXPECT_EQ(run.drain(), 0) << width;
  }
}

TEST(ListedFetch, TakesRepeatsOnceWhenMemorySuffices) {
  Random random(test_seed());
  Ids ids = in_order(kAll);
  const Ids again = ids;
  ids.insert(ids.end(), again.begin(), again.end());
  PlainRun run(ids, 32 * kMiB);
  EXPECT_LE(run.drain(), 1.02 * static_cast<double>(run.dataset->stored_bytes()));
}

TEST(ListedFetch, KeepsOnlyTheBlocksOfAShuffledStretchInLittleMemory) {
  Random random(test_seed());
  Ids ids = in_order(kAll);
  shuffle(random, ids, 4 * PlainRun::kSamples);
  PlainRun run(ids, 2 * kMiB);
  EXPECT_LE(run.drain(), 1.02 * static_cast<double>(run.dataset->stored_bytes()));
}

TEST(ListedFetch, ReadsSinglyWhatIsNotWorthABlock) {
  // One sample of every block: 10 KB of 640 KB.
  Ids ids;
  for (std::uint32_t b = 0; b < PlainRun::kBlocks; ++b)
    ids.push_back(static_cast<std::int64_t>(b * PlainRun::kSamples + b % 7));
  PlainRun run(ids, 32 * kMiB, 20'000);
  EXPECT_LE(run.drain(), 0.1 * static_cast<double>(run.dataset->stored_bytes()));
}

}  // namespace
}  // namespace headrace::feed_test
