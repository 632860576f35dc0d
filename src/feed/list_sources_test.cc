// Orders of other loaders through the loader, against the lists that define them.
#include "headrace/list_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "feed/fake_dataset.h"
#include "feed/loader_test_util.h"
#include "headrace/loader.h"

namespace headrace::feed_test {
namespace {

using ::testing::HasSubstr;

using Ids = std::vector<std::int64_t>;

constexpr std::uint32_t kBatch = 5;

struct World {
  World() {
    FakeSpec spec;
    spec.block_samples.assign(40, 20);
    spec.block_samples[7] = 13;
    dataset = std::make_shared<FakeDataset>(spec);
    pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    store = dataset->make_store(*pool);
  }
  Result<std::shared_ptr<const OrderSource>> mosaic(const RunWorld& world,
                                                    const std::string& algorithm = "py1e") const {
    MosaicSpec spec;
    spec.shuffle = true;
    spec.shuffle_algo = algorithm;
    spec.shuffle_block_size = 200;
    return create_mosaic_source(*dataset, spec, {}, world, {});
  }
  Result<std::shared_ptr<const OrderSource>> litdata(const RunWorld& world) const {
    LitDataSpec spec;
    spec.shuffle = "full";
    return create_litdata_source(*dataset, spec, world);
  }
  std::unique_ptr<Loader> open(const Result<std::shared_ptr<const OrderSource>>& source,
                               const RunWorld& world, std::uint32_t rank = 0) {
    EXPECT_TRUE(source) << source.error().message();
    LoaderOptions options;
    options.batch_size = world.batch_size;
    options.rank = rank;
    options.world_size = world.world_size;
    options.order_source = *source;
    auto loader = Loader::create(dataset, *store->new_handle(), pool, options);
    EXPECT_TRUE(loader) << loader.error().message();
    return *std::move(loader);
  }
  Ids drain(Loader& loader, std::size_t most = SIZE_MAX) const {
    Ids ids;
    for (std::size_t i = 0; i < most; ++i) {
      auto batch = loader.next(soon());
      EXPECT_TRUE(batch) << batch.error().message();
      if (!batch || !*batch) break;
      expect_right_bytes(*dataset, **batch);
      ids.insert(ids.end(), (*batch)->ids().begin(), (*batch)->ids().end());
    }
    return ids;
  }
  /// Appends what all ranks of a world deliver from `state` on; their own states hold `field`.
  void go_on(const Result<std::shared_ptr<const OrderSource>>& source, const RunWorld& run,
             const std::string& state, const std::string& field, Ids& ids) {
    for (std::uint32_t rank = 0; rank < run.world_size; ++rank) {
      auto loader = open(source, run, rank);
      const Status loaded = loader->load_state(state);
      ASSERT_TRUE(loaded.ok()) << loaded.message();
      EXPECT_THAT(loader->state(), HasSubstr(field));
      const Ids rest = drain(*loader);
      ids.insert(ids.end(), rest.begin(), rest.end());
    }
  }
  /// The samples of one rank in what Mosaic has left of an epoch.
  Ids mosaic_ids(const RunWorld& world, const MosaicState& state, std::uint32_t rank,
                 const std::string& algorithm = "py1e") const {
    MosaicSpec spec;
    spec.shuffle = true;
    spec.shuffle_algo = algorithm;
    spec.shuffle_block_size = 200;
    MosaicStream stream;
    for (std::uint32_t i = 0; i < dataset->shard_count(); ++i)
      stream.shard_samples.push_back(dataset->shard(i).sample_count);
    const std::uint32_t per_node =
        world.ranks_per_node > 0 ? world.ranks_per_node : world.world_size;
    auto epoch = MosaicEpoch::create(spec, std::span(&stream, 1),
                                     {.physical_nodes = world.world_size / per_node,
                                      .ranks_per_node = per_node,
                                      .workers = world.workers,
                                      .batch_size = world.batch_size},
                                     state);
    EXPECT_TRUE(epoch) << epoch.error().message();
    auto list = make_mosaic_list(**epoch);
    EXPECT_TRUE(list);
    Ids all((*list)->size());
    (*list)->read(0, all);
    return of_rank(all, world, rank);
  }
  static Ids of_rank(const Ids& all, const RunWorld& world, std::uint32_t rank) {
    Ids ids;
    for (std::size_t t = 0; t < all.size(); ++t) {
      if (t / world.batch_size % world.world_size == rank && all[t] >= 0) ids.push_back(all[t]);
    }
    return ids;
  }

