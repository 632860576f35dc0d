// Random runs of an epoch against what must hold of all of them: whatever the block table, lanes,
// batch sizes, world sizes and stops, every sample comes exactly once, and global batches do not
// depend on the number of ranks or on stops.
#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "order/order_test_util.h"

namespace headrace {
namespace {

using order_test::make_spec;
using order_test::must_create;

struct Scenario {
  std::vector<std::uint32_t> blocks;
  std::uint64_t total = 0;
  std::shared_ptr<const LaneOrder> order;
};

std::uint32_t draw(Random& random, std::uint32_t low, std::uint32_t high) {
  return low + static_cast<std::uint32_t>(random.below(high - low + 1));
}

Scenario random_scenario(Random& random) {
  Scenario scenario;
  const std::uint32_t count = draw(random, 1, 24);
  const std::uint32_t largest = random.below(4) == 0 ? 2 : 20;
  for (std::uint32_t i = 0; i < count; ++i) scenario.blocks.push_back(draw(random, 1, largest));
  scenario.total =
      std::accumulate(scenario.blocks.begin(), scenario.blocks.end(), std::uint64_t{0});
  const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(scenario.total, 16));
  const std::uint32_t lanes = draw(random, 1, most);
  std::uint32_t bundle = draw(random, 1, lanes);
  while (lanes % bundle != 0) --bundle;
  const OrderSpec spec =
      make_spec(scenario.blocks, random.next(), lanes, draw(random, 1, 4), bundle);
  scenario.order = must_create(spec, scenario.blocks, random.below(5));
  return scenario;
}

/// Global batch size and world size of the next part of a run; often the first is a multiple of the
/// lanes.
std::pair<std::uint64_t, std::uint32_t> random_part(Random& random, const Scenario& scenario) {
  const std::uint32_t ranks = draw(random, 1, 6);
  std::uint64_t batch = std::uint64_t{ranks} * draw(random, 1, 8);
  if (random.below(2) == 0) batch *= scenario.order->spec().lane_count;
  return {batch, ranks};
}

BatchPlan make_plan(const Scenario& scenario, Segment segment, std::uint32_t rank,
                    std::uint32_t ranks, EpochEnd end) {
  return {.segment = segment,
          .sample_count = scenario.total,
          .rank = rank,
          .world_size = ranks,
          .epoch_end = end};
}

/// Real samples of global batch k, all ranks in order of rank.
std::vector<std::uint64_t> global_batch(const Scenario& scenario, Segment segment,
                                        std::uint32_t ranks, EpochEnd end, std::uint64_t k) {
  std::vector<std::uint64_t> out;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto slots = make_plan(scenario, segment, rank, ranks, end).slots(k);
    for (std::uint32_t i = 0; i < slots.count; ++i) {
      const std::uint64_t position = scenario.order->dataset_position(slots.sample(i), segment);
      if (slots.is_real(i)) out.push_back(position);
    }
  }
  return out;
}

class OrderModel : public testing::Test {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(test_seed())); }
};

TEST_F(OrderModel, EverySampleExactlyOnceThroughAnyChanges) {
  for (std::uint64_t run = 0; run < 1500; ++run) {
    Random random(test_seed() + run);
    SCOPED_TRACE("HEADRACE_TEST_SEED=" + std::to_string(test_seed() + run));
    const Scenario scenario = random_scenario(random);
    const EpochEnd end = random.below(2) == 0 ? EpochEnd::kPad : EpochEnd::kUneven;
    std::vector<int> seen(scenario.total);
    std::uint64_t t = 0;
    while (t < scenario.total) {
      const auto [batch, ranks] = random_part(random, scenario);
      const Segment segment{t, batch};
      const std::uint64_t batches = make_plan(scenario, segment, 0, ranks, end).batch_count();
      const std::uint64_t stop = 1 + random.below(batches);
      for (std::uint64_t k = 0; k < stop; ++k) {
        for (const std::uint64_t position : global_batch(scenario, segment, ranks, end, k))
          ++seen[position];
      }
      t = make_plan(scenario, segment, 0, ranks, end).t_after(stop - 1);
      // The consumed set is the lane prefixes that t alone names.
      std::uint64_t consumed = 0;
      for (std::uint32_t lane = 0; lane < scenario.order->spec().lane_count; ++lane) {
        consumed += scenario.order->lane_consumed(lane, t);
      }
      ASSERT_EQ(consumed, t);
    }
    ASSERT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(scenario.total));
  }
}

