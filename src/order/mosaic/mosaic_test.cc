// mosaicml-streaming's own results (../shared/reference/orders), and what is promised beyond them.
#include <gtest/gtest.h>

#include <random>

#include "headrace/mosaic_order.h"
#include "order/mosaic/partition.h"
#include "order/mosaic/sampling.h"
#include "order/mosaic/shuffle.h"
#include "order/reference_cases.h"

namespace headrace::mosaic {
namespace {

using order_test::expect_ids;
using order_test::hex_double;
using order_test::json;

bool is_refused(const json& test) {
  return test["output"].is_object() && test["output"].contains("error");
}
std::uint64_t or_zero(const json& value) {
  return value.is_null() ? 0 : value.get<std::uint64_t>();
}

/// Slots in global order -> Mosaic's array (nodes, ranks, workers, batches, batch size).
std::vector<std::int64_t> in_mosaic_layout(const std::vector<std::int64_t>& slots,
                                           const MosaicWorld& world) {
  std::vector<std::int64_t> out;
  const std::uint64_t g = world.global_batch();
  const std::uint64_t batches = slots.size() / g;
  for (std::uint64_t rank = 0; rank < world.rank_count(); ++rank) {
    for (std::uint64_t w = 0; w < world.workers; ++w) {
      for (std::uint64_t k = w; k < batches; k += world.workers) {
        for (std::uint64_t j = 0; j < world.batch_size; ++j)
          out.push_back(slots[k * g + rank * world.batch_size + j]);
      }
    }
  }
  return out;
}

MosaicWorld world_of(const json& test) {
  return {test["physical_nodes"], test["ranks_per_node"], test["workers"], test["batch"]};
}

TEST(MosaicPartition, EqualsEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "mosaic_partition.json");
  for (const json& test : cases) {
    SCOPED_TRACE(test.dump().substr(0, 300));
    const MosaicWorld world = world_of(test);
    PartitionSpec spec;
    spec.samples = test["samples"];
    spec.canonical_nodes = test["canonical_nodes"];
    spec.physical_nodes = world.physical_nodes;
    spec.ranks_per_node = world.ranks_per_node;
    spec.workers = world.workers;
    spec.batch_size = world.batch_size;
    spec.drop_first = test["drop_first"];
    auto partition = test["algo"] == "orig"
                         ? Partition::create(spec)
                         : Partition::create_relaxed(spec, or_zero(test["initial_nodes"]));
    ASSERT_EQ(partition.has_value(), !is_refused(test))
        << (partition ? "" : partition.error().message());
    if (!partition) continue;
    std::vector<std::int64_t> slots;
    for (std::uint64_t t = 0; t < partition->slot_count(); ++t) slots.push_back(partition->at(t));
    expect_ids(test["output"], in_mosaic_layout(slots, world));
  }
}

template <class T>
void expect_shuffle(const json& test, std::uint32_t threads) {
  SCOPED_TRACE(test.dump().substr(0, 200));
  ShuffleSpec spec;
  auto algo = parse_shuffle_algo(test["algo"]);
  ASSERT_TRUE(algo.has_value());
  spec.algo = *algo;
  spec.canonical_nodes = test["canonical_nodes"];
  spec.seed = test["seed"];
  spec.epoch = test["epoch"];
  spec.block_size = test["block"];
  const std::vector<std::uint64_t> units = test["sizes"];
  std::uint64_t samples = 0;
  for (const std::uint64_t unit : units) samples += unit;
  std::vector<T> out(samples);
  const Status status = shuffle_units<T>(units, spec, out, threads);
  ASSERT_EQ(status.ok(), !is_refused(test)) << status.message();
  if (status.ok()) expect_ids(test["output"], std::vector<std::int64_t>(out.begin(), out.end()));
}

TEST(MosaicShuffle, EqualsEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "mosaic_shuffle.json");
  for (const json& test : cases) {
    expect_shuffle<std::uint32_t>(test, 1);
    expect_shuffle<std::uint32_t>(test, 3);
    expect_shuffle<std::uint64_t>(test, 2);
  }
}

TEST(MosaicSampling, EqualsEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "mosaic_sampling.json");
  for (const json& test : cases) {
    SCOPED_TRACE(test.dump());
    const std::vector<std::uint64_t> sizes = test["sizes"];
    const std::uint64_t seed = test["seed"].get<std::uint64_t>() +
                               (test["use_epoch"] ? test["epoch"].get<std::uint64_t>() : 0);
    const auto counts = sample_mosaic_shards(sizes, test["choose"], test["granularity"], seed);
    expect_ids(test["output"], std::vector<std::int64_t>(counts.begin(), counts.end()));
  }
}