  std::shared_ptr<FakeDataset> dataset;
  std::shared_ptr<SlabPool> pool;
  std::unique_ptr<Store> store;
};

std::vector<std::uint64_t> shard_counts(const Dataset& dataset) {
  std::vector<std::uint64_t> counts;
  for (std::uint32_t i = 0; i < dataset.shard_count(); ++i)
    counts.push_back(dataset.shard(i).sample_count);
  return counts;
}

TEST(MosaicSource, DeliversMosaicsSequence) {
  World world;
  for (const std::string algorithm : {"py1e", "py1s", "py1br", "py2s", "naive"}) {
    const RunWorld run{.world_size = 4, .ranks_per_node = 2, .workers = 3, .batch_size = kBatch};
    auto loader = world.open(world.mosaic(run, algorithm), run, 1);
    EXPECT_EQ(world.drain(*loader), world.mosaic_ids(run, {}, 1, algorithm)) << algorithm;
    EXPECT_EQ(loader->order_spec().id, "mosaic:" + algorithm);
  }
}

TEST(MosaicSource, GoesOnFromMosaicsState) {
  World world;
  const RunWorld run{.world_size = 2, .workers = 2, .batch_size = kBatch};
  auto loader = world.open(world.mosaic(run), run);
  const Status loaded = loader->load_state(
      R"({"epoch":3,"sample_in_epoch":200,"num_canonical_nodes":2,"shuffle_seed":77,)"
      R"("initial_physical_nodes":1})");
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(loader->epoch(), 3U);
  const MosaicState state{.epoch = 3,
                          .sample_in_epoch = 200,
                          .num_canonical_nodes = 2,
                          .shuffle_seed = 77,
                          .initial_physical_nodes = 1};
  EXPECT_EQ(world.drain(*loader), world.mosaic_ids(run, state, 0));
  EXPECT_THAT(loader->state(), HasSubstr(R"("num_canonical_nodes":2)"));
  EXPECT_THAT(loader->state(), HasSubstr(R"("shuffle_seed":77)"));
}

TEST(MosaicSource, GoesOnFromItsOwnStateAfterTakingOverAnotherSeed) {
  World world;
  const RunWorld run{.batch_size = kBatch};
  auto first = world.open(world.mosaic(run), run);
  ASSERT_TRUE(first->load_state(R"({"epoch":1,"sample_in_epoch":100,"shuffle_seed":77})").ok());
  world.drain(*first, 4);
  auto second = world.open(world.mosaic(run), run);
  const Status loaded = second->load_state(first->state());
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(second->state(), first->state());
  const Ids rest = world.drain(*first);
  EXPECT_EQ(world.drain(*second), rest);
  const MosaicState state{.epoch = 1, .sample_in_epoch = 120, .shuffle_seed = 77};
  EXPECT_EQ(rest, world.mosaic_ids(run, state, 0));
}

TEST(MosaicSource, ItsOwnStateGoesOnInAnotherWorld) {
  World world;
  const RunWorld first{.world_size = 2, .workers = 1, .batch_size = kBatch};
  auto begun = world.open(world.mosaic(first), first);
  const Ids before = world.drain(*begun, 12);
  const std::string state = begun->state();
  EXPECT_THAT(state, HasSubstr(R"("sample_in_epoch":120)"));
  EXPECT_LT(state.size(), 1024U);
  const RunWorld second{.world_size = 1, .workers = 1, .batch_size = 2 * kBatch};
  auto loader = world.open(world.mosaic(second), second);
  ASSERT_TRUE(loader->load_state(state).ok());
  MosaicState saved;
  saved.sample_in_epoch = 120;
  saved.num_canonical_nodes = 1;
  saved.initial_physical_nodes = 1;
  EXPECT_EQ(world.drain(*loader), world.mosaic_ids(second, saved, 0));
}

TEST(MosaicSource, GoesOnWithNodesThatDoNotDivideTheCanonicalOnes) {
  World world;
  const RunWorld two{.world_size = 4, .ranks_per_node = 2, .batch_size = 3};
  const RunWorld three{.world_size = 6, .ranks_per_node = 2, .batch_size = 2};
  Ids ids;
  std::string state;
  for (std::uint32_t rank = 0; rank < two.world_size; ++rank) {
    auto loader = world.open(world.mosaic(two), two, rank);
    const Ids begun = world.drain(*loader, 10);
    ids.insert(ids.end(), begun.begin(), begun.end());
    state = loader->state();
  }
  EXPECT_THAT(state, HasSubstr(R"("initial_physical_nodes":2)"));
  world.go_on(world.mosaic(three), three, state, R"("initial_physical_nodes":2)", ids);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  EXPECT_EQ(ids.size(), world.dataset->sample_count());
}

TEST(MosaicSource, RefusesWhatMosaicRefuses) {
  World world;
  EXPECT_EQ(world.mosaic({.world_size = 3, .ranks_per_node = 2}).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(world.mosaic({}, "py9z").error().code(), Code::kInvalidArgument);
  for (const RunWorld& none :
       {RunWorld{.world_size = 0, .batch_size = kBatch}, RunWorld{.batch_size = 0}}) {
    EXPECT_EQ(world.mosaic(none).error().code(), Code::kInvalidArgument);
    EXPECT_EQ(world.litdata(none).error().code(), Code::kInvalidArgument);
  }
  MosaicStream other;
  other.shard_samples = {3};
  EXPECT_EQ(create_mosaic_source(*world.dataset, {}, {other}, {}, {}).error().code(),
            Code::kInvalidArgument);
  const RunWorld run{.batch_size = kBatch};
  auto loader = world.open(world.mosaic(run), run);
  for (const std::string state : {R"({"epoch":0,"sample_in_epoch":-1})", R"({"sample_in_epoch":3})",
                                  R"({"epoch":0,"sample_in_epoch":3,"num_canonical_nodes":"x"})"}) {
    EXPECT_EQ(loader->load_state(state).code(), Code::kInvalidArgument) << state;
  }
  EXPECT_EQ(world.drain(*loader), world.mosaic_ids(run, {}, 0));
}

TEST(MosaicSource, AStateAtTheEndBeginsTheNextEpoch) {
  World world;
  const RunWorld run{.batch_size = kBatch};
  auto loader = world.open(world.mosaic(run), run);
  const std::string n = std::to_string(world.dataset->sample_count());
  ASSERT_TRUE(loader->load_state(R"({"epoch":4,"sample_in_epoch":)" + n + "}").ok());
  EXPECT_EQ(loader->epoch(), 5U);
  MosaicState state;
  state.epoch = 5;
  EXPECT_EQ(world.drain(*loader), world.mosaic_ids(run, state, 0));
}

TEST(MosaicSource, AStopWithinTheLastColumnsLosesNothing) {
  World world;
  const RunWorld run{.batch_size = kBatch};
  // 64 canonical nodes of 12 and 13 samples: the last columns have samples behind the 793rd slot.
  const Ids whole = world.drain(*world.open(world.mosaic(run, "py1s"), run));
  ASSERT_GT(whole.size(), world.dataset->sample_count());
  for (std::size_t batches = 150; batches * kBatch < whole.size(); ++batches) {
    auto begun = world.open(world.mosaic(run, "py1s"), run);
    Ids ids = world.drain(*begun, batches);
    auto loader = world.open(world.mosaic(run, "py1s"), run);
    const Status loaded = loader->load_state(begun->state());
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_EQ(loader->epoch(), 0U) << batches;
    const Ids rest = world.drain(*loader);
    ids.insert(ids.end(), rest.begin(), rest.end());
    EXPECT_EQ(ids, whole) << batches;
  }
}

std::vector<LitDataChunk> chunks_of(const Dataset& dataset) {
  std::vector<LitDataChunk> chunks;
  std::uint64_t begin = 0;
  for (const std::uint64_t count : shard_counts(dataset)) {
    chunks.push_back({begin, begin, begin + count, begin + count, 0});
    begin += count;
  }
  return chunks;
}

Ids litdata_ids(const World& world, const RunWorld& run, std::uint32_t rank, std::uint32_t epoch) {
  LitDataSpec spec;
  spec.shuffle = "full";
  auto list = make_litdata_list(spec, chunks_of(*world.dataset),
                                {.world_size = run.world_size,
                                 .nodes = 1,
                                 .workers = run.workers,
                                 .batch_size = run.batch_size},
                                epoch);
  EXPECT_TRUE(list);
  Ids all((*list)->size());
  (*list)->read(0, all);
  return World::of_rank(all, run, rank);
}

/// That an epoch begins in, and that it goes on in.
std::pair<RunWorld, RunWorld> worlds_in_turn() {
  return {{.world_size = 1, .workers = 2, .batch_size = kBatch},
          {.world_size = 2, .workers = 1, .batch_size = kBatch}};
}

TEST(LitDataSource, DeliversLitDatasSequence) {
  World world;
  const RunWorld run{.world_size = 2, .workers = 2, .batch_size = kBatch};
  auto loader = world.open(world.litdata(run), run, 1);
  EXPECT_EQ(world.drain(*loader), litdata_ids(world, run, 1, 1));
  ASSERT_TRUE(loader->start_epoch().ok());
  EXPECT_EQ(world.drain(*loader), litdata_ids(world, run, 1, 2));
}

TEST(LitDataSource, GoesOnWithTheSameSequenceInTheSameWorld) {
  World world;
  const RunWorld run{.world_size = 2, .workers = 3, .batch_size = kBatch};
  const Ids all = litdata_ids(world, run, 0, 1);
  auto begun = world.open(world.litdata(run), run);
  Ids ids = world.drain(*begun, 9);
  auto loader = world.open(world.litdata(run), run);
  ASSERT_TRUE(loader->load_state(begun->state()).ok());
  const Ids rest = world.drain(*loader);
  ids.insert(ids.end(), rest.begin(), rest.end());
  EXPECT_EQ(ids, all);
}

TEST(LitDataSource, DealsOutTheRestInAnotherWorldAsLitDataDoes) {
  World world;
  const auto [first, second] = worlds_in_turn();
  auto begun = world.open(world.litdata(first), first);
  Ids ids = world.drain(*begun, 31);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    auto loader = world.open(world.litdata(second), second, rank);
    const Status loaded = loader->load_state(begun->state());
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    const Ids rest = world.drain(*loader);
    ids.insert(ids.end(), rest.begin(), rest.end());
    if (rank == 0) {
      auto third = world.open(world.litdata(first), first);
      world.drain(*third, 1);
      auto again = world.open(world.litdata(second), second);
      ASSERT_TRUE(again->load_state(begun->state()).ok());
      world.drain(*again, 2);
      EXPECT_EQ(third->load_state(again->state()).code(), Code::kUnsupported);
    }
  }
  std::sort(ids.begin(), ids.end());
  const std::size_t total = ids.size();
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  // LitData rounds the place down to whole rounds of the workers: less than one is repeated.
  EXPECT_LT(total - ids.size(), 2 * kBatch);
  EXPECT_EQ(ids.size(), world.dataset->sample_count());
}

TEST(LitDataSource, GoesOnInTheWorldThatTheEpochWasDealtOutFor) {
  World world;
  const auto [first, second] = worlds_in_turn();
  auto begun = world.open(world.litdata(first), first);
  world.drain(*begun, 30);
  auto dealt = world.open(world.litdata(second), second);
  ASSERT_TRUE(dealt->load_state(begun->state()).ok());
  world.drain(*dealt, 3);
  const std::string state = dealt->state();
  EXPECT_THAT(state, HasSubstr(R"("dealt_out":[150,1,2,5,1])"));
  auto loader = world.open(world.litdata(second), second);
  const Status loaded = loader->load_state(state);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(loader->state(), state);
  EXPECT_EQ(world.drain(*loader), world.drain(*dealt));
  for (const std::string bad :
       {"7", "[]", "[0,1,2,5]", "[151000,1,2,5]", "[150,1,0,5]", "[150,1,2,-5]", "[150,1,2,5,5]",
        "[150,1,2,5,0]", "[150,1,2,5,1,1]", R"(["x",1,2,5,1])"}) {
    std::string other = as_version_1(state);
    const std::string field = R"("dealt_out":)";
    const std::size_t at = other.find(field) + field.size();
    other.replace(at, std::string("[150,1,2,5,1]").size(), bad);
    const Status refused = loader->load_state(other);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("dealt_out")) << bad;
  }
}

TEST(LitDataSource, AnotherNumberOfRanksDeliversEachSampleOnceInLaterEpochsToo) {
  World world;
  struct Case {
    std::uint32_t before, after;
  };
  for (const Case c : {Case{8, 4}, Case{4, 2}, Case{4, 8}, Case{2, 4}}) {
    const std::uint32_t before = c.before, after = c.after;
    const auto run_of = [](std::uint32_t ranks) {
      return RunWorld{.world_size = ranks, .ranks_per_node = ranks, .batch_size = 8 / ranks};
    };
    const auto expect_whole = [&](Ids ids, int epoch) {
      std::sort(ids.begin(), ids.end());
      Ids all(world.dataset->sample_count());
      std::iota(all.begin(), all.end(), std::int64_t{0});
      EXPECT_EQ(ids, all) << before << " to " << after << " ranks, epoch " << epoch;
    };
    Ids second;
    std::string state;
    for (std::uint32_t rank = 0; rank < before; ++rank) {
      auto loader = world.open(world.litdata(run_of(before)), run_of(before), rank);
      world.drain(*loader);
      ASSERT_TRUE(loader->start_epoch().ok());
      const Ids ids = world.drain(*loader, 30);
      second.insert(second.end(), ids.begin(), ids.end());
      state = loader->state();
    }
    Ids third;
    for (std::uint32_t rank = 0; rank < after; ++rank) {
      auto loader = world.open(world.litdata(run_of(after)), run_of(after), rank);
      const Status loaded = loader->load_state(state);
      ASSERT_TRUE(loaded.ok()) << loaded.message();
      const Ids rest = world.drain(*loader);
      second.insert(second.end(), rest.begin(), rest.end());
      ASSERT_TRUE(loader->start_epoch().ok());
      const Ids ids = world.drain(*loader);
      third.insert(third.end(), ids.begin(), ids.end());
    }
    expect_whole(std::move(second), 1);
    expect_whole(std::move(third), 2);
  }
}

TEST(LitDataSource, OtherNodesAreAnotherWorld) {
  World world;
  const RunWorld two{.world_size = 2, .ranks_per_node = 1, .batch_size = kBatch};
  const RunWorld one{.world_size = 2, .ranks_per_node = 2, .batch_size = kBatch};
  Ids ids;
  std::string state;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    auto loader = world.open(world.litdata(two), two, rank);
    world.drain(*loader);
    ASSERT_TRUE(loader->start_epoch().ok());
    const Ids begun = world.drain(*loader, 20);
    ids.insert(ids.end(), begun.begin(), begun.end());
    state = loader->state();
  }
  world.go_on(world.litdata(one), one, state, R"("num_nodes":1)", ids);
  // LitData reads a chunk that two nodes share on both, so some samples come twice.
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  Ids all(world.dataset->sample_count());
  std::iota(all.begin(), all.end(), std::int64_t{0});
  EXPECT_EQ(ids, all);
}

