// litdata's own results (../shared/reference/orders).
#include <gtest/gtest.h>

#include "headrace/litdata_order.h"
#include "order/litdata/association.h"
#include "order/litdata/elastic.h"
#include "order/reference_cases.h"

namespace headrace::litdata {
namespace {

using order_test::expect_ids;
using order_test::hex_double;
using order_test::json;

std::vector<LitDataChunk> chunks_of(const json& test) {
  std::vector<LitDataChunk> chunks;
  for (const json& interval : test["intervals"]) {
    chunks.push_back({interval[0], interval[1], interval[2], interval[3],
                      test.contains("chunk_bytes")
                          ? test["chunk_bytes"][chunks.size()].get<std::uint64_t>()
                          : 0});
  }
  return chunks;
}

TEST(LitDataAssociation, EqualsEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "litdata_association.json");
  for (const json& test : cases) {
    SCOPED_TRACE(test.dump().substr(0, 700));
    const auto chunks = chunks_of(test);
    LitDataSpec spec;
    spec.shuffle = test["shuffle"];
    spec.seed = test["seed"];
    spec.drop_last = test["drop_last"];
    spec.max_cache_size = test["max_cache_size"];
    if (test.contains("window")) spec.window = test["window"];
    const LitDataWorld world{test["world_size"], test["num_nodes"], test["workers"], test["batch"]};
    ASSERT_FALSE(test["output"].contains("error"));
    const Visits visits = associate(spec, chunks, world, test["epoch"]);
    const json& output = test["output"];
    ASSERT_EQ(visits.size(), output["chunks"].size());
    for (std::size_t w = 0; w < visits.size(); ++w) {
      ASSERT_EQ(visits[w].size(), output["chunks"][w].size()) << "worker " << w;
      for (std::size_t i = 0; i < visits[w].size(); ++i) {
        EXPECT_EQ(visits[w][i].chunk, output["chunks"][w][i]);
        EXPECT_EQ(visits[w][i].begin, output["intervals"][w][i][1]);
        EXPECT_EQ(visits[w][i].end, output["intervals"][w][i][2]);
      }
    }
  }
}

TEST(LitDataItems, EqualsEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "litdata_items.json");
  for (const json& test : cases) {
    SCOPED_TRACE(test.dump().substr(0, 200));
    LitDataSpec spec;
    spec.shuffle = test["shuffle"];
    spec.seed = test["seed"];
    spec.item_shuffle_window.reset();
    if (test.contains("item_window"))
      spec.item_shuffle_window = test["item_window"].get<std::uint32_t>();
    if (test.contains("window")) spec.window = test["window"];
    const std::uint64_t first = test["first"];
    const Visit visit{test["chunk_index"], first, first + test["count"].get<std::uint64_t>()};
    std::vector<std::uint64_t> items;
    append_items(spec, visit, test["num_chunks"], test["epoch"], items);
    expect_ids(test["output"], std::vector<std::int64_t>(items.begin(), items.end()));
  }
}

TEST(LitDataCombined, EqualsEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "litdata_combined.json");
  for (const json& test : cases) {
    SCOPED_TRACE(test.dump().substr(0, 300));
    LitDataCombinedSpec spec;
    for (const json& weight : test["weights"]) spec.weights.push_back(hex_double(weight));
    spec.seed = test["seed"];
    spec.iterate_over_all = test["iterate_over_all"];
    spec.is_per_stream = test["batching"] == "per_stream";
    spec.batch_size = test["batch"];
    std::uint64_t replayed = 0;
    if (!test["already_yielded"].is_null()) {
      for (const json& count : test["already_yielded"]) replayed += count.get<std::uint64_t>();
    }
    const std::vector<std::uint64_t> lengths = test["lengths"];
    auto sets = combine_litdata(spec, lengths, replayed);
    ASSERT_TRUE(sets.has_value()) << sets.error().message();
    expect_ids(test["output"], std::vector<std::int64_t>(sets->begin(), sets->end()));
  }
}

/// (chunk, item) pairs of a list as the reference writes them.
std::vector<ChunkItem> pairs(const std::vector<std::int64_t>& flat) {
  std::vector<ChunkItem> out;
  for (std::size_t i = 0; i < flat.size(); i += 2) {
    out.push_back({static_cast<std::uint64_t>(flat[i + 1]), static_cast<std::uint32_t>(flat[i])});
  }
  return out;
}

TEST(LitDataElastic, EqualsEveryReferenceCase) {
  HEADRACE_REFERENCE_CASES(cases, "litdata_elastic.json");
  std::size_t compared = 0;
  for (const json& test : cases) {
    SCOPED_TRACE(test.dump().substr(0, 300));
    // The reference's stream is whole only where it is short; the plans hold all of it when nothing
    // is dropped.
    if (!test["stream"].contains("values")) continue;
    const auto stream = pairs(test["stream"]["values"]);
    RestripeSpec spec;
    spec.world = {test["world_size"], 1, test["workers"], test["batch"]};
    spec.drop_first = test["drop_first"];
    spec.drop_last = test["drop_last"];
    spec.is_by_chunk = test["granularity"] == "chunk";
    const WorkerItems plans = restripe(stream, spec);
    ASSERT_EQ(plans.size(), test["plans"].size());
    for (std::size_t w = 0; w < plans.size(); ++w) {
      std::size_t i = 0;
      for (const json& visit : test["plans"][w]) {
        for (const json& item : visit[1]) {
          ASSERT_LT(i, plans[w].size());
          EXPECT_EQ(plans[w][i].chunk, visit[0]);
          EXPECT_EQ(plans[w][i].item, item);
          ++i;
        }
      }
      EXPECT_EQ(i, plans[w].size());
    }
    if (test.contains("lockstep")) {
      std::vector<std::int64_t> flat;
      for (const ChunkItem& item : lockstep_stream(plans, spec.world)) {
        flat.push_back(item.chunk);
        flat.push_back(static_cast<std::int64_t>(item.item));
      }
      expect_ids(test["lockstep"], flat);
    }
    ++compared;
  }
  EXPECT_GT(compared, 3U);
}