std::vector<MosaicStream> streams_of(const json& test) {
  std::vector<MosaicStream> streams;
  for (std::size_t s = 0; s < test["streams"].size(); ++s) {
    MosaicStream stream;
    stream.shard_samples = test["streams"][s].get<std::vector<std::uint64_t>>();
    const json& weight = test["weights"][s];
    if (weight.contains("proportion")) stream.proportion = weight["proportion"].get<double>();
    if (weight.contains("repeat")) stream.repeat = weight["repeat"].get<double>();
    if (weight.contains("choose")) stream.choose = weight["choose"].get<std::uint64_t>();
    streams.push_back(std::move(stream));
  }
  return streams;
}

TEST(MosaicResample, EqualsEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "mosaic_resample.json");
  for (const json& test : cases) {
    SCOPED_TRACE(test.dump().substr(0, 200));
    const auto streams = streams_of(test);
    const std::uint64_t seed = test["seed"];
    auto weights = apply_mosaic_weights(streams, or_zero(test["epoch_size"]), seed);
    ASSERT_TRUE(weights.has_value()) << weights.error().message();
    EXPECT_EQ(weights->choose, test["choose"].get<std::vector<std::uint64_t>>());
    for (std::size_t s = 0; s < streams.size(); ++s)
      EXPECT_EQ(weights->proportion[s], hex_double(test["proportion"][s]));
    const std::uint64_t epoch = test["epoch"];
    const bool is_balanced = test["sampling"] == "balanced";
    SamplingSpec sampling;
    sampling.granularity = test["granularity"];
    sampling.pick_seed = seed + (is_balanced && test["shuffle"].get<bool>() ? epoch : 0);
    sampling.choice_seed = seed + (is_balanced ? epoch : 0);
    std::vector<std::uint64_t> first;
    std::uint64_t next = 0;
    for (const MosaicStream& stream : streams) {
      first.push_back(next);
      for (const std::uint64_t shard : stream.shard_samples) next += shard;
    }
    const EpochSamples samples = resample_streams(streams, weights->choose, first, sampling);
    const auto& units = samples.units();
    expect_ids(test["units"], std::vector<std::int64_t>(units.begin(), units.end()));
    std::vector<std::uint64_t> ids(samples.size());
    samples.write(std::span(ids));
    expect_ids(test["ids"], std::vector<std::int64_t>(ids.begin(), ids.end()));
  }
}

TEST(MosaicReplication, EqualsEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "mosaic_replication.json");
  for (const json& test : cases) {
    SCOPED_TRACE(test.dump());
    const MosaicWorld world{test["physical_nodes"], test["ranks_per_node"], test["workers"], 1};
    const std::uint32_t replication = test["replication"];
    auto out = replicate_world(world, replication);
    ASSERT_EQ(out.has_value(), !is_refused(test));
    if (!out) continue;
    EXPECT_EQ(out->physical_nodes, test["output"]["num_nodes"]);
    EXPECT_EQ(out->ranks_per_node, test["output"]["ranks_per_node"]);
    const std::uint32_t rank = test["worker"].get<std::uint32_t>() / world.workers / replication;
    EXPECT_EQ(rank, test["output"]["rank"]);
  }
}

MosaicSpec shuffle_of(const json& test) {
  MosaicSpec spec;
  spec.shuffle = test["shuffle"];
  spec.shuffle_algo = test["algo"];
  spec.shuffle_seed = test["seed"];
  return spec;
}

std::vector<std::int64_t> all_slots(const SampleList& list) {
  std::vector<std::int64_t> slots(list.size());
  list.read(0, slots);
  return slots;
}

TEST(MosaicEpoch, EqualsEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "mosaic_work.json");
  std::size_t served = 0;
  for (const json& test : cases) {
    SCOPED_TRACE(test.dump().substr(0, 900));
    MosaicSpec spec = shuffle_of(test);
    spec.shuffle_block_size = test["block"];
    spec.sampling_method = test["sampling"];
    spec.sampling_granularity = test["granularity"];
    spec.partition_algo = test["partition"];
    spec.batching_method = test["method"];
    spec.epoch_size = or_zero(test["epoch_size"]);
    MosaicState state;
    state.epoch = test["epoch"];
    state.sample_in_epoch = test["sample_in_epoch"];
    state.num_canonical_nodes = test["canonical_nodes"];
    state.initial_physical_nodes = static_cast<std::uint32_t>(or_zero(test["initial_nodes"]));
    const MosaicWorld world = world_of(test);
    auto epoch = MosaicEpoch::create(spec, streams_of(test), world, state);
    ASSERT_EQ(epoch.has_value(), !is_refused(test)) << (epoch ? "" : epoch.error().message());
    if (!epoch) continue;
    auto list = make_mosaic_list(**epoch, 2);
    ASSERT_TRUE(list.has_value()) << list.error().message();
    ASSERT_EQ((*list)->size(), (*epoch)->slot_count());
    expect_ids(test["output"], in_mosaic_layout(all_slots(**list), world));
    ++served;
  }
  EXPECT_GT(served, 100U);
}

