// NeedIndex against brute force: what each batch takes, sample by sample.
#include "order/need_index.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "base/random.h"
#include "headrace/mixture.h"
#include "order/laned_needs.h"
#include "order/listed_needs.h"
#include "order/order_test_util.h"

namespace headrace {
namespace {

using order_test::make_spec;
using order_test::must_create;
using order_test::must_list;
using Ranks = NeedIndex::Ranks;
using Truth = std::map<std::uint32_t, std::set<std::uint64_t>>;  ///< Batches, by block.

std::uint32_t draw(Random& random, std::uint32_t low, std::uint32_t high) {
  return low + static_cast<std::uint32_t>(random.below(high - low + 1));
}

std::vector<std::uint32_t> random_blocks(Random& random) {
  std::vector<std::uint32_t> blocks(draw(random, 1, 24));
  const std::uint32_t largest = random.below(4) == 0 ? 2 : 20;
  for (std::uint32_t& count : blocks) count = draw(random, 1, largest);
  return blocks;
}

std::uint64_t sum_of(std::span<const std::uint32_t> blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), std::uint64_t{0});
}

BatchPlan random_plan(Random& random, std::uint64_t samples, std::uint32_t lanes, bool is_fresh) {
  BatchPlan plan;
  plan.world_size = draw(random, 1, 6);
  plan.segment.global_batch = std::uint64_t{plan.world_size} * draw(random, 1, 8);
  if (random.below(2) == 0) plan.segment.global_batch *= lanes;
  plan.sample_count = samples;
  plan.segment.start = is_fresh || random.below(2) == 0 ? 0 : random.below(samples);
  if (random.below(2) == 0) plan.segment.start -= plan.segment.start % lanes;
  const EpochEnd ends[] = {EpochEnd::kPad, EpochEnd::kDrop, EpochEnd::kUneven};
  plan.epoch_end = ends[random.below(3)];
  return plan;
}

Ranks random_ranks(Random& random, const BatchPlan& plan) {
  Ranks ranks;
  ranks.first = draw(random, 0, plan.world_size - 1);
  ranks.count = draw(random, 1, plan.world_size - ranks.first);
  return ranks;
}

/// Calls `take(k, place)` for every real sample that the ranks take.
template <class Take>
void for_each_taken(const EpochOrder& order, BatchPlan plan, Ranks ranks, Take take) {
  for (std::uint64_t k = 0; k < plan.batch_count(); ++k) {
    for (plan.rank = ranks.first; plan.rank < ranks.first + ranks.count; ++plan.rank) {
      const BatchPlan::Slots slots = plan.slots(k);
      for (std::uint32_t i = 0; i < slots.count; ++i) {
        if (slots.is_real(i)) take(k, order.locate(slots.sample(i), plan.segment));
      }
    }
  }
}

Truth truth_of_lanes(const LaneOrder& order, const BatchPlan& plan, Ranks ranks) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::pair<std::uint64_t, std::uint64_t>> spans;
  for_each_taken(order, plan, ranks, [&](std::uint64_t k, const LanePosition& place) {
    const Window window = order.window_at(place.lane, place.position);
    const auto [span, is_new] = spans.try_emplace({place.lane, window.first_position}, k, k);
    span->second.second = k;
  });
  Truth truth;
  for (const auto& [key, span] : spans) {
    const auto [lane, first_position] = key;
    const Window window = order.window_at(lane, first_position);
    for (std::uint64_t position =
             std::max(first_position, order.lane_consumed(lane, plan.segment.start));
         position < first_position + window.sample_count; ++position) {
      const std::uint32_t block = order.find({lane, position}).block;
      for (std::uint64_t k = span.first; k <= span.second; ++k) truth[block].insert(k);
    }
  }
  return truth;
}

Truth truth_of_list(const EpochOrder& order, const BatchPlan& plan, Ranks ranks) {
  Truth truth;
  for_each_taken(order, plan, ranks, [&](std::uint64_t k, const LanePosition& place) {
    if (place.lane != kNoLane) truth[place.lane].insert(k);
  });
  return truth;
}

/// `end`: batches from it on are unknown.
void expect_next(const NeedIndex& needs, const Truth& truth, std::uint32_t blocks,
                 std::uint64_t from, std::uint64_t end) {
  for (std::uint32_t block = 0; block < blocks; ++block) {
    std::uint64_t expected = kNever;
    if (const auto found = truth.find(block); found != truth.end()) {
      const auto next = found->second.lower_bound(from);
      if (next != found->second.end() && *next < end) expected = *next;
    }
    ASSERT_EQ(needs.next_need(block, from), expected) << "block " << block << " from " << from;
  }
}

void expect_all(const NeedIndex& needs, const Truth& truth, std::uint32_t blocks,
                const BatchPlan& plan) {
  for (std::uint64_t from = 0; from <= plan.batch_count() + 1; ++from)
    ASSERT_NO_FATAL_FAILURE(expect_next(needs, truth, blocks, from, kNever));
}

