// Runs over datasets with bad samples against a model of the rule of docs/design/0027.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

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

std::uint64_t step_of(std::uint64_t n) {
  std::uint64_t step = std::max<std::uint64_t>(1, n * 618 / 1000);
  while (std::gcd(step, n) != 1) ++step;
  return step;
}

/// Which samples are bad, and the rule.
struct Model {
  std::vector<std::uint32_t> block_samples;
  std::vector<std::uint32_t> source_blocks;
  std::vector<bool> is_bad;

  std::int64_t stand_in(std::uint64_t planned) const {
    if (!is_bad[planned]) return static_cast<std::int64_t>(planned);
    std::vector<std::uint64_t> firsts = {0};
    for (const auto n : block_samples) firsts.push_back(firsts.back() + n);
    std::uint64_t block = 0;
    while (planned >= firsts[block + 1]) ++block;
    const std::uint64_t index = planned - firsts[block];
    std::uint64_t begin = 0;
    std::uint64_t end = block_samples.size();
    for (const auto first : source_blocks) {
      if (first <= block) begin = first;
      if (first > block) end = std::min<std::uint64_t>(end, first);
    }
    for (std::uint64_t m = 0; m < end - begin; ++m) {
      const std::uint64_t b = begin + (block - begin + m * step_of(end - begin)) % (end - begin);
      const std::uint64_t n = block_samples[b];
      for (std::uint64_t k = 0; k < std::min<std::uint64_t>(n, 16); ++k) {
        const std::uint64_t id = firsts[b] + (index + k * step_of(n)) % n;
        if (!is_bad[id]) return static_cast<std::int64_t>(id);
      }
    }
    return -1;
  }
  bool has_all() const {
    for (std::uint64_t i = 0; i < is_bad.size(); ++i) {
      if (stand_in(i) < 0) return false;
    }
    return true;
  }
};

/// A random dataset with bad samples, some of them listed.
class Scenario {
 public:
  explicit Scenario(Random& random) : random_(random) {
    make_spec();
    make_bad();
    dataset_ = std::make_shared<FakeDataset>(spec_);
    big_pool_ = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    store_ = dataset_->make_store(*big_pool_);
    options_.seed = random.next();
    options_.on_bad_sample = OnBadSample::kReplace;
    options_.source_blocks = model_.source_blocks;
    options_.quarantine = quarantine_;
    options_.epoch_end = random.below(2) == 0 ? EpochEnd::kPad : EpochEnd::kUneven;
    choose_order();
    if (decodes_) options_.decode["x"] = std::make_shared<FakeDecode>(bad_headers_, bad_bodies_);
    if (decodes_ && !spec_.only_fixed && random_.below(2) == 0)
      options_.decode["text"] = std::make_shared<FakeDecode>();
    faults_.seed = random.next();
    faults_.hold_back_count = static_cast<std::uint32_t>(random.below(6));
  }