TEST(MosaicEpoch, ServesWhatARealRunServes) {
  HEADRACE_REFERENCE_CASES(cases, "mosaic_served.json");
  for (const json& test : cases) {
    SCOPED_TRACE(test.dump().substr(0, 200));
    MosaicSpec spec = shuffle_of(test);
    spec.shuffle_block_size = or_zero(test["block"]);
    spec.num_canonical_nodes = static_cast<std::uint32_t>(or_zero(test["canonical_nodes"]));
    MosaicStream stream;
    stream.shard_samples = test["sizes"].get<std::vector<std::uint64_t>>();
    const MosaicWorld world{1, 1, 1, test["batch"]};
    const auto serve = [&](const MosaicState& state) {
      auto epoch = MosaicEpoch::create(spec, std::span(&stream, 1), world, state);
      EXPECT_TRUE(epoch.has_value());
      auto list = make_mosaic_list(**epoch, 1);
      EXPECT_TRUE(list.has_value());
      std::vector<std::int64_t> ids = all_slots(**list);
      std::erase(ids, -1);
      return ids;
    };
    for (std::size_t e = 0; e < test["epochs"].size(); ++e) {
      MosaicState state;
      state.epoch = e;
      expect_ids(test["epochs"][e], serve(state));
    }
    const json& saved = test["state"];
    MosaicState state;
    state.epoch = saved["epoch"];
    state.sample_in_epoch = saved["sample_in_epoch"];
    state.num_canonical_nodes = saved["num_canonical_nodes"];
    state.shuffle_seed = saved["shuffle_seed"].get<std::uint64_t>();
    state.initial_physical_nodes =
        static_cast<std::uint32_t>(or_zero(saved["initial_physical_nodes"]));
    expect_ids(test["resumed"], serve(state));
  }
}

/// py1e over nodes wide enough for several stretches and batches of targets.
TEST(MosaicShuffle, ThreadsChangeNothing) {
  std::mt19937_64 random(5);
  for (const std::uint64_t nodes : {1U, 3U}) {
    for (const std::uint64_t block : {30'000ULL, 200'000ULL}) {
      std::vector<std::uint64_t> units;
      std::uint64_t samples = 0;
      while (samples < 3'000'000) {
        units.push_back(random() % 50 == 0 ? 60'000 : 1 + random() % 9'000);
        samples += units.back();
      }
      ShuffleSpec spec;
      spec.canonical_nodes = nodes;
      spec.seed = random() % 1000;
      spec.block_size = block;
      std::vector<std::uint32_t> one(samples);
      std::vector<std::uint32_t> many(samples);
      ASSERT_TRUE(shuffle_units<std::uint32_t>(units, spec, one, 1).ok());
      ASSERT_TRUE(shuffle_units<std::uint32_t>(units, spec, many, 4).ok());
      ASSERT_EQ(one, many);
      std::vector<bool> seen(samples);
      for (const std::uint32_t id : one) seen[id] = true;
      ASSERT_EQ(std::count(seen.begin(), seen.end(), false), 0);
    }
  }
}

Status refusal(const MosaicSpec& spec, std::vector<MosaicStream> streams,
               const MosaicWorld& world = {}, const MosaicState& state = {}) {
  auto epoch = MosaicEpoch::create(spec, streams, world, state);
  return epoch ? Status() : std::move(epoch).error();
}

MosaicStream stream_of(std::vector<std::uint64_t> shards) {
  MosaicStream stream;
  stream.shard_samples = std::move(shards);
  return stream;
}

