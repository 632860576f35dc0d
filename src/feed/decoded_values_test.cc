// Decoded values out of a store that keeps them: the same batches, decoded once.
#include "feed/finish/decoded_values.h"

#include <gtest/gtest.h>

#include "base/manual_clock.h"
#include "base/test_seed.h"
#include "feed/fake_dataset.h"
#include "feed/fake_decode.h"
#include "feed/keeping_cache.h"
#include "feed/loader_test_util.h"
#include "headrace/loader.h"
#include "store/fault/fault_store.h"

namespace headrace::feed_test {
namespace {

using feed::DecodedValues;

std::shared_ptr<FakeDecode> steady(std::string identity = "fake 1") {
  auto decode = std::make_shared<FakeDecode>();
  decode->identity = std::move(identity);
  return decode;
}

/// Drops the versions that extents name: the store inside has others.
class UnversionedStore final : public ForwardingStore {
 public:
  explicit UnversionedStore(std::unique_ptr<Store> inner) : ForwardingStore(std::move(inner)) {}
  std::size_t submit(std::span<Request> requests) override {
    for (Request& request : requests) request.etag = {};
    return inner().submit(requests);
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<UnversionedStore>(std::move(handle)));
  }
};

/// A dataset, and where its decoded values are kept.
struct KeepingWorld {
  explicit KeepingWorld(FakeSpec spec = {}) {
    spec.is_versioned = true;
    dataset = std::make_shared<FakeDataset>(std::move(spec));
    pool = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20});
    store = dataset->make_store(*pool);
  }
  std::unique_ptr<Loader> open(const LoaderOptions& options,
                               const FaultOptions& faults = {}) const {
    auto handle = std::make_unique<UnversionedStore>(*store->new_handle());
    auto loader =
        Loader::create(dataset, FaultStore::create(std::move(handle), faults), pool, options);
    EXPECT_TRUE(loader) << loader.error().message();
    return loader ? *std::move(loader) : nullptr;
  }
  LoaderOptions options(std::shared_ptr<const Decode> decode = steady()) const {
    LoaderOptions options;
    options.batch_size = 4;
    options.seed = 5;
    options.decode["x"] = std::move(decode);
    options.value_cache = kept;
    options.cache_decoded = CacheDecoded::kAlways;
    return options;
  }
  /// Reads an epoch, whose values must be right; returns what was decoded meanwhile.
  double decoded_in_epoch(Loader& loader, const LoaderOptions& options) const {
    const double before = value_of(loader, "loader.decoded_values");
    EXPECT_TRUE(loader.start_epoch().ok());
    while (true) {
      auto batch = loader.next(soon());
      EXPECT_TRUE(batch) << batch.error().message();
      if (!batch || !*batch) break;
      expect_right_bytes(*dataset, **batch, options);
      expect_decoded_bytes(*dataset, **batch, options);
      if (::testing::Test::HasFailure()) break;
    }
    return value_of(loader, "loader.decoded_values") - before;
  }
  double epochs(const LoaderOptions& options, int count = 1) const {
    auto loader = open(options);
    double decoded = 0;
    for (int i = 0; i < count; ++i) decoded += decoded_in_epoch(*loader, options);
    return decoded;
  }
  double samples() const { return static_cast<double>(dataset->sample_count()); }

  std::shared_ptr<FakeDataset> dataset;
  std::shared_ptr<SlabPool> pool;
  std::unique_ptr<Store> store;
  std::shared_ptr<KeepingCache> kept = std::make_shared<KeepingCache>();
};

TEST(DecodedValues, TheSecondEpochDecodesNothing) {
  const KeepingWorld world;
  const LoaderOptions options = world.options();
  auto loader = world.open(options);
  EXPECT_EQ(world.decoded_in_epoch(*loader, options), world.samples());
  EXPECT_EQ(value_of(*loader, "loader.cached_values"), 0);
  EXPECT_EQ(world.decoded_in_epoch(*loader, options), 0);
  EXPECT_EQ(value_of(*loader, "loader.cached_values"), world.samples());
  EXPECT_EQ(value_of(*loader, "loader.cached_columns"), 1);
  EXPECT_EQ(world.kept->settled_count(), 2U);
  // Nor the first of the next run, in another order and world.
  loader.reset();
  LoaderOptions others = options;
  others.seed = 77;
  others.world_size = 2;
  for (others.rank = 0; others.rank < 2; ++others.rank) EXPECT_EQ(world.epochs(others), 0);
}

