// Random runs against what the order says: any sequence of world sizes, batch sizes and stops, with
// faults, in any memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/test_seed.h"
#include "feed/fake_dataset.h"
#include "feed/fake_decode.h"
#include "feed/loader_test_util.h"
#include "headrace/loader.h"
#include "store/fault/fault_store.h"

namespace headrace::feed_test {
namespace {

FakeSpec random_spec(Random& random) {
  FakeSpec spec = random_layout(random);
  spec.only_fixed = random.below(6) == 0;
  spec.is_unpacked = spec.is_compressed && random.below(4) == 0;
  if (spec.is_unpacked) {
    spec.workspace_bytes = random.below(3) * 20'000;
    if (random.below(2) == 0) spec.told_percent = static_cast<std::uint32_t>(5 + random.below(95));
  }
  spec.has_extents = !spec.is_unpacked || random.below(2) == 0;
  spec.has_writers = random.below(3) == 0;
  spec.text_bytes = static_cast<std::uint32_t>(random.below(2) == 0 ? 60 : 600);
  return spec;
}

/// One part of a run: a world of ranks that deliver some batches and save.
struct Part {
  std::uint32_t world_size = 1;
  std::uint32_t batch_size = 1;
  std::uint64_t batches = 0;
};

/// One epoch of a random dataset, run in parts that save and resume.
class Scenario {
 public:
  explicit Scenario(Random& random)
      : random_(random),
        spec_(random_spec(random)),
        dataset_(std::make_shared<FakeDataset>(spec_)) {
    big_pool_ = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    store_ = dataset_->make_store(*big_pool_);
    options_.seed = random.next();
    options_.order = random.below(5) == 0 ? "sequential" : "headrace";
    options_.epoch_end = random.below(2) == 0 ? EpochEnd::kPad : EpochEnd::kUneven;
    if (random.below(2) == 0 && options_.order == "headrace") {
      options_.lane_count = static_cast<std::uint32_t>(
          1 + random.below(std::min<std::uint64_t>(dataset_->sample_count(), 12)));
      options_.window_blocks = static_cast<std::uint32_t>(1 + random.below(4));
    }
    faults_.seed = random.next();
    faults_.hold_back_count = static_cast<std::uint32_t>(random.below(6));
    faults_.short_accept_share = random.below(2) == 0 ? 0.3 : 0;
    const std::uint64_t decodes = random.below(5);
    if (decodes < 2) options_.decode["x"] = std::make_shared<FakeDecode>();
    if (decodes == 1 && !spec_.only_fixed) options_.decode["text"] = std::make_shared<FakeDecode>();
    // Ranks whose memory differs would choose different lanes: one of them begins, all others go on
    // from its state.
    LoaderOptions first = options_;
    first.batch_size = static_cast<std::uint32_t>(1 + random.below(dataset_->sample_count()));
    auto loader = Loader::create(dataset_, *store_->new_handle(), big_pool_, first);
    EXPECT_TRUE(loader);
    if (loader) state_ = (*loader)->state();
  }

  /// A pool that is between the least possible and plenty for what unpacking really takes.
  std::shared_ptr<SlabPool> make_pool(const LoaderOptions& options) {
    FakeSpec honest = spec_;
    honest.told_percent = 100;
    const std::uint64_t limit = least_limit(std::make_shared<FakeDataset>(honest), options);
    const std::uint64_t more = random_.below(3) == 0 ? 0 : random_.below(limit);
    return *SlabPool::create({.limit_bytes = limit + more});
  }
  /// One that lets a loader be made, by what blocks tell, and may be too small for them.
  std::shared_ptr<SlabPool> make_small_pool(const LoaderOptions& options) {
    const std::uint64_t limit = least_limit(dataset_, options);
    return *SlabPool::create({.limit_bytes = limit + random_.below(2 * limit)});
  }
  std::uint64_t least_limit(const std::shared_ptr<FakeDataset>& dataset,
                            const LoaderOptions& options) {
    for (std::uint64_t limit = std::uint64_t{64} << 10;; limit += limit / 8) {
      std::shared_ptr<SlabPool> pool = *SlabPool::create({.limit_bytes = limit});
      if (Loader::create(dataset, *store_->new_handle(), pool, options)) return limit;
    }
  }