TEST(MosaicEpoch, RefusesWhatMosaicRefuses) {
  MosaicSpec spec;
  spec.shuffle = true;
  const auto refuses = [&](const MosaicSpec& s, const MosaicWorld& w = {},
                           const MosaicState& st = {}) {
    return refusal(s, {stream_of({30})}, w, st).code() == Code::kInvalidArgument;
  };
  EXPECT_FALSE(refuses(spec));
  const auto with = [&](auto change) {
    MosaicSpec s = spec;
    change(s);
    return s;
  };
  EXPECT_TRUE(refuses(with([](MosaicSpec& s) { s.shuffle_algo = "py1b"; })));
  EXPECT_TRUE(refuses(with([](MosaicSpec& s) { s.sampling_method = "odd"; })));
  EXPECT_TRUE(refuses(with([](MosaicSpec& s) { s.partition_algo = "odd"; })));
  EXPECT_TRUE(refuses(with([](MosaicSpec& s) { s.batching_method = "odd"; })));
  EXPECT_TRUE(refuses(with([](MosaicSpec& s) { s.sampling_granularity = 0; })));
  EXPECT_TRUE(refuses(with([](MosaicSpec& s) { s.shuffle_seed = ~std::uint64_t{0}; })));
  EXPECT_TRUE(refuses(with([](MosaicSpec& s) {
    s.shuffle_algo = "py1br";
    s.shuffle_block_size = 1;
  })));
  EXPECT_TRUE(refuses(with([](MosaicSpec& s) { s.num_canonical_nodes = 31; })));
  EXPECT_TRUE(refuses(spec, {0, 1, 1, 1}));
  EXPECT_TRUE(refuses(spec, {1, 1, 1, 0}));
  EXPECT_TRUE(refuses(with([](MosaicSpec& s) { s.num_canonical_nodes = 3; }), {2, 1, 1, 1}));
  MosaicState far;
  far.sample_in_epoch = 1000;
  EXPECT_TRUE(refuses(spec, {}, far));
}

TEST(MosaicEpoch, RefusesWeightsThatMakeNoSense) {
  MosaicSpec spec;
  MosaicStream plain = stream_of({5});
  MosaicStream repeated = plain;
  repeated.repeat = 2;
  MosaicStream relative = plain;
  relative.proportion = 1;
  MosaicStream both = repeated;
  both.choose = 3;
  MosaicStream negative = plain;
  negative.repeat = -1;
  MosaicStream nothing = plain;
  nothing.choose = 0;
  for (const auto& streams :
       std::vector<std::vector<MosaicStream>>{{},
                                              {stream_of({})},
                                              {stream_of({0})},
                                              {relative, plain},
                                              {plain, relative},
                                              {both},
                                              {negative},
                                              {nothing},
                                              {stream_of({std::uint64_t{1} << 33})}}) {
    EXPECT_EQ(refusal(spec, streams).code(), Code::kInvalidArgument);
  }
  spec.epoch_size = 7;
  EXPECT_EQ(refusal(spec, {repeated}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(refusal(spec, {plain}).ok());
  spec.epoch_size = std::uint64_t{1} << 50;
  EXPECT_EQ(refusal(spec, {plain}).code(), Code::kInvalidArgument);
}

TEST(MosaicEpoch, KeysOfTablesTellInputsApart) {
  MosaicSpec spec;
  spec.shuffle = true;
  const auto key = [](const MosaicSpec& s, std::vector<std::uint64_t> shards, std::uint64_t epoch,
                      std::uint64_t sample, std::uint32_t batch) {
    const MosaicStream stream = stream_of(std::move(shards));
    MosaicState state;
    state.epoch = epoch;
    state.sample_in_epoch = sample;
    auto made = MosaicEpoch::create(s, std::span(&stream, 1), {1, 1, 1, batch}, state);
    EXPECT_TRUE(made.has_value());
    return (*made)->table_key();
  };
  const std::string base = key(spec, {10, 20}, 0, 0, 1);
  EXPECT_EQ(base.size(), 32U);
  EXPECT_EQ(base, key(spec, {10, 20}, 0, 8, 4));  // neither position nor world
  EXPECT_NE(base, key(spec, {20, 10}, 0, 0, 1));
  EXPECT_NE(base, key(spec, {10, 20}, 1, 0, 1));
  MosaicSpec other = spec;
  other.shuffle_seed = 1;
  EXPECT_NE(base, key(other, {10, 20}, 0, 0, 1));
  other = spec;
  other.shuffle_algo = "py1s";
  EXPECT_NE(base, key(other, {10, 20}, 0, 0, 1));
}

TEST(MosaicEpoch, NeedsNoTableWithoutShuffle) {
  const std::vector<MosaicStream> streams{stream_of({5, 6}), stream_of({7})};
  auto epoch = MosaicEpoch::create({}, streams, {1, 2, 1, 3}, {});
  ASSERT_TRUE(epoch.has_value());
  EXPECT_EQ((*epoch)->table_bytes(), 0U);
  auto list = make_mosaic_list(**epoch);
  ASSERT_TRUE(list.has_value());
  std::vector<std::int64_t> ids = all_slots(**list);
  std::sort(ids.begin(), ids.end());
  for (std::int64_t i = 0; i < 18; ++i) EXPECT_EQ(ids[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace headrace::mosaic