  /// All ranks of a world from the start to the end of the epoch, each in a memory of its own.
  void run_world(std::uint32_t world_size, std::uint32_t batch_size) {
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      LoaderOptions options = options_;
      options.world_size = world_size;
      options.rank = rank;
      options.batch_size = batch_size;
      options.worker_count = 2;
      options.hand_over_bytes = 0;
      options.prefetch_batches = static_cast<std::uint32_t>(1 + random_.below(8));
      const auto pool = make_pool(options);
      run_rank(options, pool);
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
      ASSERT_EQ(pool->used_bytes(), 0U);
      ASSERT_LE(pool->peak_bytes(), pool->limit_bytes());
    }
  }

  std::shared_ptr<FakeDataset> dataset_;
  std::unique_ptr<Store> store_;
  LoaderOptions options_;
  FaultOptions faults_;
  Model model_;

 private:
  void make_spec() {
    spec_.block_samples.resize(1 + random_.below(16));
    const std::uint64_t most = 1 + random_.below(random_.below(4) == 0 ? 300 : 40);
    for (auto& count : spec_.block_samples)
      count = static_cast<std::uint32_t>(1 + random_.below(most));
    spec_.blocks_per_shard = static_cast<std::uint32_t>(1 + random_.below(4));
    const std::uint64_t kind = random_.below(5);
    spec_.is_compressed = kind == 0 || kind == 1;
    spec_.is_unpacked = kind == 1;
    spec_.is_object_per_sample = kind == 2;
    spec_.only_fixed = kind == 3;
    if (spec_.block_samples.size() > 3 && random_.below(2) == 0)
      model_.source_blocks = {0, static_cast<std::uint32_t>(spec_.block_samples.size() / 2)};
  }
  void make_bad() {
    model_.block_samples = spec_.block_samples;
    const std::uint64_t percents[] = {2, 10, 40};
    const std::uint64_t percent = percents[random_.below(3)];
    decodes_ = random_.below(2) == 0;
    const std::uint64_t listed = random_.below(3) * 50;
    std::uint64_t id = 0;
    for (std::uint32_t b = 0; b < spec_.block_samples.size(); ++b) {
      const bool is_block_bad = random_.below(6) == 0;
      const bool is_block_listed = is_block_bad && random_.below(2) == 0;
      if (is_block_bad && spec_.is_compressed) spec_.bad_blocks.insert(b);
      for (std::uint32_t i = 0; i < spec_.block_samples[b]; ++i, ++id) {
        const bool is_bad = is_block_bad || random_.below(100) < percent;
        model_.is_bad.push_back(is_bad);
        if (!is_bad) continue;
        if (is_block_listed || random_.below(100) < listed) quarantine_.push_back({id, id + 1});
        // What is listed need not be bad by its bytes.
        if (!quarantine_.empty() && quarantine_.back().begin == id && random_.below(2) == 0)
          continue;
        const std::uint64_t how = decodes_ ? random_.below(3) : 0;
        (how == 0 ? spec_.bad_samples : how == 1 ? bad_headers_ : bad_bodies_).insert(id);
      }
    }
  }
  void choose_order() {
    if (random_.below(3) == 0) {
      std::vector<std::int64_t> ids(model_.is_bad.size());
      std::iota(ids.begin(), ids.end(), 0);
      for (std::size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random_.below(i)]);
      options_.order_source = std::make_shared<ListSource>(spec_.block_samples, std::move(ids));
      return;
    }
    options_.order = random_.below(4) == 0 ? "sequential" : "headrace";
    if (options_.order != "headrace") return;
    options_.lane_count = static_cast<std::uint32_t>(
        1 + random_.below(std::min<std::uint64_t>(model_.is_bad.size(), 8)));
    options_.window_blocks = static_cast<std::uint32_t>(1 + random_.below(3));
  }
  std::shared_ptr<SlabPool> make_pool(const LoaderOptions& options) {
    for (std::uint64_t limit = std::uint64_t{64} << 10;; limit += limit / 8) {
      std::shared_ptr<SlabPool> pool = *SlabPool::create({.limit_bytes = limit});
      if (!Loader::create(dataset_, *store_->new_handle(), pool, options)) continue;
      const std::uint64_t more = random_.below(3) == 0 ? 0 : random_.below(4 * limit);
      return *SlabPool::create({.limit_bytes = limit + more});
    }
  }
  void run_rank(const LoaderOptions& options, const std::shared_ptr<SlabPool>& pool) {
    auto opened =
        Loader::create(dataset_, FaultStore::create(*store_->new_handle(), faults_), pool, options);
    ASSERT_TRUE(opened) << opened.error().message();
    Loader& loader = **opened;
    for (std::uint64_t k = 0;; ++k) {
      auto batch = loader.next(soon());
      ASSERT_TRUE(batch) << batch.error().message();
      if (!*batch) break;
      const auto planned = loader.sample_ids(0, k);
      ASSERT_TRUE(planned);
      expect_batch(**batch, *planned);
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
    }
  }
  void expect_batch(const Batch& batch, const std::vector<std::int64_t>& planned) {
    ASSERT_EQ(batch.count(), planned.size());
    std::size_t replaced = 0;
    for (std::uint32_t i = 0; i < batch.count(); ++i) {
      ASSERT_EQ(batch.ids()[i], model_.stand_in(static_cast<std::uint64_t>(planned[i])))
          << "planned " << planned[i];
      if (batch.ids()[i] == planned[i]) continue;
      ASSERT_LT(replaced, batch.replaced().size());
      ASSERT_EQ(batch.replaced()[replaced].slot, i);
      ASSERT_EQ(batch.replaced()[replaced++].planned_id, planned[i]);
    }
    ASSERT_EQ(replaced, batch.replaced().size());
    expect_right_bytes(*dataset_, batch, options_);
    expect_decoded_bytes(*dataset_, batch, options_);
  }

  Random& random_;
  FakeSpec spec_;
  std::vector<SampleRange> quarantine_;
  bool decodes_ = false;
  std::set<std::uint64_t> bad_headers_;
  std::set<std::uint64_t> bad_bodies_;
  std::shared_ptr<SlabPool> big_pool_;
};