  Part random_part(std::uint64_t left) {
    Part part;
    const std::uint64_t n = dataset_->sample_count();
    part.world_size = static_cast<std::uint32_t>(1 + random_.below(std::min<std::uint64_t>(4, n)));
    part.batch_size = static_cast<std::uint32_t>(
        1 + random_.below(std::min<std::uint64_t>(n / part.world_size, 24)));
    const std::uint64_t global = std::uint64_t{part.world_size} * part.batch_size;
    part.batches = 1 + random_.below(left / global + 1);
    return part;
  }

  /// Runs one part on all its ranks from `state_`; appends the real samples by global batch.
  void run_part(const Part& part) {
    std::vector<std::vector<std::int64_t>> batches(part.batches);
    std::string state;
    for (std::uint32_t rank = 0; rank < part.world_size; ++rank) {
      LoaderOptions options = options_;
      options.world_size = part.world_size;
      options.rank = rank;
      options.batch_size = part.batch_size;
      options.worker_count = 2;
      if (random_.below(2) == 0) options.hand_over_bytes = 0;
      options.prefetch_batches = static_cast<std::uint32_t>(1 + random_.below(8));
      options.large_request_bytes = random_.below(2) == 0 ? 0 : 1 + random_.below(500);
      options.epoch_count = random_.below(2) == 0 ? 0 : 100;
      const auto pool = make_pool(options);
      run_rank(options, pool, batches, state);
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
      ASSERT_EQ(pool->used_bytes(), 0U);
      ASSERT_LE(pool->peak_bytes(), pool->limit_bytes());
    }
    state_ = state;
    for (auto& batch : batches) delivered_.push_back(std::move(batch));
  }

  void run_rank(const LoaderOptions& options, const std::shared_ptr<SlabPool>& pool,
                std::vector<std::vector<std::int64_t>>& batches, std::string& state) {
    auto opened =
        Loader::create(dataset_, FaultStore::create(*store_->new_handle(), faults_), pool, options);
    ASSERT_TRUE(opened) << opened.error().message();
    const std::unique_ptr<Loader> loader = *std::move(opened);
    if (!state_.empty()) {
      const Status loaded = loader->load_state(state_);
      ASSERT_TRUE(loaded.ok()) << loaded.message();
    }
    for (auto& ids : batches) {
      auto batch = loader->next(soon());
      ASSERT_TRUE(batch) << batch.error().message();
      if (!*batch) break;
      expect_right_bytes(*dataset_, **batch, options);
      expect_decoded_bytes(*dataset_, **batch, options);
      for (std::uint32_t i = 0; i < (*batch)->count(); ++i) {
        if ((*batch)->mask()[i] != 0) ids.push_back((*batch)->ids()[i]);
      }
    }
    // Ranks agree, but for one without a share of an uneven last batch; rank 0 always has the most.
    if (options.rank == 0) state = loader->state();
    if (options.rank != 0 && options.epoch_end == EpochEnd::kPad) {
      ASSERT_EQ(loader->state(), state);
    }
  }

  bool has_ended() const {
    return state_.find("\"epoch\":0") == std::string::npos && !state_.empty();
  }
  std::uint64_t delivered_count() const {
    std::uint64_t count = 0;
    for (const auto& batch : delivered_) count += batch.size();
    return count;
  }

  Random& random_;
  FakeSpec spec_;
  std::shared_ptr<FakeDataset> dataset_;
  std::shared_ptr<SlabPool> big_pool_;
  std::unique_ptr<Store> store_;
  LoaderOptions options_;
  FaultOptions faults_;
  std::string state_;
  std::vector<std::vector<std::int64_t>> delivered_;
};

void expect_exactly_once(const Scenario& run) {
  std::vector<std::int64_t> all;
  for (const auto& batch : run.delivered_) all.insert(all.end(), batch.begin(), batch.end());
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), run.dataset_->sample_count());
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<std::int64_t>(i));
}