TEST(NeedIndex, KnowsWhenLanesNeedABlock) {
  for (std::uint64_t run = 0; run < 10 * test_round_count(); ++run) {
    Random random(test_seed() + run);
    SCOPED_TRACE("HEADRACE_TEST_SEED=" + std::to_string(test_seed() + run));
    const auto blocks = random_blocks(random);
    const std::uint64_t samples = sum_of(blocks);
    const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(samples, 16));
    const std::uint32_t lanes = draw(random, 1, most);
    std::uint32_t bundle = draw(random, 1, lanes);
    while (lanes % bundle != 0) --bundle;
    const auto order =
        must_create(make_spec(blocks, random.next(), lanes, draw(random, 1, 4), bundle), blocks);
    const BatchPlan plan = random_plan(random, samples, lanes, false);
    const Ranks ranks = random_ranks(random, plan);
    const auto count = static_cast<std::uint32_t>(blocks.size());
    const auto needs = NeedIndex::create(order, count, plan, ranks);
    ASSERT_NO_FATAL_FAILURE(expect_all(*needs, truth_of_lanes(*order, plan, ranks), count, plan));
    for (std::uint64_t t = plan.segment.start; t < samples; ++t) {
      const LanePosition place = order->locate(t, plan.segment);
      ASSERT_EQ(order->global_sample(place.lane, place.position, plan.segment), t);
    }
  }
}

TEST(NeedIndex, KnowsWhenAMixtureNeedsABlockAgain) {
  std::uint64_t repeats = 0;
  for (std::uint64_t run = 0; run < 3 * test_round_count(); ++run) {
    Random random(test_seed() + run);
    SCOPED_TRACE("HEADRACE_TEST_SEED=" + std::to_string(test_seed() + run));
    MixtureSpec spec;
    spec.seed = random.next();
    spec.version = draw(random, 1, 2);
    spec.groups = 1U << random.below(3);
    spec.batch = spec.groups * draw(random, 1, 4);
    spec.epoch_samples = spec.batch * draw(random, 4, 40);
    spec.changes = {{0, *mixture_weights(std::vector<double>{3, 1 + double(random.below(6))})}};
    std::uint32_t count = 0;
    for (std::uint32_t part = 0; part < 2; ++part) {
      auto blocks = random_blocks(random);
      while (sum_of(blocks) < 8) blocks.push_back(8);
      count += static_cast<std::uint32_t>(blocks.size());
      const std::uint32_t lanes = spec.groups * draw(random, 1, 8 / spec.groups);
      spec.parts.push_back(
          {.order = make_spec(blocks, mixture_part_seed(spec.seed, part), lanes, 2, 1),
           .block_samples = blocks});
    }
    auto schedule = MixtureSchedule::create(spec);
    ASSERT_TRUE(schedule) << schedule.error().message();
    auto order =
        MixtureOrder::create(*schedule, std::make_shared<MixtureSpec>(spec), random.below(3));
    ASSERT_TRUE(order) << order.error().message();
    const BatchPlan plan = random_plan(random, spec.epoch_samples, spec.groups, false);
    const Ranks ranks = random_ranks(random, plan);
    const Truth truth = truth_of_lanes(**order, plan, ranks);
    const auto needs = NeedIndex::create(*order, count, plan, ranks);
    ASSERT_NO_FATAL_FAILURE(expect_all(*needs, truth, count, plan));
    for (const auto& [block, batches] : truth)
      repeats += *batches.rbegin() - *batches.begin() + 1 > batches.size() ? 1 : 0;
    for (std::uint64_t t = plan.segment.start; t < spec.epoch_samples; ++t) {
      const LanePosition place = (*order)->locate(t, plan.segment);
      ASSERT_EQ((*order)->global_sample(place.lane, place.position, plan.segment), t);
    }
  }
  EXPECT_GT(repeats, 0U) << "no block came again: the test shows nothing";
}

struct ListRun {
  std::vector<std::uint32_t> blocks;
  std::shared_ptr<const EpochOrder> order;
  BatchPlan plan;
  Ranks ranks;
};

ListRun random_list(Random& random) {
  ListRun run;
  run.blocks = random_blocks(random);
  const std::uint64_t samples = sum_of(run.blocks);
  std::vector<std::int64_t> ids(1 + random.below(300));
  for (std::int64_t& id : ids)
    id = random.below(10) == 0 ? -1 : static_cast<std::int64_t>(random.below(samples));
  run.plan = random_plan(random, ids.size(), 1, true);
  run.order = must_list(run.blocks, std::move(ids));
  run.ranks = random_ranks(random, run.plan);
  return run;
}

