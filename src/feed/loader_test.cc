#include "headrace/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "feed/fake_dataset.h"
#include "feed/fake_decode.h"
#include "feed/loader_test_util.h"
#include "store/fault/fault_store.h"

namespace headrace::feed_test {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// A dataset, its store, and a pool.
struct World {
  explicit World(FakeSpec spec = {}, std::uint64_t limit_bytes = 64 * kMiB)
      : dataset(std::make_shared<FakeDataset>(std::move(spec))) {
    pool = *SlabPool::create({.limit_bytes = limit_bytes});
    store = dataset->make_store(*pool);
  }
  Result<std::unique_ptr<Loader>> try_open(const LoaderOptions& options,
                                           const FaultOptions* faults = nullptr) {
    std::unique_ptr<Store> handle = *store->new_handle();
    if (faults != nullptr) handle = FaultStore::create(std::move(handle), *faults);
    return Loader::create(dataset, std::move(handle), pool, options);
  }
  std::unique_ptr<Loader> open(const LoaderOptions& options, const FaultOptions* faults = nullptr) {
    auto loader = try_open(options, faults);
    EXPECT_TRUE(loader) << loader.error().message();
    return loader ? *std::move(loader) : nullptr;
  }
  std::shared_ptr<FakeDataset> dataset;
  std::shared_ptr<SlabPool> pool;
  std::unique_ptr<Store> store;
};

std::unique_ptr<Batch> must_next(Loader& loader) {
  auto batch = loader.next(soon());
  EXPECT_TRUE(batch) << batch.error().message();
  return batch ? *std::move(batch) : nullptr;
}

/// Ids of the samples (no repeats) of up to `most` batches, checking their bytes.
std::vector<std::vector<std::int64_t>> drain(World& world, Loader& loader,
                                             std::size_t most = SIZE_MAX) {
  std::vector<std::vector<std::int64_t>> batches;
  while (batches.size() < most) {
    const auto batch = must_next(loader);
    if (!batch) break;
    expect_right_bytes(*world.dataset, *batch);
    std::vector<std::int64_t> ids;
    for (std::uint32_t i = 0; i < batch->count(); ++i) {
      if (batch->mask()[i] != 0) ids.push_back(batch->ids()[i]);
    }
    batches.push_back(std::move(ids));
  }
  return batches;
}

std::vector<std::int64_t> sorted(const std::vector<std::vector<std::int64_t>>& batches) {
  std::vector<std::int64_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::int64_t> all_ids(const World& world) {
  std::vector<std::int64_t> ids(world.dataset->sample_count());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  return ids;
}

FakeSpec big_spec(std::uint32_t blocks, std::uint32_t samples) {
  FakeSpec spec;
  spec.block_samples.assign(blocks, samples);
  for (std::uint32_t i = 0; i < blocks; i += 3) spec.block_samples[i] = samples / 2 + 1;
  return spec;
}

TEST(Loader, DeliversEverySampleOfAnEpochOnceWithTheRightBytes) {
  World world;
  auto loader = world.open({.batch_size = 4});
  EXPECT_EQ(*loader->batches_left(), 17U);
  const auto batches = drain(world, *loader);
  EXPECT_EQ(batches.size(), 17U);
  EXPECT_EQ(sorted(batches), all_ids(world));
}

TEST(Loader, GoesOnWithTheNextEpochInAnotherOrder) {
  World world;
  auto loader = world.open({.batch_size = 4, .seed = 5});
  const auto first = drain(world, *loader);
  EXPECT_EQ(must_next(*loader), nullptr);
  EXPECT_EQ(loader->epoch(), 1U);
  ASSERT_TRUE(loader->start_epoch().ok());
  const auto second = drain(world, *loader);
  EXPECT_EQ(sorted(second), all_ids(world));
  EXPECT_NE(first, second);
}

TEST(Loader, SequentialFollowsTheDataset) {
  World world;
  auto loader = world.open({.batch_size = 5, .order = "sequential"});
  std::vector<std::int64_t> ids;
  for (const auto& batch : drain(world, *loader)) ids.insert(ids.end(), batch.begin(), batch.end());
  EXPECT_EQ(ids, all_ids(world));
}

TEST(Loader, SampleIdsSayWhatNextDelivers) {
  World world;
  for (const std::string order : {"headrace", "sequential"}) {
    auto loader =
        world.open({.batch_size = 3, .rank = 1, .world_size = 2, .order = order, .seed = 9});
    const std::uint64_t count = *loader->batches_left();
    for (std::uint64_t k = 0; k < count; ++k) {
      const auto batch = must_next(*loader);
      ASSERT_NE(batch, nullptr);
      const auto ids = loader->sample_ids(0, k);
      ASSERT_TRUE(ids);
      EXPECT_EQ(*ids, std::vector<std::int64_t>(batch->ids().begin(), batch->ids().end()));
    }
    EXPECT_EQ(loader->sample_ids(0, count).error().code(), Code::kNotFound);
  }
}

TEST(Loader, ReadsEveryKindOfBlock) {
  for (int kind = 0; kind < 4; ++kind) {
    FakeSpec spec = big_spec(20, 40);
    spec.is_compressed = kind == 1;
    spec.is_object_per_sample = kind == 2;
    spec.only_fixed = kind == 3;
    World world(spec);
    auto loader = world.open({.batch_size = 8, .seed = 3, .worker_count = 2});
    EXPECT_EQ(sorted(drain(world, *loader)), all_ids(world)) << kind;
  }
}

TEST(Loader, DeliversOnlyTheColumnsAskedFor) {
  World world;
  auto loader = world.open({.batch_size = 4, .columns = {"text"}});
  const auto batch = must_next(*loader);
  ASSERT_EQ(batch->columns().size(), 1U);
  EXPECT_EQ(batch->columns()[0].column->name, "text");
  expect_right_bytes(*world.dataset, *batch);
}

TEST(Loader, EndsEpochsAsAsked) {
  World world;  // 68 samples
  const auto counts = [&](EpochEnd end, std::uint32_t rank) {
    auto loader =
        world.open({.batch_size = 8, .rank = rank, .world_size = 4, .seed = 1, .epoch_end = end});
    std::vector<std::size_t> sizes;
    for (const auto& batch : drain(world, *loader)) sizes.push_back(batch.size());
    return sizes;
  };
  // 68 = 2 * 32 + 4: the last batch has 4 samples for 4 ranks.
  EXPECT_EQ(counts(EpochEnd::kDrop, 0), (std::vector<std::size_t>{8, 8}));
  EXPECT_EQ(counts(EpochEnd::kPad, 0), (std::vector<std::size_t>{8, 8, 4}));
  EXPECT_EQ(counts(EpochEnd::kPad, 3), (std::vector<std::size_t>{8, 8, 0}));
  EXPECT_EQ(counts(EpochEnd::kUneven, 2), (std::vector<std::size_t>{8, 8, 1}));
}

TEST(Loader, UnevenEndsMayLeaveARankWithoutALastBatch) {
  FakeSpec spec;
  spec.block_samples = {9, 9};
  World world(spec);
  std::size_t samples = 0;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    auto loader = world.open(
        {.batch_size = 4, .rank = rank, .world_size = 4, .epoch_end = EpochEnd::kUneven});
    const std::uint64_t left = *loader->batches_left();
    const auto batches = drain(world, *loader);
    EXPECT_EQ(batches.size(), left);
    samples += sorted(batches).size();
  }
  EXPECT_EQ(samples, 18U);
}

// --- state ---

TEST(LoaderState, ResumesExactlyWhereNextStood) {
  World world(big_spec(12, 30));
  const LoaderOptions options{.batch_size = 7, .seed = 4};
  auto whole = world.open(options);
  const auto expected = drain(world, *whole);
  for (std::size_t stop = 0; stop <= expected.size(); stop += 3) {
    auto first = world.open(options);
    auto batches = drain(world, *first, stop);
    const std::string state = first->state();
    EXPECT_LT(state.size(), 1024U);
    auto second = world.open(options);
    ASSERT_TRUE(second->load_state(state).ok());
    EXPECT_EQ(second->state(), state);
    for (auto& batch : drain(world, *second)) batches.push_back(std::move(batch));
    EXPECT_EQ(batches, expected) << stop;
  }
}

TEST(LoaderState, AtTheEndOfAnEpochContinuesWithTheNext) {
  World world;
  auto loader = world.open({.batch_size = 4});
  drain(world, *loader, *loader->batches_left());
  const std::string state = loader->state();
  EXPECT_THAT(state, HasSubstr(R"("epoch":1,"t":0)"));
  auto other = world.open({.batch_size = 4});
  ASSERT_TRUE(other->load_state(state).ok());
  EXPECT_EQ(other->epoch(), 1U);
  EXPECT_EQ(sorted(drain(world, *other)), all_ids(world));
}

TEST(LoaderState, AnEndThatNobodyWasToldOfCanBeHandedOn) {
  World world;
  auto loader = world.open({.batch_size = 4});
  EXPECT_FALSE(loader->has_ended());
  drain(world, *loader, *loader->batches_left());
  EXPECT_TRUE(loader->has_ended());
  auto other = world.open({.batch_size = 4});
  ASSERT_TRUE(other->load_state(loader->state()).ok());
  EXPECT_FALSE(other->has_ended());
  other->end_epoch();
  EXPECT_TRUE(other->has_ended());
  EXPECT_EQ(other->epoch(), 1U);
  EXPECT_EQ(must_next(*other), nullptr);
  EXPECT_EQ(must_next(*other), nullptr);
  ASSERT_TRUE(other->start_epoch().ok());
  EXPECT_FALSE(other->has_ended());
  EXPECT_EQ(sorted(drain(world, *other)), all_ids(world));
  EXPECT_EQ(other->epoch(), 2U);
}

TEST(LoaderState, GoesBackOnALoaderThatRuns) {
  World world(big_spec(12, 30));
  auto loader = world.open({.batch_size = 7, .seed = 4});
  drain(world, *loader, 3);
  const std::string state = loader->state();
  const auto next = drain(world, *loader, 4);
  ASSERT_TRUE(loader->load_state(state).ok());
  EXPECT_EQ(drain(world, *loader, 4), next);
}

TEST(LoaderState, SeeksAnyBatchOfAnyEpoch) {
  World world(big_spec(12, 30));
  const LoaderOptions options{.batch_size = 7, .seed = 4};
  auto whole = world.open(options);
  drain(world, *whole);
  ASSERT_TRUE(whole->start_epoch().ok());
  std::vector<std::string> states;  // Before each batch of epoch 1.
  std::vector<std::vector<std::int64_t>> batches;
  const std::uint64_t count = *whole->epoch_batches();
  for (std::uint64_t k = 0; k < count; ++k) {
    states.push_back(whole->state());
    batches.push_back(drain(world, *whole, 1).at(0));
  }
  auto other = world.open(options);
  for (const std::uint64_t k : {std::uint64_t{5}, std::uint64_t{0}, count - 1}) {
    ASSERT_TRUE(other->seek(1, k).ok());
    EXPECT_EQ(other->state(), states.at(k));
    EXPECT_EQ(drain(world, *other, 1).at(0), batches.at(k));
  }
  const std::string before = other->state();
  const Status status = other->seek(1, count);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("there is no batch " + std::to_string(count)));
  EXPECT_EQ(other->state(), before);
}

