#include "headrace/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/random.h"
#include "base/test_seed.h"
#include "order/mixture_table.h"
#include "order/order_test_util.h"

namespace headrace {
namespace {

MixturePart make_part(std::vector<std::uint32_t> blocks, std::uint32_t index, std::uint64_t seed,
                      std::uint32_t lanes) {
  MixturePart part;
  part.order = order_test::make_spec(blocks, mixture_part_seed(seed, index), lanes, 2, 1);
  part.block_samples = std::move(blocks);
  return part;
}

std::shared_ptr<const MixtureSchedule> must_schedule(const MixtureSpec& spec) {
  auto schedule = MixtureSchedule::create(spec);
  if (!schedule) {
    ADD_FAILURE() << schedule.error().message();
    std::abort();
  }
  return *schedule;
}

std::shared_ptr<const MixtureOrder> must_order(const MixtureSpec& spec, std::uint64_t epoch) {
  auto order =
      MixtureOrder::create(must_schedule(spec), std::make_shared<MixtureSpec>(spec), epoch);
  if (!order) {
    ADD_FAILURE() << order.error().message();
    std::abort();
  }
  return *order;
}

std::vector<std::uint32_t> weights_of(std::vector<double> proportions) {
  auto weights = mixture_weights(proportions);
  EXPECT_TRUE(weights) << weights.error().message();
  return *weights;
}

/// Two sources of 40 and 24 samples, 3 to 1.
MixtureSpec small_spec() {
  return {.seed = 5,
          .groups = 2,
          .batch = 8,
          .epoch_samples = 64,
          .epoch_shares = {},
          .changes = {{0, weights_of({3, 1})}},
          .parts = {make_part({10, 10, 10, 10}, 0, 5, 4), make_part({8, 8, 8}, 1, 5, 2)}};
}

std::uint64_t source_samples(const MixturePart& part) {
  return std::accumulate(part.block_samples.begin(), part.block_samples.end(), std::uint64_t{0});
}

std::uint32_t source_of(const MixtureSpec& spec, std::uint64_t id) {
  std::uint32_t source = 0;
  while (id >= source_samples(spec.parts[source])) id -= source_samples(spec.parts[source++]);
  return source;
}

TEST(MixtureWeights, AreApportionedByLargestRemainder) {
  EXPECT_EQ(weights_of({1, 1, 2}), (std::vector<std::uint32_t>{16384, 16384, 32768}));
  EXPECT_EQ(weights_of({1, 1, 1}), (std::vector<std::uint32_t>{21846, 21845, 21845}));
  EXPECT_EQ(weights_of({0, 5}), (std::vector<std::uint32_t>{0, 65536}));
  const std::vector<std::vector<double>> wrong = {
      {}, {0, 0}, {1, -1}, {1, std::numeric_limits<double>::quiet_NaN()}, {1e9, 1}};
  for (const auto& proportions : wrong)
    EXPECT_EQ(mixture_weights(proportions).error().code(), Code::kInvalidArgument);
  const std::vector<std::string> names = {"web", "code"};
  EXPECT_NE(mixture_weights(wrong.back(), names).error().message().find("'code' is less"),
            std::string::npos);
}

TEST(MixtureTable, SpreadsSourcesEvenly) {
  const std::uint64_t shares[] = {4, 2, 2};
  EXPECT_EQ(order_detail::interleave(shares), (std::vector<std::uint8_t>{0, 1, 2, 0, 0, 1, 2, 0}));
  EXPECT_EQ(order_detail::apportion(shares, 3), (std::vector<std::uint64_t>{1, 1, 1}));
}

TEST(MixtureTable, CountsAndStepsAgreeWithGoingThroughIt) {
  Random random(test_seed());
  for (int round = 0; round < 50; ++round) {
    std::vector<std::uint64_t> shares(1 + random.below(5));
    for (auto& share : shares) share = random.below(30);
    shares[0] += 1;
    const auto columns = std::uint32_t{1} << random.below(4);
    const std::uint64_t total = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
    shares[0] += (columns - total % columns) % columns;
    const auto count = static_cast<std::uint32_t>(shares.size());
    const std::uint64_t stretch = 1 + random.below(3);
    const order_detail::MixtureTable table(order_detail::interleave(shares), count, columns,
                                           stretch);
    for (std::uint32_t group = 0; group < columns; ++group) {
      std::vector<std::uint64_t> seen(count, 0);
      for (std::uint64_t step = 0; step < 3 * columns * table.period_steps(); ++step) {
        for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(table.count(i, group, step), seen[i]);
        const auto entry = table.at(group, step);
        ASSERT_LT(entry.source, count);
        ASSERT_EQ(entry.number, seen[entry.source]++);
        ASSERT_EQ(table.step_of(entry.source, group, entry.number), step);
      }
      // Over as many periods as there are columns all groups get the same.
      for (std::uint32_t i = 0; i < count; ++i)
        EXPECT_EQ(seen[i], 3 * shares[i] * stretch) << "group " << group;
    }
  }
}

TEST(MixtureSchedule, KeepsProportionsAtEveryPrefix) {
  MixtureSpec spec = small_spec();
  spec.changes = {{0, weights_of({0.5, 0.3})}};
  const auto schedule = must_schedule(spec);
  for (std::uint64_t tau = 0; tau < 3000; ++tau) {
    EXPECT_EQ(schedule->count(0, tau) + schedule->count(1, tau), tau);
    EXPECT_NEAR(static_cast<double>(schedule->count(0, tau)), static_cast<double>(tau) * 0.625, 2);
  }
}

TEST(MixtureSchedule, StratifiesEachBatch) {
  MixtureSpec spec = small_spec();
  spec.batching = MixtureBatching::kStratified;
  const auto schedule = must_schedule(spec);
  for (std::uint64_t k = 0; k < 100; ++k)
    EXPECT_EQ(schedule->counts(k * 8, 8), (std::vector<std::uint64_t>{6, 2}));
  spec.changes = {{0, weights_of({100, 1})}};
  EXPECT_EQ(MixtureSchedule::create(spec).error().code(), Code::kInvalidArgument);
}

TEST(MixtureSchedule, GivesWholeBatchesToSources) {
  MixtureSpec spec = small_spec();
  spec.batching = MixtureBatching::kPerSource;
  const auto schedule = must_schedule(spec);
  for (std::uint64_t k = 0; k < 100; ++k)
    EXPECT_EQ(schedule->counts(k * 8, 8)[0], k % 4 == 2 ? 0U : 8U) << k;
}

TEST(MixtureSchedule, GivesExactSharesOfEachEpoch) {
  MixtureSpec spec = small_spec();
  spec.changes.clear();
  for (const auto& shares :
       {std::vector<std::uint64_t>{40, 7}, {0, 48}, {200'003, 1'000'000}, {70'001, 3}}) {
    spec.epoch_shares = shares;
    spec.epoch_samples = shares[0] + shares[1];
    const auto schedule = must_schedule(spec);
    for (std::uint64_t epoch = 1; epoch < 4; ++epoch) {
      for (std::uint32_t i = 0; i < 2; ++i)
        EXPECT_EQ(schedule->count(i, epoch * spec.epoch_samples), epoch * shares[i]);
    }
  }
}

TEST(MixtureSchedule, RefusesWhatItCannotFollow) {
  const auto code = [](auto change) {
    MixtureSpec spec = small_spec();
    change(spec);
    auto schedule = MixtureSchedule::create(spec);
    return schedule ? Code::kOk : schedule.error().code();
  };
  EXPECT_EQ(code([](MixtureSpec&) {}), Code::kOk);
  EXPECT_EQ(code([](MixtureSpec& s) { s.parts.clear(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureSpec& s) { s.groups = 3; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureSpec& s) { s.groups = 16; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureSpec& s) { s.epoch_samples = 63; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureSpec& s) { s.epoch_samples = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureSpec& s) { s.changes.clear(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureSpec& s) { s.changes[0].first_sample = 8; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureSpec& s) { s.changes[0].weights[0] = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureSpec& s) {
              s.changes.push_back({4, s.changes[0].weights});
            }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureSpec& s) {
              s.changes.push_back({0, s.changes[0].weights});
            }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](MixtureSpec& s) { s.epoch_shares = {32, 32}; }), Code::kInvalidArgument);
}

TEST(MixtureOrder, RefusesLanesThatGroupsCannotShare) {
  MixtureSpec spec = small_spec();
  spec.parts[1].order.lane_count = 3;
  const auto schedule = must_schedule(spec);
  const auto shared = std::make_shared<MixtureSpec>(spec);
  EXPECT_EQ(MixtureOrder::create(schedule, shared, 0).error().code(), Code::kInvalidArgument);
  spec.parts.pop_back();
  spec.changes[0].weights = {kMixtureWeightSum};
  EXPECT_EQ(MixtureOrder::create(schedule, std::make_shared<MixtureSpec>(spec), 0).error().code(),
            Code::kInvalidArgument);
}

TEST(ChooseMixtureGroups, FollowsTheBatchAndTheSmallestSource) {
  const std::uint64_t large[] = {1000, 5000};
  EXPECT_EQ(choose_mixture_groups(256, large), 16U);
  EXPECT_EQ(choose_mixture_groups(24, large), 8U);
  EXPECT_EQ(choose_mixture_groups(7, large), 1U);
  const std::uint64_t small[] = {1000, 5};
  EXPECT_EQ(choose_mixture_groups(256, small), 4U);
}

// --- model: whole runs ---

/// What a run delivered.
struct Delivered {
  std::map<std::uint64_t, std::uint64_t> times;      ///< By sample of all sources.
  std::vector<std::uint64_t> counts;                 ///< By source.
  std::map<std::uint32_t, std::uint64_t> positions;  ///< By lane: the next.
};

/// Delivers samples [start, end) of an epoch in batches and checks each lane goes on without a gap.
void deliver(const MixtureSpec& spec, const MixtureOrder& order, const Segment& segment,
             std::uint64_t end, Delivered& run) {
  for (std::uint64_t t = segment.start; t < end; ++t) {
    const LanePosition place = order.locate(t, segment);
    const std::uint64_t id = order.dataset_position(t, segment);
    ++run.times[id];
    ++run.counts[source_of(spec, id)];
    EXPECT_EQ(order.source_at(place.lane, place.position).source, source_of(spec, id));
    EXPECT_EQ(order.batch_of(place.lane, place.position, segment),
              (t - segment.start) / segment.global_batch);
  }
}

/// Each sample of a source as often as any other, or once more.
void expect_equally_often(const MixtureSpec& spec, Delivered& run) {
  std::uint64_t first = 0;
  for (std::uint32_t i = 0; i < spec.parts.size(); ++i) {
    const std::uint64_t samples = source_samples(spec.parts[i]);
    for (std::uint64_t s = first; s < first + samples; ++s) {
      const std::uint64_t least = run.counts[i] / samples;
      EXPECT_GE(run.times[s], least) << "source " << i << " sample " << s - first;
      EXPECT_LE(run.times[s], least + (run.counts[i] % samples > 0 ? 1 : 0))
          << "source " << i << " sample " << s - first;
    }
    first += samples;
  }
}

void expect_even(const MixtureSpec& spec, const MixtureOrder& order, std::uint64_t t,
                 Delivered& run) {
  if (spec.version >= 2) return expect_equally_often(spec, run);
  std::uint64_t first = 0;
  std::uint32_t first_lane = 0;
  for (std::uint32_t i = 0; i < spec.parts.size(); ++i) {
    // Each lane is whole epochs and a rest, and lanes together hold the counts.
    std::uint64_t sum = 0;
    std::uint64_t least = ~std::uint64_t{0};
    std::uint64_t most = 0;
    const std::uint32_t lanes = spec.parts[i].order.lane_count;
    const std::uint64_t samples = source_samples(spec.parts[i]);
    for (std::uint32_t l = 0; l < lanes; ++l) {
      const std::uint64_t consumed = order.lane_consumed(first_lane + l, t);
      const std::uint64_t length = samples / lanes + (l < samples % lanes ? 1 : 0);
      sum += consumed;
      least = std::min(least, consumed / length);
      most = std::max(most, (consumed + length - 1) / length);
    }
    EXPECT_EQ(sum, run.counts[i]);
    for (std::uint64_t s = 0; s < samples; ++s) {
      const auto found = run.times.find(first + s);
      const std::uint64_t times = found == run.times.end() ? 0 : found->second;
      EXPECT_GE(times, least) << "source " << i << " sample " << s;
      EXPECT_LE(times, most) << "source " << i << " sample " << s;
    }
    first += samples;
    first_lane += lanes;
  }
}

MixtureSpec random_spec(Random& random) {
  MixtureSpec spec;
  spec.version = 1 + static_cast<std::uint32_t>(random.below(2));
  spec.seed = random.below(1000);
  spec.groups = std::uint32_t{1} << random.below(4);
  spec.batch = spec.groups * (1 + random.below(6));
  spec.batching = static_cast<MixtureBatching>(random.below(3));
  const std::uint64_t sources = 1 + random.below(4);
  for (std::uint32_t i = 0; i < sources; ++i) {
    std::vector<std::uint32_t> blocks(1 + random.below(6));
    const std::uint64_t most = random.below(3) == 0 ? 2 : 12;
    for (auto& block : blocks) block = 8 + static_cast<std::uint32_t>(random.below(most));
    const std::uint64_t samples = std::accumulate(blocks.begin(), blocks.end(), std::uint64_t{0});
    const auto lanes = spec.groups * (1 + static_cast<std::uint32_t>(random.below(
                                              std::min<std::uint64_t>(4, samples / spec.groups))));
    spec.parts.push_back(make_part(std::move(blocks), i, spec.seed, lanes));
  }
  if (spec.batching == MixtureBatching::kProportional && random.below(3) == 0) {
    spec.epoch_samples = 0;
    for (std::uint64_t i = 0; i < sources; ++i) {
      spec.epoch_shares.push_back(1 + random.below(150));
      spec.epoch_samples += spec.epoch_shares.back();
    }
    return spec;
  }
  spec.epoch_samples = spec.batch * (1 + random.below(40));
  const std::uint64_t changes = 1 + random.below(4);
  std::uint64_t at = 0;
  for (std::uint64_t c = 0; c < changes; ++c) {
    std::vector<double> proportions(sources);
    for (double& p : proportions) p = 1 + static_cast<double>(random.below(5));
    if (spec.batching == MixtureBatching::kStratified && spec.batch < 8 * sources)
      std::fill(proportions.begin(), proportions.end(), spec.batch < sources ? 0 : 1);
    if (spec.batch < sources) proportions[0] = 1;
    spec.changes.push_back({at, weights_of(proportions)});
    at += spec.batch * (1 + random.below(30));
  }
  return spec;
}

// Batch and world sizes and stops change at random; counts are the schedule's, every lane goes
// through its source's epochs, and each batch is what one rank alone would get.
TEST(MixtureModel, DeliversEachSourceInWholeEpochsWhateverTheStops) {
  Random random(test_seed());
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + ", seed " + std::to_string(test_seed()));
    const MixtureSpec spec = random_spec(random);
    const auto schedule = must_schedule(spec);
    Delivered run;
    run.counts.resize(spec.parts.size());
    const std::uint64_t epochs = 1 + random.below(3);
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto order = must_order(spec, epoch);
      const std::uint64_t n = spec.epoch_samples;
      for (std::uint64_t t = 0; t < n;) {
        const Segment segment{
            .start = t, .global_batch = random.below(2) == 0 ? spec.batch : 1 + random.below(30)};
        const std::uint64_t end = std::min(n, t + segment.global_batch * (1 + random.below(20)));
        deliver(spec, *order, segment, end, run);
        t = end;
        for (std::uint32_t i = 0; i < spec.parts.size(); ++i)
          ASSERT_EQ(schedule->count(i, epoch * n + t), run.counts[i]) << "t " << t;
        expect_even(spec, *order, t, run);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

/// Version 2 as docs/order.md says it, one event after the other: what a group gets of a source.
class PlainSource {
 public:
  PlainSource(const MixturePart& part, std::uint32_t groups) : part_(part), groups_(groups) {}

  std::uint64_t next(std::uint32_t group) {
    if (left_ == 0) begin_epoch();
    --left_;
    std::uint32_t owner = group;
    if (front_[group] < back_[group]) return sample(owner, front_[group]++);
    for (std::uint32_t g = 0; g < groups_; ++g)
      if (back_[g] - front_[g] > back_[owner] - front_[owner]) owner = g;
    return sample(owner, --back_[owner]);
  }

 private:
  void begin_epoch() {
    order_ = *EpochOrder::create(part_.order, part_.block_samples, epoch_++);
    front_.assign(groups_, 0);
    back_.assign(groups_, 0);
    for (std::uint32_t l = 0; l < order_->lane_count(); ++l)
      back_[l % groups_] += order_->lane_length(l);
    left_ = order_->sample_count();
  }
  std::uint64_t sample(std::uint32_t owner, std::uint64_t index) const {
    const std::uint64_t width = order_->lane_count() / groups_;
    const auto lane = owner + groups_ * static_cast<std::uint32_t>(index % width);
    const Window window = order_->window_at(lane, index / width);
    const WindowSample found = order_->sample_at(window, index / width);
    return order_->block_first_sample(window.pieces[found.piece].block) + found.sample_in_block;
  }

  const MixturePart& part_;
  const std::uint32_t groups_;
  std::uint64_t epoch_ = 0;
  std::uint64_t left_ = 0;
  std::shared_ptr<const LaneOrder> order_;
  std::vector<std::uint64_t> front_, back_;
};

TEST(MixtureModel, Version2GivesWhatGoingThroughItGives) {
  Random random(test_seed() + 7);
  std::uint64_t taken_over = 0;
  const std::uint64_t rounds =
      test_round_count() * (test_number("HEADRACE_LONG_TESTS", 0) > 0 ? 50 : 1);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + ", seed " + std::to_string(test_seed()));
    MixtureSpec spec = random_spec(random);
    spec.version = 2;
    std::vector<PlainSource> plain;
    std::vector<std::uint64_t> first = {0};
    for (const MixturePart& part : spec.parts) {
      plain.emplace_back(part, spec.groups);
      first.push_back(first.back() + source_samples(part));
    }
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
      const auto order = must_order(spec, epoch);
      const Segment segment{.start = 0, .global_batch = spec.groups};  // One step a batch.
      for (std::uint64_t t = 0; t < spec.epoch_samples; ++t) {
        const std::uint64_t id = order->dataset_position(t, segment);
        const std::uint32_t source = source_of(spec, id);
        const auto group = static_cast<std::uint32_t>(t % spec.groups);
        ASSERT_EQ(id - first[source], plain[source].next(group)) << "epoch " << epoch << " t " << t;
        const LanePosition place = order->locate(t, segment);
        const Window window = order->window_at(place.lane, place.position);
        taken_over += window.is_shuffled ? 0 : 1;
      }
    }
  }
  EXPECT_GT(taken_over, 0U) << "the rounds never reach what they are about";
}