TEST(BadSamples, TheSameSampleStandsInWhateverTheWorldAndTheMemory) {
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 3000 + round);
    Scenario run(random);
    if (!run.model_.has_all()) continue;
    const std::uint64_t n = run.dataset_->sample_count();
    for (int again = 0; again < 2; ++again) {
      const auto world =
          static_cast<std::uint32_t>(1 + random.below(std::min<std::uint64_t>(3, n)));
      const auto batch =
          static_cast<std::uint32_t>(1 + random.below(std::min<std::uint64_t>(n / world, 16)));
      run.run_world(world, batch);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

/// A dataset and its loader in plenty of memory.
struct World {
  explicit World(FakeSpec spec) : dataset(std::make_shared<FakeDataset>(std::move(spec))) {
    pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    store = dataset->make_store(*pool);
  }
  std::unique_ptr<Loader> open(const LoaderOptions& options) {
    auto loader = Loader::create(dataset, *store->new_handle(), pool, options);
    EXPECT_TRUE(loader) << loader.error().message();
    return loader ? *std::move(loader) : nullptr;
  }
  std::shared_ptr<FakeDataset> dataset;
  std::shared_ptr<SlabPool> pool;
  std::unique_ptr<Store> store;
};

/// Ids of all batches; the error that ended them, if one did.
std::vector<std::int64_t> drain(Loader& loader, Status& error) {
  std::vector<std::int64_t> ids;
  while (true) {
    auto batch = loader.next(soon());
    if (!batch) {
      error = std::move(batch).error();
      return ids;
    }
    if (!*batch) return ids;
    ids.insert(ids.end(), (*batch)->ids().begin(), (*batch)->ids().end());
  }
}

double metric(const Loader& loader, std::string_view name) {
  for (const Metric& m : loader.stats()) {
    if (m.name == name) return m.value;
  }
  return -1;
}

TEST(BadSamples, RaiseUnlessTheyAreListedOrAskedToBeReplaced) {
  World world({.bad_samples = {5, 20}});
  Status error;
  drain(*world.open({.batch_size = 4}), error);
  EXPECT_EQ(error.code(), Code::kCorrupt);
  error = Status();
  drain(*world.open({.batch_size = 4, .quarantine = {{5, 6}}}), error);
  EXPECT_EQ(error.code(), Code::kCorrupt) << "only one of them is listed";
  error = Status();
  const auto listed = world.open({.batch_size = 4, .quarantine = {{5, 6}, {20, 21}}});
  const auto ids = drain(*listed, error);
  EXPECT_TRUE(error.ok()) << error.message();
  EXPECT_EQ(metric(*listed, "loader.replaced_samples"), 2);
  EXPECT_EQ(metric(*listed, "loader.bad_samples"), 0);
  const auto replacing = world.open({.batch_size = 4, .on_bad_sample = OnBadSample::kReplace});
  EXPECT_EQ(drain(*replacing, error), ids);
  EXPECT_EQ(metric(*replacing, "loader.bad_samples"), 2);
  ASSERT_EQ(replacing->bad_samples().size(), 2U);
  EXPECT_EQ(replacing->bad_samples()[0].message, "fake sample");
}

TEST(BadSamples, WhatCannotBeDecodedIsNamed) {
  for (const bool is_header : {true, false}) {
    World world(FakeSpec{});
    const std::set<std::uint64_t> bad = {5, 6};
    const auto decode = std::make_shared<FakeDecode>(is_header ? bad : std::set<std::uint64_t>(),
                                                     is_header ? std::set<std::uint64_t>() : bad);
    Status error;
    const LoaderOptions options{.batch_size = 4, .order = "sequential", .decode = {{"x", decode}}};
    const auto loader = world.open(options);
    const auto ids = drain(*loader, error);
    EXPECT_EQ(ids.size(), 4U) << "the batch before it is delivered";
    EXPECT_EQ(error.code(), is_header ? Code::kUnsupported : Code::kCorrupt);
    EXPECT_THAT(std::string(error.message()),
                HasSubstr("sample 5 of memory://fake (shard-0), column 'x': fake"));
  }
}

TEST(BadSamples, DecodeOfAColumnThatIsNotDeliveredIsRefused) {
  World world(FakeSpec{});
  const auto refused = Loader::create(
      world.dataset, *world.store->new_handle(), world.pool,
      {.batch_size = 1, .columns = {"text"}, .decode = {{"x", std::make_shared<FakeDecode>()}}});
  ASSERT_FALSE(refused);
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("there are text"));
}