TEST(LitDataSource, GoesOnFromStatesThatDoNotSayTheirNodes) {
  World world;
  const RunWorld run{.world_size = 2, .workers = 2, .batch_size = kBatch};
  auto begun = world.open(world.litdata(run), run);
  world.drain(*begun, 9);
  std::string state = as_version_1(begun->state());
  const std::string field = R"("num_nodes":1,)";
  ASSERT_THAT(state, HasSubstr(field));
  state.erase(state.find(field), field.size());
  const Ids rest = world.drain(*begun);
  auto loader = world.open(world.litdata(run), run);
  ASSERT_TRUE(loader->load_state(state).ok());
  EXPECT_EQ(world.drain(*loader), rest);
  std::string bad = as_version_1(begun->state());
  bad.replace(bad.find(field), field.size(), R"("num_nodes":3,)");
  EXPECT_THAT(std::string(loader->load_state(bad).message()), HasSubstr("num_nodes"));
}

/// A state dict of LitData's StreamingDataset, as its StreamingDataLoader wraps it.
std::string litdata_state(const std::string& fields) {
  return R"({"dataset":{"current_epoch":2,"num_workers":2,"batch_size":5,"shuffle":true,"seed":42,)" +
         fields + R"(},"current_epoch":2,"num_samples_yielded":0,"latest_worker_idx":0})";
}