std::vector<LitDataChunk> even_chunks(std::size_t count, std::uint64_t size) {
  std::vector<LitDataChunk> chunks;
  for (std::size_t i = 0; i < count; ++i) {
    chunks.push_back({i * size, i * size, (i + 1) * size, (i + 1) * size, 100});
  }
  return chunks;
}

LitDataSpec full_shuffle() {
  LitDataSpec spec;
  spec.shuffle = "full";
  return spec;
}

std::vector<std::int64_t> slots_of(const Result<std::shared_ptr<const SampleList>>& list) {
  EXPECT_TRUE(list.has_value());
  std::vector<std::int64_t> out(list ? (*list)->size() : 0);
  if (list) (*list)->read(0, out);
  return out;
}

TEST(LitDataList, DealsBatchesRoundRobinOverWorkers) {
  LitDataSpec spec;
  // 12 items, one rank, two workers, batches of 2: each worker has 6 in sequence.
  const auto list = make_litdata_list(spec, even_chunks(3, 4), {1, 1, 2, 2}, 1);
  EXPECT_EQ(slots_of(list), (std::vector<std::int64_t>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
}

TEST(LitDataList, ResumesWhereEachWorkerWas) {
  const LitDataSpec spec = full_shuffle();
  const auto chunks = even_chunks(5, 7);
  const LitDataWorld world{1, 1, 2, 3};
  const auto all = slots_of(make_litdata_list(spec, chunks, world, 2));
  for (const std::uint64_t batches : {0U, 1U, 2U, 3U, 5U}) {
    LitDataState state;
    state.epoch = 2;
    state.num_samples_yielded = 3 * batches;
    state.sample_in_epoch = state.num_samples_yielded;
    state.saved_by = world;
    state.initial = world;
    EXPECT_EQ(slots_of(resume_litdata_list(spec, chunks, world, state)),
              (std::vector<std::int64_t>(all.begin() + static_cast<std::ptrdiff_t>(3 * batches),
                                         all.end())));
  }
}

TEST(LitDataList, ResumesOnAnotherWorldWithoutLossOrRepeat) {
  const LitDataSpec spec = full_shuffle();
  const auto chunks = even_chunks(6, 8);
  const LitDataWorld first{2, 1, 1, 2};
  std::vector<int> seen(48);
  std::vector<std::int64_t> begun = slots_of(make_litdata_list(spec, chunks, first, 1));
  begun.resize(16);
  LitDataState state;
  state.num_samples_yielded = 8;
  state.sample_in_epoch = 16;
  state.saved_by = first;
  state.initial = first;
  const auto rest = slots_of(resume_litdata_list(spec, chunks, {4, 1, 2, 2}, state));
  for (const auto& part : {begun, rest}) {
    for (const std::int64_t id : part) {
      if (id >= 0) ++seen[static_cast<std::size_t>(id)];
    }
  }
  EXPECT_EQ(seen, std::vector<int>(48, 1));
}

TEST(LitDataList, RefusesWhatMakesNoSense) {
  const auto chunks = even_chunks(2, 4);
  LitDataSpec odd;
  odd.shuffle = "odd";
  EXPECT_EQ(make_litdata_list(odd, chunks, {}, 1).error().code(), Code::kInvalidArgument);
  for (const LitDataWorld& world :
       {LitDataWorld{0, 1, 1, 1}, LitDataWorld{1, 0, 1, 1}, LitDataWorld{1, 1, 0, 1},
        LitDataWorld{1, 1, 1, 0}, LitDataWorld{3, 2, 1, 1}, LitDataWorld{1 << 20, 1, 1 << 20, 1}}) {
    EXPECT_EQ(make_litdata_list({}, chunks, world, 1).error().code(), Code::kInvalidArgument);
  }
  const LitDataWorld broken{3, 2, 1, 1};
  for (const bool is_initial : {true, false}) {
    LitDataState state;
    (is_initial ? state.initial : state.saved_by) = broken;
    EXPECT_EQ(resume_litdata_list({}, chunks, {}, state).error().code(), Code::kInvalidArgument);
  }
  auto gap = chunks;
  gap[1].begin = 5;
  EXPECT_EQ(make_litdata_list({}, gap, {}, 1).error().code(), Code::kInvalidArgument);
  LitDataCombinedSpec combined;
  combined.weights = {0.5};
  const std::vector<std::uint64_t> lengths{1, 2};
  EXPECT_EQ(combine_litdata(combined, lengths, 0).error().code(), Code::kInvalidArgument);
  combined.weights = {1.0, 0.0};
  EXPECT_EQ(combine_litdata(combined, lengths, 0).error().code(), Code::kInvalidArgument);
  combined.weights = {1.0, -1.0};
  EXPECT_EQ(combine_litdata(combined, lengths, 0).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::litdata