TEST(LoaderState, RefusesWhatDoesNotFitAndNamesTheField) {
  World world;
  const LoaderOptions options{.batch_size = 4, .seed = 4};
  auto loader = world.open(options);
  drain(world, *loader, 2);
  const std::string state = loader->state();
  const auto refused = [&](Loader& by, const std::string& json, const char* field) {
    const std::string before = by.state();
    const Status status = by.load_state(json);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
    EXPECT_EQ(by.state(), before);
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string json = state;
    const std::size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? json : json.replace(at, from.size(), to);
  };
  World other(big_spec(3, 10));
  refused(*other.open(options), state, "fingerprint");
  refused(*world.open({.batch_size = 4, .order = "sequential", .seed = 4}), state, "order");
  refused(*world.open({.batch_size = 4, .seed = 5}), state, "seed");
  refused(*loader, with(R"("version":2)", R"("version":3)"), "version");
  refused(*loader, with(R"("t":8)", R"("t":12)"), "checksum");
  refused(*loader, with(R"("t":8)", R"("t":-1)"), "'t'");
  refused(*loader, with(R"("lane_count":)", R"("lane_counts":)"), "lane_count");
  refused(*loader, with(R"("mixture":null)", R"("mixture":[1])"), "mixture");
  refused(*loader, with(R"("epoch_end":"pad")", R"("epoch_end":"never")"), "epoch_end");
  refused(*loader, with(R"("block_table_digest":")", R"("block_table_digest":"0)"),
          "block_table_digest");
  for (std::size_t size = 0; size < state.size(); ++size) {
    EXPECT_EQ(loader->load_state(state.substr(0, size)).code(), Code::kInvalidArgument) << size;
  }
  EXPECT_TRUE(loader->load_state(state).ok());
}