TEST(LitDataSource, GoesOnFromLitDatasState) {
  World world;
  const RunWorld run{.world_size = 2, .workers = 2, .batch_size = kBatch};
  const std::string state = litdata_state(
      R"("item_shuffle_window":256,"num_samples_yielded":35,"world_size":2,"sample_in_epoch":70)");
  auto loader = world.open(world.litdata(run), run, 1);
  const Status loaded = loader->load_state(state);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(loader->epoch(), 1U);
  LitDataState saved;
  saved.epoch = 2;
  saved.num_samples_yielded = 35;
  saved.sample_in_epoch = 70;
  saved.saved_by =
      saved.initial = {.world_size = 2, .nodes = 1, .workers = 2, .batch_size = kBatch};
  LitDataSpec spec;
  spec.shuffle = "full";
  auto list = resume_litdata_list(spec, chunks_of(*world.dataset), saved.saved_by, saved);
  ASSERT_TRUE(list);
  Ids all((*list)->size());
  (*list)->read(0, all);
  Ids ids = world.drain(*loader, 3);
  // And on from its own state.
  const std::string ours = loader->state();
  EXPECT_LT(ours.size(), 1024U);
  auto again = world.open(world.litdata(run), run, 1);
  ASSERT_TRUE(again->load_state(ours).ok());
  EXPECT_EQ(again->state(), ours);
  const Ids rest = world.drain(*again);
  ids.insert(ids.end(), rest.begin(), rest.end());
  EXPECT_EQ(ids, World::of_rank(all, run, 1));
  ASSERT_TRUE(again->start_epoch().ok());
  EXPECT_EQ(world.drain(*again), litdata_ids(world, run, 1, 3));
  const RunWorld other{.world_size = 1, .workers = 2, .batch_size = kBatch};
  EXPECT_EQ(world.open(world.litdata(other), other)->load_state(ours).code(), Code::kUnsupported);
}

