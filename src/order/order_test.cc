#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "base/test_seed.h"
#include "order/order_math.h"
#include "order/order_test_util.h"

namespace headrace {
namespace {

using order_math::Permutation;
using order_test::make_sequential_spec;
using order_test::make_spec;
using order_test::must_create;
using order_test::sequence;

const std::vector<std::uint32_t> kBlocks = {5, 3, 4, 7, 1, 6, 2, 8};

Code create_code(const OrderSpec& spec, std::span<const std::uint32_t> blocks) {
  auto order = EpochOrder::create(spec, blocks, 0);
  return order ? Code::kOk : order.error().code();
}

TEST(Permutation, IsABijectionForEverySmallSize) {
  for (std::uint64_t n = 1; n <= 300; ++n) {
    for (std::uint64_t key = 0; key < 8; ++key) {
      const Permutation permutation(order_math::mix(key + 1), n);
      std::vector<bool> seen(n);
      for (std::uint64_t i = 0; i < n; ++i) {
        const std::uint64_t value = permutation(i);
        ASSERT_LT(value, n);
        ASSERT_FALSE(seen[value]) << "n " << n << " key " << key;
        seen[value] = true;
      }
    }
  }
}

TEST(Permutation, IsABijectionAroundPowersOfTwo) {
  for (const std::uint64_t n : {4095U, 4096U, 4097U, 65537U}) {
    const Permutation permutation(n, n);
    std::vector<std::uint64_t> values(n);
    for (std::uint64_t i = 0; i < n; ++i) values[i] = permutation(i);
    std::sort(values.begin(), values.end());
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(values[i], i);
  }
}

// Chi-square over all 24 permutations of 4 values and over places of 100: 23 and 99 degrees of
// freedom; the bounds are more than 6 standard deviations above the mean, and fixed keys make the
// test repeatable.
TEST(Permutation, SmallPermutationsAreEquallyLikely) {
  std::vector<double> counts(256);
  constexpr double kKeys = 24'000;
  for (std::uint64_t key = 0; key < 24'000; ++key) {
    const Permutation permutation(order_math::mix(key), 4);
    counts[permutation(0) << 6 | permutation(1) << 4 | permutation(2) << 2 | permutation(3)] += 1;
  }
  double chi = 0;
  for (const double count : counts) {
    if (count > 0) chi += (count - kKeys / 24) * (count - kKeys / 24) / (kKeys / 24);
  }
  EXPECT_EQ(std::count_if(counts.begin(), counts.end(), [](double c) { return c > 0; }), 24);
  EXPECT_LT(chi, 23 + 6 * std::sqrt(46.0));
}

TEST(Permutation, EveryPlaceIsEquallyLikely) {
  constexpr std::uint64_t kSize = 100;
  constexpr std::uint64_t kKeys = 10'000;
  std::vector<double> counts(kSize);
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    counts[Permutation(order_math::mix(key), kSize)(37)] += 1;
  }
  double chi = 0;
  const double expected = static_cast<double>(kKeys) / kSize;
  for (const double count : counts) chi += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi, 99 + 6 * std::sqrt(198.0));
}

TEST(EpochOrder, SequentialIsTheDatasetOrder) {
  const auto order = must_create(make_sequential_spec(kBlocks), kBlocks);
  std::vector<std::uint64_t> expected(36);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(sequence(*order, {0, 5}), expected);
  EXPECT_EQ(order->lane_length(0), 36U);
  const Window window = order->window_at(0, 13);
  ASSERT_EQ(window.pieces.size(), 1U);
  EXPECT_EQ(window.pieces[0].block, 3U);
  EXPECT_EQ(window.first_position, 12U);
  EXPECT_EQ(window.sample_count, 7U);
}

TEST(EpochOrder, EpochsAndSeedsDiffer) {
  const OrderSpec spec = make_spec(kBlocks, 1, 4, 2, 2);
  OrderSpec other = spec;
  other.seed = 2;
  const auto base = sequence(*must_create(spec, kBlocks, 0), {0, 8});
  EXPECT_NE(base, sequence(*must_create(spec, kBlocks, 1), {0, 8}));
  EXPECT_NE(base, sequence(*must_create(other, kBlocks, 0), {0, 8}));
  EXPECT_EQ(base, sequence(*must_create(spec, kBlocks, 0), {0, 8}));
}

TEST(EpochOrder, FirstWindowsAreStaggered) {
  const std::vector<std::uint32_t> blocks(60, 10);
  const auto order = must_create(make_spec(blocks, 5, 3, 3, 1), blocks);
  EXPECT_EQ(order->window_at(0, 0).sample_count, 10U);
  EXPECT_EQ(order->window_at(1, 0).sample_count, 20U);
  EXPECT_EQ(order->window_at(2, 0).sample_count, 30U);
  EXPECT_EQ(order->window_at(0, 10).sample_count, 30U);
  EXPECT_EQ(order->window_at(0, 39).first_position, 10U);
  EXPECT_EQ(order->window_at(0, 199).sample_count, 10U) << "the last window has what is left";
}