TEST(LoaderState, ProvesEachFieldThatMatters) {
  World world;
  auto loader = world.open({.batch_size = 4, .seed = 4, .quarantine = {{60, 61}}});
  drain(world, *loader, 2);
  const auto state = nlohmann::json::parse(loader->state());
  EXPECT_LT(loader->state().size(), 1024U);
  for (const auto& [name, value] : state.items()) {
    std::vector<nlohmann::json> others = {nullptr, "x", -1};
    if (value.is_number()) others = {value.get<std::uint64_t>() + 1, 0, 3, 1'000'000};
    for (const auto& other : others) {
      if (other == value) continue;
      nlohmann::json altered = state;
      altered[name] = other;
      const bool is_free = name == "global_batch" || (name == "quarantine" && other.is_null());
      EXPECT_EQ(loader->load_state(altered.dump()).ok(), is_free) << name << " " << other;
    }
    nlohmann::json shorter = state;
    shorter.erase(name);
    EXPECT_EQ(loader->load_state(shorter.dump()).ok(), name == "quarantine") << name;
  }
  // How it is written, and what others add to it, plays no part.
  nlohmann::json more = state;
  more["mine"] = {1, 2};
  EXPECT_TRUE(loader->load_state(more.dump(2)).ok());
}

TEST(LoaderState, OfVersion1GoesOn) {
  World world;
  const LoaderOptions options{.batch_size = 4, .seed = 4, .window_blocks = 3, .lane_count = 4};
  auto loader = world.open(options);
  drain(world, *loader, 2);
  const auto old = nlohmann::json::parse(as_version_1(loader->state()));
  const auto rest = drain(world, *loader);
  auto again = world.open({.batch_size = 4, .seed = 4});
  ASSERT_TRUE(again->load_state(old.dump()).ok());
  EXPECT_EQ(drain(world, *again), rest);
  const auto message_of = [&](const char* name, const nlohmann::json& value) {
    nlohmann::json altered = old;
    altered[name] = value;
    return std::string(again->load_state(altered.dump()).message());
  };
  EXPECT_THAT(message_of("fingerprint", loader->dataset().fingerprint()), HasSubstr("this age"));
  EXPECT_THAT(message_of("t", 69), HasSubstr("t is 69"));
  EXPECT_THAT(message_of("t", 1), HasSubstr("no run stands there"));
  EXPECT_THAT(message_of("batches", 9), HasSubstr("no run stands there"));
  EXPECT_THAT(message_of("epoch", std::uint64_t{1} << 50), HasSubstr("epoch"));
  EXPECT_THAT(message_of("bundle_lanes", 3), HasSubstr("bundle_lanes"));
  EXPECT_THAT(message_of("lane_count", 69), HasSubstr("69 lanes"));
  EXPECT_THAT(message_of("window_blocks", 0), HasSubstr("window_blocks"));
  EXPECT_THAT(message_of("window_blocks", 1000), HasSubstr("window_blocks"));
  EXPECT_THAT(message_of("order_version", 2), HasSubstr("order_version"));
}