TEST(LitDataSource, RefusesLitDatasStatesOfOtherRuns) {
  World world;
  const RunWorld run{.world_size = 2, .workers = 2, .batch_size = kBatch};
  auto loader = world.open(world.litdata(run), run);
  const std::string start = loader->state();
  const std::pair<const char*, const char*> cases[] = {
      {R"("item_shuffle_window":256,"num_samples_yielded":5,"drop_last":true)", "drop_last=True"},
      {R"("item_shuffle_window":16,"num_samples_yielded":5)", "item_shuffle_window"},
      {R"("num_samples_yielded":5)", "item_shuffle_window is 0"},
      {R"("item_shuffle_window":256,"num_samples_yielded":-5)", "num_samples_yielded"},
      {R"("item_shuffle_window":256,"num_samples_yielded":5,"world_size":"x")", "world_size"},
      {R"("item_shuffle_window":256,"num_samples_yielded":5,"initial_num_nodes":7)",
       "initial_num_nodes"},
      {R"("item_shuffle_window":256,"num_samples_yielded":5,"region_of_interest":[[0,20]])",
       "subsample"},
  };
  for (const auto& [fields, part] : cases) {
    const Status refused = loader->load_state(litdata_state(fields));
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << fields;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(part));
  }
  std::string other = litdata_state(R"("item_shuffle_window":256,"num_samples_yielded":5)");
  EXPECT_TRUE(loader->load_state(other).ok());
  other.replace(other.find("42"), 2, "43");
  EXPECT_THAT(std::string(loader->load_state(other).message()), HasSubstr("with seed=43"));
  ASSERT_TRUE(loader->load_state(start).ok());
  EXPECT_EQ(loader->state(), start);
}