TEST(EpochOrder, BlocksAreCutAtLaneEnds) {
  const std::vector<std::uint32_t> blocks = {10};
  const auto order = must_create(make_spec(blocks, 5, 3, 2, 1), blocks);
  EXPECT_EQ(order->lane_length(0), 4U);
  EXPECT_EQ(order->lane_length(1), 3U);
  const Window window = order->window_at(1, 2);
  ASSERT_EQ(window.pieces.size(), 1U);
  EXPECT_EQ(window.pieces[0].begin, 4U);
  EXPECT_EQ(window.pieces[0].end, 7U);
}

TEST(EpochOrder, NeighbouringSlotsComeFromDifferentLanes) {
  const std::vector<std::uint32_t> blocks(64, 32);
  const auto order = must_create(make_spec(blocks, 5, 16, 2, 4), blocks);
  const Segment segment{0, 64};
  for (std::uint64_t t = 0; t + 1 < 64; ++t) {
    EXPECT_NE(order->locate(t, segment).lane, order->locate(t + 1, segment).lane) << t;
  }
}

TEST(EpochOrder, RanksOwnTheirLanes) {
  const std::vector<std::uint32_t> blocks(64, 32);
  const auto order = must_create(make_spec(blocks, 5, 16, 2, 4), blocks);
  const Segment segment{0, 64};
  for (std::uint64_t t = 0; t < 2048; ++t) {
    const std::uint64_t rank = t % 64 / 16;
    EXPECT_EQ(order->locate(t, segment).lane / 4, rank) << t;
  }
}

TEST(EpochOrder, LargestWindowWeightIsTheMaximumOverAllWindows) {
  const std::vector<std::uint32_t> blocks = {5, 3, 4, 7, 1, 6, 2, 8, 9, 9, 1, 3, 2};
  std::vector<std::uint64_t> bytes;
  for (std::uint64_t i = 0; i < blocks.size(); ++i) bytes.push_back(1000 + i * i * 37 % 101);
  for (std::uint32_t lanes = 1; lanes <= 12; ++lanes) {
    const auto order = must_create(make_spec(blocks, lanes, lanes, 1 + lanes % 3, 1), blocks);
    std::uint64_t largest = 0;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      for (std::uint64_t position = 0; position < order->lane_length(lane); ++position) {
        std::uint64_t weight = 0;
        for (const Piece& piece : order->window_at(lane, position).pieces)
          weight += bytes[piece.block];
        largest = std::max(largest, weight);
      }
    }
    EXPECT_EQ(order->largest_window_weight(bytes), largest) << lanes << " lanes";
  }
}