TEST_F(OrderModel, PrefixesAtBatchBoundariesAreLanePrefixes) {
  for (std::uint64_t run = 0; run < 300; ++run) {
    Random random(test_seed() + run);
    SCOPED_TRACE("HEADRACE_TEST_SEED=" + std::to_string(test_seed() + run));
    const Scenario scenario = random_scenario(random);
    const Segment segment{0, random_part(random, scenario).first};
    std::vector<std::vector<bool>> given(scenario.order->spec().lane_count);
    for (std::uint32_t l = 0; l < given.size(); ++l)
      given[l].resize(scenario.order->lane_length(l));
    for (std::uint64_t t = 0; t < scenario.total; ++t) {
      if (t % segment.global_batch == 0) {
        for (std::uint32_t l = 0; l < given.size(); ++l) {
          const auto prefix = static_cast<std::ptrdiff_t>(scenario.order->lane_consumed(l, t));
          ASSERT_EQ(std::count(given[l].begin(), given[l].end(), true), prefix);
          ASSERT_EQ(std::count(given[l].begin(), given[l].begin() + prefix, true), prefix);
        }
      }
      const LanePosition place = scenario.order->locate(t, segment);
      ASSERT_FALSE(given[place.lane][place.position]);
      given[place.lane][place.position] = true;
    }
  }
}

TEST_F(OrderModel, BatchesDoNotDependOnRanksOrStops) {
  for (std::uint64_t run = 0; run < 300; ++run) {
    Random random(test_seed() + run);
    SCOPED_TRACE("HEADRACE_TEST_SEED=" + std::to_string(test_seed() + run));
    const Scenario scenario = random_scenario(random);
    const auto [batch, ranks] = random_part(random, scenario);
    const Segment whole{0, batch};
    const std::uint64_t batches =
        make_plan(scenario, whole, 0, ranks, EpochEnd::kPad).batch_count();
    const std::uint64_t stop = random.below(batches);
    const Segment rest{stop * batch, batch};
    for (std::uint64_t k = 0; k < batches; ++k) {
      const auto expected = global_batch(scenario, whole, 1, EpochEnd::kPad, k);
      ASSERT_EQ(global_batch(scenario, whole, ranks, EpochEnd::kPad, k), expected);
      ASSERT_EQ(global_batch(scenario, whole, ranks, EpochEnd::kUneven, k), expected);
      if (k >= stop) {
        ASSERT_EQ(global_batch(scenario, rest, ranks, EpochEnd::kPad, k - stop), expected);
      }
    }
  }
}

TEST_F(OrderModel, PaddingRepeatsSamplesOfItsBatch) {
  for (std::uint64_t run = 0; run < 200; ++run) {
    Random random(test_seed() + run);
    SCOPED_TRACE("HEADRACE_TEST_SEED=" + std::to_string(test_seed() + run));
    const Scenario scenario = random_scenario(random);
    const auto [batch, ranks] = random_part(random, scenario);
    const std::uint64_t last =
        make_plan(scenario, {0, batch}, 0, ranks, EpochEnd::kPad).batch_count() - 1;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto slots = make_plan(scenario, {0, batch}, rank, ranks, EpochEnd::kPad).slots(last);
      ASSERT_EQ(slots.count, batch / ranks);
      for (std::uint32_t i = 0; i < slots.count; ++i) {
        ASSERT_GE(slots.sample(i), slots.batch_start);
        ASSERT_LT(slots.sample(i), scenario.total);
        ASSERT_EQ(slots.is_real(i), slots.sample(i) == slots.first + i);
      }
    }
  }
}

TEST_F(OrderModel, WindowsTileTheirLanes) {
  for (std::uint64_t run = 0; run < 300; ++run) {
    Random random(test_seed() + run);
    SCOPED_TRACE("HEADRACE_TEST_SEED=" + std::to_string(test_seed() + run));
    const Scenario scenario = random_scenario(random);
    std::vector<int> seen(scenario.total);
    for (std::uint32_t lane = 0; lane < scenario.order->spec().lane_count; ++lane) {
      std::uint64_t position = 0;
      while (position < scenario.order->lane_length(lane)) {
        const Window window = scenario.order->window_at(lane, position);
        ASSERT_EQ(window.first_position, position);
        ASSERT_LE(window.pieces.size(), scenario.order->spec().window_blocks);
        std::uint64_t count = 0;
        for (const Piece& piece : window.pieces) {
          ASSERT_LT(piece.begin, piece.end);
          ASSERT_LE(piece.end, scenario.blocks[piece.block]);
          const std::uint64_t first = scenario.order->block_first_sample(piece.block);
          for (std::uint64_t s = piece.begin; s < piece.end; ++s) ++seen[first + s];
          count += piece.end - piece.begin;
        }
        ASSERT_EQ(count, window.sample_count);
        const Window same = scenario.order->window_at(lane, position + window.sample_count - 1);
        ASSERT_EQ(same.first_position, window.first_position);
        ASSERT_EQ(same.key, window.key);
        position += window.sample_count;
      }
      ASSERT_EQ(position, scenario.order->lane_length(lane));
    }
    ASSERT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(scenario.total));
  }
}

}  // namespace
}  // namespace headrace