TEST(ForeignState, IsRefusedByTheNameOfItsLoader) {
  World world;
  const RunWorld run{.batch_size = kBatch};
  const std::string mosaic = R"({"epoch":0,"sample_in_epoch":5,"num_canonical_nodes":1})";
  const std::string litdata =
      litdata_state(R"("item_shuffle_window":256,"num_samples_yielded":5,"sample_in_epoch":5)");
  const std::string several =
      R"({"dataset":{"0":{"current_epoch":1}},"current_epoch":1,"latest_worker_idx":0})";
  auto theirs = world.open(world.mosaic(run), run);
  auto lits = world.open(world.litdata(run), run);
  EXPECT_THAT(std::string(lits->load_state(mosaic).message()), HasSubstr("Mosaic's"));
  EXPECT_THAT(std::string(theirs->load_state(litdata).message()), HasSubstr("LitData's"));
  for (Loader* loader : {theirs.get(), lits.get()}) {
    const Status refused = loader->load_state(several);
    EXPECT_EQ(refused.code(), Code::kUnsupported);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("CombinedStreamingDataset"));
  }
}

TEST(LitDataSource, AStateOfTheOwnWorldForgetsWhatWasDealtOut) {
  World world;
  const auto [first, second] = worlds_in_turn();
  auto begun = world.open(world.litdata(first), first);
  world.drain(*begun, 20);
  auto own = world.open(world.litdata(second), second);
  const std::string start = own->state();
  world.drain(*own, 30);
  const std::string middle = own->state();
  const Ids rest = world.drain(*own);
  auto loader = world.open(world.litdata(second), second);
  ASSERT_TRUE(loader->load_state(begun->state()).ok());
  ASSERT_TRUE(loader->load_state(middle).ok());
  EXPECT_EQ(loader->state(), middle);
  EXPECT_EQ(world.drain(*loader), rest);
  ASSERT_TRUE(loader->load_state(begun->state()).ok());
  ASSERT_TRUE(loader->load_state(start).ok());
  EXPECT_EQ(world.drain(*loader), litdata_ids(world, second, 0, 1));
}