// --- errors ---

TEST(LoaderErrors, RefusesBadOptions) {
  World world;
  const auto code_of = [&](const LoaderOptions& options) {
    return world.try_open(options).error().code();
  };
  EXPECT_EQ(code_of({.batch_size = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({.rank = 1, .world_size = 1}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({.order = "random"}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({.prefetch_batches = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({.columns = {"nose"}}), Code::kInvalidArgument);
}

TEST(LoaderErrors, SaysHowMuchMemoryIsNeeded) {
  FakeSpec spec;
  spec.block_samples = {4000, 4000};
  World world(spec);
  world.pool = *SlabPool::create({.limit_bytes = 256 * 1024});
  const auto loader = world.try_open({.batch_size = 4});
  ASSERT_FALSE(loader);
  EXPECT_EQ(loader.error().code(), Code::kExhausted);
  EXPECT_THAT(std::string(loader.error().message()), HasSubstr("0.3 MiB"));
  EXPECT_THAT(std::string(loader.error().message()), HasSubstr("raise memory"));
}

TEST(LoaderErrors, AFailedReadIsReportedWhereItIsNeededAndRepeats) {
  World world(big_spec(12, 30));
  auto probe = world.open({.batch_size = 7, .order = "sequential"});
  const auto expected = drain(world, *probe);
  ASSERT_TRUE(world.store->remove("shard-2").ok());
  auto loader = world.open({.batch_size = 7, .order = "sequential"});
  // Blocks 4 and 5 are gone; blocks 0 .. 3 hold 16 + 30 + 30 + 16 = 92 samples.
  EXPECT_EQ(drain(world, *loader, 13),
            std::vector<std::vector<std::int64_t>>(expected.begin(), expected.begin() + 13));
  const std::string state = loader->state();
  for (int i = 0; i < 2; ++i) {
    const auto failed = loader->next(soon());
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code(), Code::kNotFound);
    EXPECT_THAT(std::string(failed.error().message()), HasSubstr("shard-2"));
    EXPECT_THAT(std::string(failed.error().message()), HasSubstr("reading samples [92,"));
  }
  EXPECT_EQ(loader->state(), state);
  ASSERT_TRUE(loader->load_state(probe->state()).ok());
  EXPECT_EQ(drain(world, *loader, 1)[0].size(), 7U);
}

TEST(LoaderErrors, CorruptCompressedShardNamesItsPlace) {
  FakeSpec spec;
  spec.is_compressed = true;
  World world(spec);
  const std::string bad(world.dataset->block(1).stored_bytes, 'x');
  ASSERT_TRUE(write_object(*world.store, *world.pool, "shard-1", bad));
  auto loader = world.open({.batch_size = 4});
  Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) {
    auto batch = loader->next(soon());
    if (!batch) status = std::move(batch).error();
  }
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(std::string(status.message()), HasSubstr("reading samples ["));
}

TEST(Loader, SaysWhetherNextWouldWait) {
  World world;
  auto loader = world.open({.batch_size = 4});
  EXPECT_FALSE(loader->is_ready()) << "the epoch has to be begun";
  ASSERT_TRUE(loader->start_epoch().ok());
  while (true) {
    while (!loader->is_ready()) std::this_thread::yield();
    auto batch = loader->next(TimePoint());
    ASSERT_TRUE(batch) << batch.error().message();
    if (*batch == nullptr) break;
  }
  EXPECT_TRUE(loader->is_ready()) << "the end is there";
  ASSERT_TRUE(loader->start_epoch().ok());
  while (!loader->is_ready()) std::this_thread::yield();
  EXPECT_TRUE(loader->next(TimePoint()));
}

TEST(LoaderErrors, NextEndsAtItsDeadlineOnStopRequestAndOnStop) {
  World world;
  auto loader = world.open({.batch_size = 4});
  std::vector<std::unique_ptr<Batch>> held;
  std::stop_source stop;
  stop.request_stop();
  // A past deadline gives a batch if there is one, else says so.
  auto late = loader->next(TimePoint());
  EXPECT_TRUE(late || late.error().code() == Code::kDeadline);
  loader->stop();
  loader->stop();
  EXPECT_EQ(loader->next(soon()).error().code(), Code::kCancelled);
  EXPECT_EQ(loader->start_epoch().code(), Code::kCancelled);
  auto other = world.open({.batch_size = 4});
  const auto cancelled = other->next(soon(), stop.get_token());
  EXPECT_TRUE(cancelled || cancelled.error().code() == Code::kCancelled);
}

TEST(Loader, StopsAtAnyMomentAndLeavesNoMemoryBehind) {
  World world(big_spec(30, 50));
  for (std::size_t taken = 0; taken < 12; ++taken) {
    FaultOptions faults{.seed = taken + 1, .hold_back_count = static_cast<std::uint32_t>(taken)};
    std::unique_ptr<Batch> last;
    {
      auto loader = world.open({.batch_size = 6, .seed = taken}, &faults);
      ASSERT_TRUE(loader->start_epoch().ok());
      for (std::size_t i = 0; i < taken; ++i) last = must_next(*loader);
    }
    if (last) expect_right_bytes(*world.dataset, *last);  // Batches outlive the loader.
    last.reset();
    EXPECT_EQ(world.pool->used_bytes(), 0U);
  }
}

TEST(Loader, StopFromAnotherThreadEndsNext) {
  World world(big_spec(30, 50));
  for (int i = 0; i < 5; ++i) {
    auto loader = world.open({.batch_size = 6});
    std::thread stopper([&] { loader->stop(); });
    while (true) {
      auto batch = loader->next(soon());
      if (!batch) {
        EXPECT_EQ(batch.error().code(), Code::kCancelled);
        break;
      }
      if (!*batch && !loader->start_epoch().ok()) break;
    }
    stopper.join();
  }
}

/// From the second epoch on waits until it is cancelled.
class WaitingSource final : public OrderSource {
 public:
  explicit WaitingSource(std::shared_ptr<const OrderSource> source) : source_(std::move(source)) {}
  OrderSpec spec() const override { return source_->spec(); }
  Result<OrderPlan> plan(const OrderQuery& query, const std::stop_token& stop) const override {
    if (query.epoch == 0) return source_->plan(query, stop);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any stopped;
    stopped.wait(lock, stop, [] { return false; });
    return Status(Code::kCancelled, "stopped");
  }

 private:
  std::shared_ptr<const OrderSource> source_;
};

TEST(Loader, WaitingForAnOrderEndsOnStopRequestAndOnStop) {
  const FakeSpec blocks = big_spec(3, 4);
  World world(blocks);
  LoaderOptions options{.batch_size = 2};
  OrderSpec spec;
  spec.id = "sequential";
  spec.window_blocks = 1;
  spec.block_table_digest = block_table_digest(blocks.block_samples);
  options.order_source =
      std::make_shared<WaitingSource>(*create_order_source(spec, blocks.block_samples));
  auto loader = world.open(options);
  drain(world, *loader);
  const std::string state = loader->state();
  for (const bool is_own : {true, false}) {
    std::stop_source stop;
    std::thread stopper([&] { is_own ? static_cast<void>(stop.request_stop()) : loader->stop(); });
    EXPECT_EQ(loader->start_epoch(stop.get_token()).code(), Code::kCancelled);
    stopper.join();
    EXPECT_TRUE(loader->has_ended());
    EXPECT_EQ(loader->state(), state);
  }
}

TEST(Loader, ReadsEachByteOnceWhenWindowsFit) {
  for (const bool is_compressed : {false, true}) {
    FakeSpec spec = big_spec(20, 400);
    spec.is_compressed = is_compressed;
    World world(spec);
    auto loader = world.open({.batch_size = 8, .seed = 3});
    const double before = value_of(*loader, "store.received_bytes");
    drain(world, *loader);
    const double bytes = value_of(*loader, "store.received_bytes") - before;
    // Blocks cut by a lane's end are read on each side as far as it goes; compressed ones are read
    // whole by both.
    const double most = is_compressed ? 3.0 : 1.02;
    EXPECT_LE(bytes, most * static_cast<double>(world.dataset->stored_bytes())) << is_compressed;
    EXPECT_GE(bytes, static_cast<double>(world.dataset->stored_bytes())) << is_compressed;
  }
}

TEST(Loader, RanksReadDisjointPartsOfALaneOrder) {
  World world(big_spec(40, 400));
  double bytes = 0;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    auto loader = world.open({.batch_size = 8, .rank = rank, .world_size = 4, .seed = 3});
    const double before = value_of(*loader, "store.received_bytes");
    drain(world, *loader);
    bytes += value_of(*loader, "store.received_bytes") - before;
  }
  EXPECT_LE(bytes, 1.03 * static_cast<double>(world.dataset->stored_bytes()));
}

TEST(Loader, KeepsWithinMemoryWhileTheCallerHoldsBatches) {
  World world(big_spec(40, 400), 2 * kMiB);
  auto loader = world.open({.batch_size = 64, .seed = 3});
  std::vector<std::unique_ptr<Batch>> held;
  while (true) {
    auto batch = loader->next(std::chrono::steady_clock::now() + std::chrono::milliseconds(50));
    if (!batch) {
      EXPECT_EQ(batch.error().code(), Code::kDeadline);
      break;
    }
    if (!*batch) break;
    held.push_back(*std::move(batch));
  }
  EXPECT_LE(world.pool->peak_bytes(), world.pool->limit_bytes());
  for (const auto& batch : held) expect_right_bytes(*world.dataset, *batch);
  const std::size_t before = held.size();
  held.clear();
  EXPECT_EQ(drain(world, *loader).size() + before, (world.dataset->sample_count() + 63) / 64);
}

TEST(Loader, AnEmptyColumnListMeansAllAndMissingMembersAreFlagged) {
  World world;
  auto loader = world.open({.batch_size = 68, .order = "sequential"});
  const auto batch = must_next(*loader);
  ASSERT_EQ(batch->columns().size(), 3U);
  EXPECT_TRUE(batch->columns()[1].present.empty());
  ASSERT_EQ(batch->columns()[2].present.size(), 68U);
  EXPECT_EQ(batch->columns()[2].present[3], 0);
  EXPECT_EQ(batch->columns()[2].present[4], 1);
}

/// Makes of a column its values' lengths, and the values twice.
struct LengthAndTwice final : Decode {
  explicit LengthAndTwice(std::string name) : twice_name(std::move(name)) {}
  struct Length final : ValueDecoder {
    Result<DecodeNeeds> needs(std::span<const std::byte>) const override {
      return DecodeNeeds{.output_bytes = 8};
    }
    Status decode(std::span<const std::byte> value, std::uint64_t,
                  std::span<std::byte> out) const override {
      const std::uint64_t size = value.size();
      std::memcpy(out.data(), &size, sizeof(size));
      return {};
    }
  };
  Result<DecodedColumns> bind(const OutputColumn&) const override {
    OutputColumn twice;
    twice.name = twice_name;
    return DecodedColumns{
        {.output = array_column("length", {.dtype = "uint64", .item_bytes = 8, .shape = {}}),
         .decoder = std::make_shared<Length>()},
        {.output = twice, .decoder = std::make_shared<FakeDecode::Twice>()}};
  }
  const std::string twice_name;
};

TEST(Loader, AColumnMayBecomeSeveral) {
  World world;
  LoaderOptions options{.batch_size = 9};
  options.decode["text"] = std::make_shared<LengthAndTwice>("twice");
  auto loader = world.open(options);
  std::size_t count = 0;
  while (const auto batch = must_next(*loader)) {
    const auto columns = batch->columns();
    ASSERT_EQ(columns.size(), 4U);
    for (std::size_t c = 0; c < 4; ++c)
      EXPECT_EQ(columns[c].column->name,
                std::vector<std::string>({"x", "length", "twice", "opt"})[c]);
    for (std::uint32_t i = 0; i < batch->count(); ++i) {
      const auto id = static_cast<std::uint64_t>(batch->ids()[i]);
      const std::string text = world.dataset->text_value(id);
      std::uint64_t length = 0;
      std::memcpy(&length, columns[1].values.data() + 8 * i, sizeof(length));
      EXPECT_EQ(length, text.size());
      const auto& twice = columns[2];
      EXPECT_EQ(
          text_of(twice.values.subspan(twice.offsets[i], twice.offsets[i + 1] - twice.offsets[i])),
          text + text);
      count += batch->mask()[i];
    }
  }
  EXPECT_EQ(count, world.dataset->sample_count());
}

TEST(Loader, ColumnsHaveDifferentNames) {
  World world;
  LoaderOptions options{.batch_size = 9};
  options.decode["text"] = std::make_shared<LengthAndTwice>("opt");
  const auto loader = world.try_open(options);
  ASSERT_FALSE(loader);
  EXPECT_EQ(loader.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(loader.error().message()), HasSubstr("two columns would be named 'opt'"));
}

TEST(Loader, CountsWhatItDelivers) {
  World world;
  auto loader = world.open({.batch_size = 4});
  const auto batches = drain(world, *loader);
  double stalls = 0;
  std::map<std::string, double> values;
  for (const Metric& metric : loader->stats()) {
    values[metric.name] = metric.value;
    if (metric.name.rfind("stall.", 0) == 0) stalls += metric.value;
  }
  EXPECT_EQ(values["loader.batches"], 17);
  EXPECT_EQ(values["loader.samples"], 68);
  EXPECT_EQ(values["loader.waited_us"], stalls);
  EXPECT_GT(values["loader.delivered_bytes"], 68 * 24);
  EXPECT_EQ(values["pool.limit_bytes"], 64 * kMiB);
}

/// Values of column "x" take a mebibyte to decode, and wait for a signal.
struct HeldDecode final : Decode {
  struct Held final : ValueDecoder {
    explicit Held(std::shared_future<void> go) : go_(std::move(go)) {}
    Result<DecodeNeeds> needs(std::span<const std::byte> value) const override {
      return DecodeNeeds{.output_bytes = value.size(), .workspace_bytes = kMiB};
    }
    Status decode(std::span<const std::byte> value, std::uint64_t,
                  std::span<std::byte> out) const override {
      go_.wait();
      std::copy(value.begin(), value.end(), out.begin());
      return {};
    }
    const std::shared_future<void> go_;
  };
  explicit HeldDecode(std::shared_future<void> signal) : go(std::move(signal)) {}
  Result<DecodedColumns> bind(const OutputColumn& stored) const override {
    return DecodedColumns{{.output = stored, .decoder = std::make_shared<Held>(go)}};
  }
  std::shared_future<void> go;
};

TEST(Loader, IsNotStarvedWhileWorkersHaveTheMemory) {
  World world({}, 5 * kMiB / 2);
  std::promise<void> go;
  LoaderOptions options{.batch_size = 4, .prefetch_batches = 4, .worker_count = 2};
  options.decode["x"] = std::make_shared<HeldDecode>(go.get_future().share());
  const auto loader = world.open(options);
  ASSERT_NE(loader, nullptr);
  // The second batch finds no room, and looks for it every 5 ms.
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(loader->next(system_clock().now() + std::chrono::milliseconds(10)).has_value());
    EXPECT_FALSE(loader->is_starved());
  }
  go.set_value();
  EXPECT_EQ(sorted(drain(world, *loader)), all_ids(world));
}

TEST(Loader, IsStarvedWhileItsBatchesAreKept) {
  World world({}, 5 * kMiB / 2);
  std::promise<void> go;
  go.set_value();
  LoaderOptions options{.batch_size = 4, .prefetch_batches = 1, .worker_count = 2};
  options.decode["x"] = std::make_shared<HeldDecode>(go.get_future().share());
  const auto loader = world.open(options);
  ASSERT_NE(loader, nullptr);
  const auto kept = world.pool->try_acquire(std::size_t{2} * kMiB);
  ASSERT_TRUE(kept);
  while (!loader->is_starved())
    static_cast<void>(loader->next(system_clock().now() + std::chrono::milliseconds(10)));
}

}  // namespace
}  // namespace headrace::feed_test