TEST(BadSamples, AListedBlockIsNotRead) {
  World world({.is_compressed = true, .bad_blocks = {2}});
  const auto loader = world.open({.batch_size = 4, .quarantine = {{17, 29}}});
  Status error;
  drain(*loader, error);
  EXPECT_TRUE(error.ok()) << error.message();
  EXPECT_EQ(metric(*loader, "loader.replaced_samples"), 12);
}

TEST(BadSamples, FaultsOfTheStoreAreNoReasonToReplace) {
  World world({.bad_samples = {5}});
  const FaultOptions faults{.seed = 3, .error_share = 1.0};
  auto loader =
      Loader::create(world.dataset, FaultStore::create(*world.store->new_handle(), faults),
                     world.pool, {.batch_size = 4, .on_bad_sample = OnBadSample::kReplace});
  ASSERT_TRUE(loader);
  Status error;
  drain(**loader, error);
  EXPECT_EQ(error.code(), Code::kUnavailable);
}

TEST(BadSamples, ADatasetWithoutGoodSamplesIsAnError) {
  World world({.block_samples = {3, 2}, .bad_samples = {0, 1, 2, 3, 4}});
  Status error;
  drain(*world.open({.batch_size = 1, .on_bad_sample = OnBadSample::kReplace}), error);
  EXPECT_EQ(error.code(), Code::kCorrupt);
  EXPECT_THAT(std::string(error.message()), HasSubstr("stand in"));
  for (const auto& [range, what] :
       {std::pair{SampleRange{0, 5}, "every sample"}, std::pair{SampleRange{4, 6}, "beyond"}}) {
    const auto refused = Loader::create(world.dataset, *world.store->new_handle(), world.pool,
                                        {.batch_size = 1, .quarantine = {range}});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(refused.error().message()), HasSubstr(what));
  }
}

TEST(BadSamples, TheListIsPartOfTheState) {
  World world(FakeSpec{});
  const std::string plain = world.open({.batch_size = 4})->state();
  EXPECT_EQ(plain.find("quarantine"), std::string::npos);
  const LoaderOptions one{.batch_size = 4, .quarantine = {{5, 6}}};
  const LoaderOptions other{.batch_size = 4, .quarantine = {{6, 7}}};
  const std::string listed = world.open(one)->state();
  EXPECT_LT(listed.size(), 1024U);
  EXPECT_TRUE(world.open(one)->load_state(plain).ok());
  EXPECT_TRUE(world.open(one)->load_state(listed).ok());
  for (const LoaderOptions& options : {other, LoaderOptions{.batch_size = 4}}) {
    const Status refused = world.open(options)->load_state(listed);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("quarantine"));
    std::string meant = listed;
    const std::size_t at = meant.find("\"quarantine\":\"") + 13;
    meant.replace(at, 18, "null");
    EXPECT_TRUE(world.open(options)->load_state(meant).ok());
  }
}

}  // namespace
}  // namespace headrace::feed_test