TEST(LitDataSource, AnEpochBegunAnewForgetsWhatWasDealtOut) {
  World world;
  const auto [first, second] = worlds_in_turn();
  auto begun = world.open(world.litdata(first), first);
  world.drain(*begun, 20);
  const Ids whole = world.drain(*world.open(world.litdata(second), second));
  for (const int place : {3, 30}) {  // Before and behind where the state stands.
    auto loader = world.open(world.litdata(second), second);
    ASSERT_TRUE(loader->load_state(begun->state()).ok());
    ASSERT_TRUE(loader->seek(0, 0).ok());
    const Ids before = world.drain(*loader, place);
    auto other = world.open(world.litdata(second), second);
    ASSERT_TRUE(other->load_state(loader->state()).ok());
    const Ids rest = world.drain(*other);
    EXPECT_EQ(Ids(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(before.size())),
              before);
    EXPECT_EQ(Ids(whole.end() - static_cast<std::ptrdiff_t>(rest.size()), whole.end()), rest);
    EXPECT_EQ(before.size() + rest.size(), whole.size());
    ASSERT_TRUE(loader->load_state(begun->state()).ok());
    ASSERT_TRUE(loader->seek(0, static_cast<std::uint64_t>(place)).ok());
    EXPECT_EQ(world.drain(*loader), rest);
  }
}

}  // namespace
}  // namespace headrace::feed_test