TEST(LoaderModel, AnyStopsWorldsAndBatchSizesDeliverEachSampleOnce) {
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + round);
    Scenario run(random);
    while (!run.has_ended()) {
      run.run_part(run.random_part(run.dataset_->sample_count() - run.delivered_count()));
      if (::testing::Test::HasFailure()) return;
    }
    expect_exactly_once(run);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(LoaderModel, TheSameGlobalBatchGivesTheSameBatchesOnAnyWorld) {
  for (std::uint64_t round = 0; round < test_round_count() / 2; ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 1000 + round);
    Scenario run(random);
    if (run.dataset_->sample_count() < 12) continue;
    const std::string start = run.state_;
    std::vector<std::vector<std::vector<std::int64_t>>> runs;
    for (int again = 0; again < 3; ++again) {
      run.state_ = start;
      run.delivered_.clear();
      while (!run.has_ended()) {
        const std::uint32_t worlds[] = {1, 2, 3, 4, 6, 12};
        const std::uint32_t world = worlds[random.below(6)];
        run.run_part(
            {.world_size = world, .batch_size = 12 / world, .batches = 1 + random.below(20)});
        if (::testing::Test::HasFailure()) return;
      }
      std::erase_if(run.delivered_, [](const auto& batch) { return batch.empty(); });
      runs.push_back(run.delivered_);
    }
    ASSERT_EQ(runs[0], runs[1]);
    ASSERT_EQ(runs[0], runs[2]);
  }
}

TEST(LoaderModel, ErrorsOfTheStoreEndARunInsteadOfHangingIt) {
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 2000 + round);
    Scenario run(random);
    run.faults_.error_share = 0.1;
    LoaderOptions options = run.options_;
    options.batch_size = 1;
    options.worker_count = 2;
    options.hand_over_bytes = 0;
    const auto pool = run.make_pool(options);
    auto opened = Loader::create(
        run.dataset_, FaultStore::create(*run.store_->new_handle(), run.faults_), pool, options);
    ASSERT_TRUE(opened);
    std::vector<std::int64_t> ids = first_ids_despite_errors(**opened, 200);
    std::sort(ids.begin(), ids.end());
    ASSERT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
    opened = Status(Code::kCancelled, "done");
    ASSERT_EQ(pool->used_bytes(), 0U);
  }
}

TEST(LoaderModel, BlocksThatTakeMoreThanTheyTellEndARunWithTheNumbers) {
  int ends = 0;
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 23000 + round);
    Scenario run(random);
    run.spec_.is_compressed = run.spec_.is_unpacked = true;
    run.spec_.is_object_per_sample = run.spec_.only_fixed = false;
    run.spec_.text_bytes = 8000;  // Against pools of 64 KiB and more.
    run.spec_.told_percent = static_cast<std::uint32_t>(5 + random.below(60));
    run.dataset_ = std::make_shared<FakeDataset>(run.spec_);
    run.store_ = run.dataset_->make_store(*run.big_pool_);
    LoaderOptions options = run.options_;
    options.batch_size = static_cast<std::uint32_t>(
        1 + random.below(std::min<std::uint64_t>(run.dataset_->sample_count(), 24)));
    options.prefetch_batches = static_cast<std::uint32_t>(1 + random.below(8));
    options.worker_count = 2;
    const auto pool = run.make_small_pool(options);
    const auto loader = Loader::create(run.dataset_, *run.store_->new_handle(), pool, options);
    ASSERT_TRUE(loader);
    while (true) {
      const auto batch = (*loader)->next(system_clock().now() + std::chrono::seconds(20));
      if (!batch) {
        ASSERT_EQ(batch.error().code(), Code::kExhausted) << batch.error().message();
        ++ends;
        break;
      }
      if (*batch == nullptr) break;
      expect_right_bytes(*run.dataset_, **batch, options);
    }
  }
  EXPECT_GT(ends, 0) << "pools that are too small were among them";
}

}  // namespace
}  // namespace headrace::feed_test