TEST(NeedIndex, KnowsWhenAListNeedsABlock) {
  for (std::uint64_t round = 0; round < 10 * test_round_count(); ++round) {
    Random random(test_seed() + round);
    SCOPED_TRACE("HEADRACE_TEST_SEED=" + std::to_string(test_seed() + round));
    const ListRun run = random_list(random);
    const auto count = static_cast<std::uint32_t>(run.blocks.size());
    const auto needs = NeedIndex::create(run.order, count, run.plan, run.ranks);
    EXPECT_EQ(needs->known_end(), 0U);
    if (run.plan.batch_count() > 0) needs->look_ahead(run.plan.batch_count() - 1);
    ASSERT_EQ(needs->known_end(), run.plan.batch_count());
    ASSERT_NO_FATAL_FAILURE(
        expect_all(*needs, truth_of_list(*run.order, run.plan, run.ranks), count, run.plan));
  }
}

TEST(NeedIndex, ForgetsWhatAListHasPassed) {
  for (std::uint64_t round = 0; round < 5 * test_round_count(); ++round) {
    Random random(test_seed() + round);
    SCOPED_TRACE("HEADRACE_TEST_SEED=" + std::to_string(test_seed() + round));
    const ListRun run = random_list(random);
    const auto count = static_cast<std::uint32_t>(run.blocks.size());
    const Truth truth = truth_of_list(*run.order, run.plan, run.ranks);
    // Numbers of uses pass the end of 32 bits meanwhile.
    const std::uint64_t first = (std::uint64_t{1} << 32) - random.below(40);
    ListedNeeds needs(run.order, count, run.plan, run.ranks, first);
    std::uint64_t uses = 0;
    for (std::uint64_t head = 0; head < run.plan.batch_count(); ++head) {
      needs.look_ahead(head);
      const std::uint64_t from = head + random.below(3);
      ASSERT_NO_FATAL_FAILURE(expect_next(needs, truth, count, from, needs.known_end()));
      ListedNeeds::Use use;
      for (; needs.pass_use(head, use); ++uses) {
        ASSERT_EQ(use.batch, head);
        ASSERT_TRUE(truth.at(use.block).contains(head));
        ASSERT_EQ(needs.batch_of_use(use.next), needs.next_need(use.block, head + 1));
      }
    }
    std::uint64_t expected = 0;
    for (const auto& [block, batches] : truth) expected += batches.size();
    EXPECT_EQ(uses, expected);
    EXPECT_EQ(needs.passed_uses(), needs.known_uses());
  }
}

TEST(NeedIndex, ReadsALongListInPieces) {
  const std::vector<std::uint32_t> blocks(50'000, 1);
  std::vector<std::int64_t> ids(200'000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i % 50'000);
  BatchPlan plan;
  plan.segment = {0, 100};
  plan.sample_count = ids.size();
  ListedNeeds needs(must_list(blocks, std::move(ids)), 50'000, plan, {});
  needs.look_ahead(0);
  EXPECT_LT(needs.known_end(), 400U) << "the first batch waits for more than it needs";
  EXPECT_GT(needs.known_end(), 100U);
  EXPECT_EQ(needs.next_need(0, 1), kNever) << "comes again in batch 500, not known yet";
  EXPECT_TRUE(needs.may_learn());
  needs.look_ahead(500);
  EXPECT_EQ(needs.next_need(0, 1), 500U);
}

TEST(NeedIndex, TakesSixteenBytesABlockForLanes) {
  Random random(test_seed());
  std::vector<std::uint32_t> blocks(100'000);
  for (std::uint32_t& count : blocks) count = draw(random, 1, 2'000);
  const auto order = must_create(make_spec(blocks, 7, 64, 2, 2), blocks);
  BatchPlan plan;
  plan.segment = {0, 1'024};
  plan.sample_count = sum_of(blocks);
  plan.world_size = 16;
  const LanedNeeds node(*order, 100'000, plan, {.first = 0, .count = 8});
  EXPECT_LE(node.memory_bytes(), 16 * blocks.size());
  std::uint64_t needed = 0;
  for (std::uint32_t block = 0; block < blocks.size(); ++block)
    needed += node.next_need(block, 0) != kNever ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(needed), 50'000, 1'000) << "half of the lanes are this node's";
}

TEST(NeedIndex, IsNeverTooLateWhereBatchesPassThirtyTwoBits) {
  const std::vector<std::uint32_t> blocks(20, std::uint32_t{1} << 30);
  const auto order = must_create(make_spec(blocks, 3, 2, 2, 1), blocks);
  BatchPlan plan;
  plan.segment = {0, 1};
  plan.sample_count = sum_of(blocks);
  const LanedNeeds needs(*order, 20, plan, {});
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    for (std::uint64_t position = 0; position < order->lane_length(lane);) {
      const Window window = order->window_at(lane, position);
      const std::uint64_t first = order->batch_of(lane, window.first_position, plan.segment);
      for (const Piece& piece : window.pieces) {
        const std::uint64_t next = needs.next_need(piece.block, 0);
        EXPECT_LE(next, first);
        EXPECT_LE(first - next, 8U) << "rounded to 2^33 / 2^32 batches and a little";
      }
      position = window.first_position + window.sample_count;
    }
  }
}

}  // namespace
}  // namespace headrace