TEST(DecodedValues, OfAnotherDecodeAreOthers) {
  const KeepingWorld world;
  EXPECT_EQ(world.epochs(world.options()), world.samples());
  EXPECT_EQ(world.epochs(world.options(steady("fake 2")), 2), world.samples());
  EXPECT_EQ(world.epochs(world.options()), 0);
  EXPECT_EQ(world.kept->value_count(), 2 * world.dataset->sample_count());
}

TEST(DecodedValues, AreOfTheRangesAndVersionsOfTheirBlock) {
  KeepingWorld world;
  EXPECT_EQ(world.epochs(world.options()), world.samples());
  // The same objects with blocks that are cut elsewhere.
  FakeSpec spec;
  spec.block_samples = {10, 7, 12, 1, 9, 11, 9, 9};
  KeepingWorld others(spec);
  others.kept = world.kept;
  EXPECT_EQ(others.epochs(others.options()), 18);
}

TEST(DecodedValues, WhatARandomKeyDecidesIsNotKept) {
  const KeepingWorld world;
  const LoaderOptions options = world.options(std::make_shared<FakeDecode>());
  EXPECT_EQ(world.epochs(options, 2), 2 * world.samples());
  EXPECT_EQ(world.kept->value_count(), 0U);
  EXPECT_EQ(world.kept->look_count(), 0U);
}

TEST(DecodedValues, OfValuesOfManySizesAndObjectsWithoutVersionNothingIsKept) {
  KeepingWorld world;
  LoaderOptions options = world.options();
  options.decode = {{"text", steady()}};
  EXPECT_EQ(world.epochs(options, 2), 2 * world.samples());
  world.dataset = std::make_shared<FakeDataset>(FakeSpec());
  EXPECT_EQ(world.epochs(world.options(), 2), 2 * world.samples());
  EXPECT_EQ(world.kept->value_count(), 0U);
}

TEST(DecodedValues, AreLeftAloneWhereTheyAreNotWanted) {
  const KeepingWorld world;
  LoaderOptions options = world.options();
  EXPECT_EQ(world.epochs(options), world.samples());
  options.cache_decoded = CacheDecoded::kOff;
  const std::uint64_t looks = world.kept->look_count();
  EXPECT_EQ(world.epochs(options), world.samples());
  EXPECT_EQ(world.kept->look_count(), looks);
}

TEST(DecodedValues, OfABlockThatIsNotThereFewAreLookedFor) {
  FakeSpec spec;
  spec.block_samples = {400};
  const KeepingWorld world(spec);
  world.epochs(world.options());
  EXPECT_LE(world.kept->look_count(), 50U + 2 + 8);  // Each of several threads may be looking.
}

TEST(DecodedValues, WhatIsLostIsDecodedAndKeptAnew) {
  const KeepingWorld world;
  const LoaderOptions options = world.options();
  auto loader = world.open(options);
  EXPECT_EQ(world.decoded_in_epoch(*loader, options), world.samples());
  Random random(test_seed());
  world.kept->lose(random, 0.4);
  const auto lost = world.samples() - static_cast<double>(world.kept->value_count());
  EXPECT_GT(lost, 0);
  EXPECT_GE(world.decoded_in_epoch(*loader, options), lost);
  EXPECT_EQ(world.decoded_in_epoch(*loader, options), 0);
}