// The same as in the issue that led to version 2: 17 samples in 16 groups.
TEST(MixtureModel, SamplesOfASmallSourceComeEquallyOften) {
  for (const std::uint32_t samples : {16U, 17U, 20U, 31U, 100U}) {
    MixtureSpec spec;
    spec.groups = 16;
    spec.batch = 64;
    spec.epoch_samples = 20'032;
    spec.changes = {{0, weights_of({1, 1})}};
    spec.parts = {make_part({samples}, 0, 1, 16), make_part({10'000, 10'000}, 1, 1, 16)};
    Delivered run;
    run.counts.resize(2);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch)
      deliver(spec, *must_order(spec, epoch), {.start = 0, .global_batch = 64}, 20'032, run);
    expect_equally_often(spec, run);
  }
}

TEST(MixtureModel, RanksOwnTheirLanes) {
  Random random(test_seed() + 1);
  for (int round = 0; round < 50; ++round) {
    MixtureSpec spec = random_spec(random);
    const auto order = must_order(spec, static_cast<std::uint64_t>(round % 3));
    std::map<std::uint32_t, std::uint32_t> owner;
    const std::uint32_t world = spec.groups;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      BatchPlan plan;
      plan.segment = {.start = 0, .global_batch = spec.batch};
      plan.sample_count = spec.epoch_samples;
      plan.rank = rank;
      plan.world_size = world;
      plan.epoch_end = EpochEnd::kDrop;
      const auto own = order->own_lanes(plan);
      for (const std::uint32_t lane : own)
        EXPECT_TRUE(owner.emplace(lane, rank).second) << "lane " << lane << " of two ranks";
      for (std::uint64_t k = 0; k < plan.batch_count(); ++k) {
        const auto slots = plan.slots(k);
        for (std::uint32_t i = 0; i < slots.count; ++i) {
          const std::uint32_t lane = order->locate(slots.sample(i), plan.segment).lane;
          EXPECT_EQ(owner.at(lane), rank);
        }
      }
    }
  }
}

TEST(MixtureModel, AddingASourceLeavesTheOthersWhereTheyWere) {
  MixtureSpec spec = small_spec();
  const auto before = must_order(spec, 1);
  MixtureSpec more = spec;
  more.parts.push_back(make_part({9, 9}, 2, 5, 2));
  more.changes.push_back({80, weights_of({1, 1, 2})});
  const auto after = must_order(more, 1);
  const Segment segment{.start = 0, .global_batch = 8};
  // tau 64 .. 79 is before the change.
  for (std::uint64_t t = 0; t < 16; ++t)
    EXPECT_EQ(before->dataset_position(t, segment), after->dataset_position(t, segment));
  Delivered run;
  run.counts.resize(3);
  deliver(more, *after, {.start = 16, .global_batch = 8}, 64, run);
  EXPECT_EQ(run.counts[2], 24U);
}

}  // namespace
}  // namespace headrace