TEST(EpochOrder, RefusesWrongSpecs) {
  const OrderSpec good = make_spec(kBlocks, 1, 4, 2, 2);
  EXPECT_EQ(create_code(good, kBlocks), Code::kOk);
  const auto changed = [&](auto change) {
    OrderSpec spec = good;
    change(spec);
    return create_code(spec, kBlocks);
  };
  EXPECT_EQ(changed([](OrderSpec& s) { s.id = "mosaic:py1e"; }), Code::kUnsupported);
  EXPECT_EQ(changed([](OrderSpec& s) { s.version = 2; }), Code::kUnsupported);
  EXPECT_EQ(changed([](OrderSpec& s) { s.lane_count = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(changed([](OrderSpec& s) { s.window_blocks = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(changed([](OrderSpec& s) { s.bundle_lanes = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(changed([](OrderSpec& s) { s.bundle_lanes = 3; }), Code::kInvalidArgument);
  EXPECT_EQ(changed([](OrderSpec& s) { s.lane_count = 38; }), Code::kInvalidArgument);
  EXPECT_EQ(changed([](OrderSpec& s) { s.block_table_digest ^= 1; }), Code::kInvalidArgument);
  EXPECT_EQ(changed([](OrderSpec& s) { s.id = "sequential"; }), Code::kInvalidArgument);
}

TEST(EpochOrder, RefusesEmptyTablesAndBlocks) {
  EXPECT_EQ(create_code(make_spec({}, 1, 1, 1, 1), {}), Code::kInvalidArgument);
  const std::vector<std::uint32_t> hole = {3, 0, 2};
  EXPECT_EQ(create_code(make_spec(hole, 1, 1, 1, 1), hole), Code::kInvalidArgument);
}

TEST(BatchPlan, PadsByRepeatingTheLastBatch) {
  const BatchPlan plan{.segment = {0, 8}, .sample_count = 19, .rank = 1, .world_size = 2};
  ASSERT_EQ(plan.batch_count(), 3U);
  const auto slots = plan.slots(2);  // Samples 16, 17, 18; this rank has slots 4 to 7.
  ASSERT_EQ(slots.count, 4U);
  const std::uint64_t expected[] = {17, 18, 16, 17};
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(slots.sample(i), expected[i]);
    EXPECT_FALSE(slots.is_real(i));
  }
  EXPECT_EQ(plan.t_after(1), 16U);
  EXPECT_EQ(plan.t_after(2), 19U);
}

TEST(BatchPlan, DropsTheLastBatch) {
  BatchPlan plan{.segment = {3, 8}, .sample_count = 19, .epoch_end = EpochEnd::kDrop};
  EXPECT_EQ(plan.batch_count(), 2U);
  plan.segment.start = 12;
  EXPECT_EQ(plan.batch_count(), 0U);
}

TEST(BatchPlan, SharesTheLastBatchUnevenly) {
  BatchPlan plan{
      .segment = {0, 12}, .sample_count = 16, .world_size = 3, .epoch_end = EpochEnd::kUneven};
  const std::uint32_t counts[] = {1, 1, 2};
  const std::uint64_t firsts[] = {12, 13, 14};
  for (plan.rank = 0; plan.rank < 3; ++plan.rank) {
    EXPECT_EQ(plan.slots(1).count, counts[plan.rank]);
    EXPECT_EQ(plan.slots(1).first, firsts[plan.rank]);
    EXPECT_TRUE(plan.slots(1).is_real(0));
  }
  plan = {.segment = {0, 12},
          .sample_count = 13,
          .rank = 0,
          .world_size = 3,
          .epoch_end = EpochEnd::kUneven};
  EXPECT_EQ(plan.slots(1).count, 0U) << "some ranks get none";
}

TEST(BatchPlan, NothingIsLeftAtTheEnd) {
  const BatchPlan plan{.segment = {16, 4}, .sample_count = 16};
  EXPECT_EQ(plan.batch_count(), 0U);
}

TEST(OrderQuality, DefaultSettingsMixLikeAFullShuffle) {
  struct Case {
    std::uint32_t blocks, block_samples;
    std::uint64_t global_batch;
  };
  for (const Case& c : {Case{128, 2048, 64}, Case{128, 2048, 256}, Case{500, 2000, 1024}}) {
    const std::vector<std::uint32_t> blocks(c.blocks, c.block_samples);
    const std::uint64_t total = std::uint64_t{c.blocks} * c.block_samples;
    const LaneChoice choice = choose_lanes({.global_batch = c.global_batch,
                                            .sample_count = total,
                                            .block_count = c.blocks,
                                            .window_blocks = 2,
                                            .window_bytes = 16 << 20,
                                            .memory_bytes = std::uint64_t{4} << 30});
    const auto order =
        must_create(make_spec(blocks, 11, choice.lane_count, 2, choice.bundle_lanes), blocks);
    const OrderQuality quality = measure_quality(*order, {0, c.global_batch}, 1 << 14);
    EXPECT_GT(quality.mean_jump, 0.9 * quality.mean_jump_full);
    EXPECT_LT(quality.mean_jump, 1.1 * quality.mean_jump_full);
    EXPECT_LT(std::abs(quality.neighbour_correlation), 0.1);
    EXPECT_NEAR(quality.mean_displacement, 1.0 / 3, 0.05);
    EXPECT_GT(quality.blocks_per_batch, 0.9 * choice.lane_count);
  }
}

TEST(OrderQuality, KnowsASequentialOrder) {
  const std::vector<std::uint32_t> blocks(10, 100);
  const auto order = must_create(make_sequential_spec(blocks), blocks);
  const OrderQuality quality = measure_quality(*order, {0, 50});
  EXPECT_DOUBLE_EQ(std::round(quality.mean_jump * 1e6) / 1e6, 1.0);
  EXPECT_NEAR(quality.mean_displacement, 0, 1e-12);
  EXPECT_GT(quality.neighbour_correlation, 0.999);
  EXPECT_DOUBLE_EQ(quality.blocks_per_batch, 1.0);
  EXPECT_EQ(measure_quality(*order, {1000, 50}).mean_jump, 0) << "nothing left to measure";
}

std::pair<std::uint32_t, std::uint32_t> lanes_and_bundle(const LaneNeeds& needs) {
  const LaneChoice choice = choose_lanes(needs);
  EXPECT_EQ(choice.lane_count % choice.bundle_lanes, 0U);
  return {choice.lane_count, choice.bundle_lanes};
}

/// A large dataset and memory for 100 windows.
LaneNeeds needs_of(std::uint64_t batch, std::uint64_t windows = 100) {
  return {.global_batch = batch,
          .sample_count = 1'000'000,
          .block_count = 10'000,
          .window_blocks = 2,
          .window_bytes = 1000,
          .memory_bytes = windows * 1500};
}

TEST(ChooseLanes, TakesTheLargestDivisorOrMultipleWithinTheLimit) {
  EXPECT_EQ(lanes_and_bundle(needs_of(64)), std::pair(64U, 2U));
  EXPECT_EQ(lanes_and_bundle(needs_of(256)), std::pair(64U, 2U));
  EXPECT_EQ(lanes_and_bundle(needs_of(48)), std::pair(48U, 2U));
  EXPECT_EQ(lanes_and_bundle(needs_of(16)), std::pair(64U, 2U)) << "a multiple of a small batch";
  EXPECT_EQ(lanes_and_bundle(needs_of(1024, 1000)), std::pair(128U, 2U)) << "G / 8";
  EXPECT_EQ(lanes_and_bundle(needs_of(64, 8)), std::pair(8U, 1U)) << "memory for 8 windows";
  EXPECT_EQ(lanes_and_bundle(needs_of(127)), std::pair(64U, 2U)) << "an awkward batch";
}

TEST(ChooseLanes, NeverExceedsTheDataset) {
  LaneNeeds needs = needs_of(64);
  needs.sample_count = 5;
  EXPECT_LE(choose_lanes(needs).lane_count, 5U);
  needs = needs_of(64);
  needs.block_count = 3;
  EXPECT_EQ(choose_lanes(needs).lane_count, 8U) << "lanes smaller than a block mix its samples";
  needs.block_count = 1;
  EXPECT_EQ(choose_lanes(needs).lane_count, 1U) << "one window mixes all of it";
}

// One lane would give all of one block before the next: its first window holds a single piece.
TEST(ChooseLanes, MixesTheBlocksOfASmallDataset) {
  for (const std::uint64_t batch : {1U, 7U, 32U, 100U}) {
    for (std::uint32_t block_count = 2; block_count <= 40; ++block_count) {
      const std::vector<std::uint32_t> blocks(block_count, 256);
      const LaneChoice choice = choose_lanes({.global_batch = batch,
                                              .sample_count = 256U * block_count,
                                              .block_count = block_count,
                                              .window_blocks = 2,
                                              .window_bytes = 1 << 20,
                                              .memory_bytes = 1 << 30});
      const OrderSpec spec = make_spec(blocks, 5, choice.lane_count, 2, choice.bundle_lanes);
      // A full shuffle has 1/3; the few blocks of one epoch scatter around it.
      for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
        const auto quality = measure_quality(*must_create(spec, blocks, epoch), {0, batch});
        EXPECT_NEAR(quality.mean_displacement, 1.0 / 3, 0.12)
            << block_count << " blocks, batch " << batch << ", " << choice.lane_count << " lanes";
      }
    }
  }
}

TEST(LaneReaders, AreOneWhereRanksOwnTheirLanes) {
  for (const std::uint64_t batch : {8U, 16U, 64U, 96U, 256U, 1024U}) {
    const auto [lanes, bundle] = lanes_and_bundle(needs_of(batch));
    const std::vector<std::uint32_t> blocks(200, 50);
    const auto order = must_create(make_spec(blocks, 1, lanes, 2, bundle), blocks);
    for (const std::uint32_t ranks : {1U, 2U, 4U, 8U})
      EXPECT_EQ(order->lane_readers(batch, ranks), 1) << batch << " on " << ranks;
  }
}

// Against the lanes that the slots of whole epochs touch.
TEST(LaneReaders, CountsTheRanksOfEachLane) {
  Random random(test_seed());
  for (int round = 0; round < 300; ++round) {
    const auto bundle = static_cast<std::uint32_t>(1 + random.below(4));
    const std::uint32_t lanes = bundle * static_cast<std::uint32_t>(1 + random.below(12));
    const auto ranks = static_cast<std::uint32_t>(1 + random.below(8));
    const std::uint64_t batch = ranks * (1 + random.below(40));
    const std::vector<std::uint32_t> blocks(7, static_cast<std::uint32_t>(lanes * batch));
    const auto order =
        must_create(make_spec(blocks, static_cast<std::uint64_t>(round), lanes, 1, bundle), blocks);
    BatchPlan plan{.segment = {0, batch},
                   .sample_count = order->sample_count(),
                   .rank = 0,
                   .world_size = ranks,
                   .epoch_end = EpochEnd::kDrop};
    std::uint64_t read = 0;
    for (; plan.rank < ranks; ++plan.rank) read += order->own_lanes(plan).size();
    EXPECT_DOUBLE_EQ(order->lane_readers(batch, ranks), static_cast<double>(read) / lanes)
        << lanes << " lanes, bundles of " << bundle << ", " << batch << " on " << ranks;
  }
}

}  // namespace
}  // namespace headrace
