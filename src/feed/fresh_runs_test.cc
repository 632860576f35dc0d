// Fresh runs on any number of ranks: the same global batches, and datasets smaller than one.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/test_seed.h"
#include "feed/fake_dataset.h"
#include "feed/loader_test_util.h"
#include "headrace/loader.h"

namespace headrace::feed_test {
namespace {

using Ids = std::vector<std::int64_t>;

/// Rounds of a test: many more in the long set.
std::uint64_t round_count() {
  return test_round_count() * (test_number("HEADRACE_LONG_TESTS", 0) > 0 ? 50 : 1);
}

/// A small dataset, and what all ranks of a run have in common.
class FreshRun {
 public:
  explicit FreshRun(Random& random) {
    FakeSpec spec;
    spec.block_samples.resize(1 + random.below(random.below(2) == 0 ? 6 : 200));
    const std::uint64_t most = 1 + random.below(spec.block_samples.size() > 6 ? 8 : 200);
    for (auto& n : spec.block_samples) n = static_cast<std::uint32_t>(1 + random.below(most));
    spec.blocks_per_shard = static_cast<std::uint32_t>(1 + random.below(4));
    spec.is_compressed = random.below(3) == 0;
    spec.text_bytes = 20;
    dataset = std::make_shared<FakeDataset>(std::move(spec));
    pool = *SlabPool::create({.limit_bytes = std::uint64_t{1} << 30});
    store = dataset->make_store(*pool);
    options.seed = random.next();
    options.order = random.below(6) == 0 ? "sequential" : "headrace";
    constexpr EpochEnd kEnds[] = {EpochEnd::kPad, EpochEnd::kDrop, EpochEnd::kUneven};
    options.epoch_end = kEnds[random.below(3)];
    options.worker_count = 1;
  }

  std::unique_ptr<Loader> open(std::uint32_t rank, std::uint32_t world, std::uint64_t batch) const {
    LoaderOptions mine = options;
    mine.rank = rank;
    mine.world_size = world;
    mine.batch_size = static_cast<std::uint32_t>(batch / world);
    auto loader = Loader::create(dataset, *store->new_handle(), pool, mine);
    EXPECT_TRUE(loader) << loader.error().message();
    return loader ? *std::move(loader) : nullptr;
  }

  /// Planned ids of each global batch, ranks one after the other.
  std::vector<Ids> planned(std::uint32_t world, std::uint64_t batch, std::uint64_t epoch) const {
    std::vector<Ids> batches;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const auto loader = open(rank, world, batch);
      for (std::uint64_t k = 0; loader != nullptr; ++k) {
        auto ids = loader->sample_ids(epoch, k);
        if (!ids) break;
        batches.resize(std::max<std::size_t>(batches.size(), k + 1));
        batches[k].insert(batches[k].end(), ids->begin(), ids->end());
      }
    }
    return batches;
  }

  /// What all ranks deliver of an epoch, repeats left out; `slots` counts them too, by rank.
  Ids delivered(std::uint32_t world, std::uint64_t batch, std::vector<std::size_t>& slots) const {
    Ids all;
    slots.assign(world, 0);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const auto loader = open(rank, world, batch);
      while (loader != nullptr) {
        auto next = loader->next(soon());
        EXPECT_TRUE(next) << next.error().message();
        if (!next || *next == nullptr) break;
        expect_right_bytes(*dataset, **next);
        slots[rank] += (*next)->count();
        for (std::uint32_t i = 0; i < (*next)->count(); ++i)
          if ((*next)->mask()[i] != 0) all.push_back((*next)->ids()[i]);
      }
      EXPECT_NE(loader->state().find("\"epoch\":1,\"t\":0"), std::string::npos);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  std::shared_ptr<FakeDataset> dataset;
  std::shared_ptr<SlabPool> pool;
  std::unique_ptr<Store> store;
  LoaderOptions options;
};

TEST(FreshRuns, GiveTheSameBatchesOnAnyNumberOfRanks) {
  for (std::uint64_t round = 0; round < 3 * round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + round);
    const FreshRun run(random);
    const auto world = static_cast<std::uint32_t>(2 + random.below(7));
    const std::uint64_t batch = world * (1 + random.below(24));
    const std::uint64_t epoch = random.below(3);
    ASSERT_EQ(run.planned(world, batch, epoch), run.planned(1, batch, epoch))
        << world << " ranks, " << batch << " samples";
  }
}

TEST(FreshRuns, DeliverADatasetThatIsSmallerThanAGlobalBatch) {
  for (std::uint64_t round = 0; round < round_count() / 2; ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 5000 + round);
    const FreshRun run(random);
    const std::uint64_t n = run.dataset->sample_count();
    const auto world = static_cast<std::uint32_t>(1 + random.below(8));
    const std::uint64_t batch = world * (n / world + 1 + random.below(5));
    std::vector<std::size_t> slots;
    Ids all(run.options.epoch_end == EpochEnd::kDrop ? 0 : n);
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(run.delivered(world, batch, slots), all);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const std::uint64_t share = (rank + 1) * n / world - rank * n / world;
      const std::uint64_t expected = run.options.epoch_end == EpochEnd::kPad      ? batch / world
                                     : run.options.epoch_end == EpochEnd::kUneven ? share
                                                                                  : 0;
      ASSERT_EQ(slots[rank], expected) << "rank " << rank << " of " << world;
    }
  }
}

}  // namespace
}  // namespace headrace::feed_test