// Any dataset, order, world and memory, with faults of the store, bad samples, lost values and runs
// that are resumed in mid-epoch: the same batches as a loader that keeps nothing.
TEST(DecodedValues, BatchesAreThoseOfALoaderThatKeepsNothing) {
  double cached = 0;
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 81'000 + round);
    FakeSpec spec = random_layout(random);
    spec.is_unpacked = spec.is_compressed && random.below(2) == 0;
    KeepingWorld world(spec);
    const std::uint64_t samples = world.dataset->sample_count();
    auto decode = steady();
    for (int i = 0; samples > 20 && i < 2; ++i) {
      decode->bodies.insert(FakeDataset::fixed_value(random.below(samples)));
      decode->headers.insert(FakeDataset::fixed_value(random.below(samples)));
    }
    LoaderOptions options = world.options(decode);
    options.on_bad_sample = OnBadSample::kReplace;
    options.batch_size =
        static_cast<std::uint32_t>(1 + random.below(std::min<std::uint64_t>(samples, 24)));
    options.worker_count = 1 + static_cast<std::uint32_t>(random.below(3));
    options.order = random.below(4) == 0 ? "sequential" : "headrace";
    options.world_size = static_cast<std::uint32_t>(1 + random.below(2));
    options.rank = static_cast<std::uint32_t>(random.below(options.world_size));
    LoaderOptions plain = options;
    plain.cache_decoded = CacheDecoded::kOff;
    auto reference = world.open(plain);
    auto loader = world.open(options);
    const auto faults = [&] {
      return FaultOptions{.seed = random.next(),
                          .flip_share = random.below(4) == 0 && spec.is_checked ? 0.05 : 0,
                          .hold_back_count = static_cast<std::uint32_t>(random.below(6))};
    };
    for (std::uint64_t k = 0; k < 60; ++k) {
      auto right = reference->next(soon());
      auto batch = loader->next(soon());
      ASSERT_EQ(right.has_value(), batch.has_value()) << (batch ? right : batch).error().message();
      if (!right) break;  // Every sample of a source is bad.
      ASSERT_EQ(*right == nullptr, *batch == nullptr);
      if (*right == nullptr) {
        ASSERT_TRUE(reference->start_epoch().ok());
        ASSERT_TRUE(loader->start_epoch().ok());
        continue;
      }
      ASSERT_TRUE(std::ranges::equal((*right)->ids(), (*batch)->ids()));
      for (std::size_t c = 0; c < (*right)->columns().size(); ++c)
        ASSERT_EQ(text_of((*right)->columns()[c].values), text_of((*batch)->columns()[c].values));
      if (random.below(15) == 0) world.kept->lose(random, random.unit());
      if (random.below(15) != 0 || loader->has_ended()) continue;
      cached += value_of(*loader, "loader.cached_values");
      const std::string state = loader->state();
      right->reset();
      batch->reset();
      loader.reset();
      loader = world.open(options, faults());
      ASSERT_TRUE(loader->load_state(state).ok());
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(cached, 100);
}

// --- what "auto" does, over a clock that is moved by hand ---

/// Takes a chosen time to decode a value, and nothing else.
struct TimedDecoder final : ValueDecoder {
  explicit TimedDecoder(ManualClock& c) : clock(c) {}
  Result<DecodeNeeds> needs(std::span<const std::byte>) const override {
    return DecodeNeeds{.output_bytes = 8};
  }
  Status decode(std::span<const std::byte> value, std::uint64_t,
                std::span<std::byte> out) const override {
    clock.advance(took);
    std::copy_n(value.begin(), out.size(), out.begin());
    return {};
  }
  std::string identity() const override { return "timed"; }
  ManualClock& clock;
  std::chrono::microseconds took{1000};
};

/// As long to read.
class TimedCache final : public KeepingCache {
 public:
  explicit TimedCache(ManualClock& clock, std::uint64_t capacity_bytes = std::uint64_t{1} << 40)
      : KeepingCache(capacity_bytes), clock_(clock) {}
  bool read(const ValueSeries& series, std::uint32_t index, std::span<std::byte> out) override {
    clock_.advance(took);
    return KeepingCache::read(series, index, out);
  }
  std::chrono::microseconds took{100};

 private:
  ManualClock& clock_;
};

class ChosenValues : public ::testing::Test {
 protected:
  ChosenValues() {
    FakeSpec spec;
    spec.block_samples = {1300};
    spec.is_versioned = spec.only_fixed = true;
    dataset_ = std::make_shared<FakeDataset>(spec);
  }
  void open() {
    values_ = std::make_unique<DecodedValues>(DecodedValues::Parts{
        .dataset = dataset_,
        .cache = kept_,
        .clock = &clock_,
        .mode = CacheDecoded::kAuto,
        .indices = {0},
        .decoders = {decoder_},
        .schema = {
            {.name = "x", .encoding = {}, .dtype = {}, .shape = {}, .fixed_size_bytes = 8}}});
  }
  /// Makes all values once; how many were decoded.
  double epoch(DecodedValues::Next next = DecodedValues::Next::kOne) {
    const double before = metric("loader.decoded_values");
    values_->begin_epoch(next);
    for (std::uint64_t id = 0; id < dataset_->sample_count(); ++id) {
      const std::string stored = FakeDataset::fixed_value(id);
      std::string made(8, '\0');
      const Status status = values_->make(
          {.column = 0, .position = id, .key = id, .stored = std::as_bytes(std::span(stored))},
          std::as_writable_bytes(std::span(made)));
      EXPECT_TRUE(status.ok());
      EXPECT_EQ(made, stored.substr(0, 8));
    }
    values_->end_epoch();
    return metric("loader.decoded_values") - before;
  }
  double metric(std::string_view name) const {
    MetricList all;
    values_->append_metrics(all);
    for (const Metric& one : all)
      if (one.name == name) return one.value;
    ADD_FAILURE() << name;
    return 0;
  }

  ManualClock clock_;
  std::shared_ptr<FakeDataset> dataset_;
  std::shared_ptr<TimedCache> kept_ = std::make_shared<TimedCache>(clock_);
  std::shared_ptr<TimedDecoder> decoder_ = std::make_shared<TimedDecoder>(clock_);
  std::unique_ptr<DecodedValues> values_;
};

constexpr double kAll = 1300;

TEST_F(ChosenValues, AreThoseThatTakeLongToDecode) {
  open();
  EXPECT_EQ(epoch(), kAll);
  EXPECT_EQ(kept_->value_count(), kAll);
  EXPECT_EQ(epoch(), 0);
  EXPECT_EQ(metric("loader.cached_columns"), 1);
  EXPECT_NEAR(metric("loader.decode_value_us"), 1000, 1e-6);
  EXPECT_NEAR(metric("loader.cached_value_us"), 100, 1e-6);
}

TEST_F(ChosenValues, AreNotThoseThatAreCheapToDecode) {
  decoder_->took = std::chrono::microseconds(30);
  open();
  EXPECT_EQ(epoch(), kAll);
  // The first ones, by which it was measured.
  EXPECT_LE(kept_->value_count(), feed::MeanTime::kLeastCount);
  EXPECT_EQ(epoch(), kAll);
  EXPECT_EQ(metric("loader.cached_columns"), 0);
}

TEST_F(ChosenValues, AreGivenUpForTheEpochWhereTheCacheTurnsOutSlow) {
  open();
  EXPECT_EQ(epoch(), kAll);
  kept_->took = std::chrono::microseconds(5000);
  EXPECT_EQ(epoch(), kAll - 512);
  EXPECT_EQ(metric("loader.cached_columns"), 0);
  // The next one tries again.
  kept_->took = std::chrono::microseconds(100);
  EXPECT_EQ(epoch(), 0);
}

TEST_F(ChosenValues, AreNoneWhereNotAllFit) {
  kept_ = std::make_shared<TimedCache>(clock_, 5'000'000);  // 1,300 pages alone are more.
  open();
  EXPECT_EQ(epoch(), kAll);
  EXPECT_EQ(epoch(), kAll);
  EXPECT_EQ(metric("loader.cached_columns"), 0);
}

TEST_F(ChosenValues, OfAnEarlierRunAreMeasuredFirst) {
  open();
  EXPECT_EQ(epoch(), kAll);
  open();
  // Decoded although they are there, to know how long that takes.
  EXPECT_EQ(epoch(), static_cast<double>(feed::MeanTime::kLeastCount));
}

TEST_F(ChosenValues, NoneAreAddedWhereNoEpochFollows) {
  open();
  EXPECT_EQ(epoch(DecodedValues::Next::kNone), kAll);
  EXPECT_EQ(kept_->value_count(), 0U);
  EXPECT_EQ(epoch(), kAll);
  EXPECT_EQ(epoch(DecodedValues::Next::kNone), 0);
}

TEST_F(ChosenValues, AreAddedFromTheSecondEpochOnWhereNobodySaysHowManyThereAre) {
  open();
  EXPECT_EQ(epoch(DecodedValues::Next::kUnknown), kAll);
  EXPECT_EQ(kept_->value_count(), 0U);
  EXPECT_EQ(epoch(DecodedValues::Next::kUnknown), kAll);
  EXPECT_EQ(epoch(DecodedValues::Next::kUnknown), 0);
}

}  // namespace
}  // namespace headrace::feed_test
