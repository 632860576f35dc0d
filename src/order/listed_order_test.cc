#include <gtest/gtest.h>

#include "base/random.h"
#include "headrace/order_source.h"
#include "order/order_test_util.h"

namespace headrace {
namespace {

using order_test::must_list;
using order_test::VectorList;

TEST(ListedOrder, DeliversTheListWithItsRepeatsAndHoles) {
  const std::vector<std::uint32_t> blocks = {3, 1, 5};
  const std::vector<std::int64_t> ids = {8, 0, -1, 3, 3, 2, 4, -1};
  const auto order = must_list(blocks, ids);
  EXPECT_EQ(order->lanes(), nullptr);
  EXPECT_EQ(order->spec().id, "mosaic:test");
  EXPECT_EQ(order->epoch(), 3U);
  EXPECT_EQ(order->sample_count(), 8U);
  const Segment segment{0, 4};
  for (std::uint64_t t = 0; t < ids.size(); ++t) {
    if (ids[t] < 0) {
      EXPECT_EQ(order->locate(t, segment).lane, kNoLane);
    } else {
      EXPECT_EQ(order->dataset_position(t, segment), static_cast<std::uint64_t>(ids[t]));
    }
  }
}

TEST(ListedOrder, IdsBeyondTheEndAreNoPlaces) {
  const auto order = must_list({3, 1, 5}, {9, std::int64_t{1} << 40, 8});
  EXPECT_EQ(order->locate(0, {0, 3}).lane, kNoLane);
  EXPECT_EQ(order->locate(1, {0, 3}).lane, kNoLane);
  EXPECT_EQ(order->locate(2, {0, 3}).lane, 2U);
}

TEST(ListedOrder, AWindowIsAWholeBlockInItsOwnOrder) {
  const auto order = must_list({3, 1, 5}, {8});
  const Window window = order->window_at(2, 4);
  EXPECT_FALSE(window.is_shuffled);
  EXPECT_EQ(window.first_position, 0U);
  EXPECT_EQ(window.sample_count, 5U);
  ASSERT_EQ(window.pieces.size(), 1U);
  EXPECT_EQ(window.pieces[0].block, 2U);
  EXPECT_EQ(window.pieces[0].end, 5U);
  EXPECT_EQ(order->sample_at(window, 4).sample_in_block, 4U);
  EXPECT_EQ(order->block_first_sample(2), 4U);
  const std::vector<std::uint64_t> bytes = {7, 9, 8};
  EXPECT_EQ(order->largest_window_weight(bytes), 9U);
}

TEST(ListedOrder, FindsTheBlockOfEveryPositionInAnyTable) {
  Random random(test_seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint32_t> blocks(1 + random.below(60));
    std::vector<std::uint32_t> block_of;
    std::vector<std::int64_t> ids;
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      blocks[b] = static_cast<std::uint32_t>(1 + random.below(random.below(5) == 0 ? 900 : 4));
      block_of.insert(block_of.end(), blocks[b], b);
    }
    for (std::size_t i = 0; i < block_of.size(); ++i) ids.push_back(static_cast<std::int64_t>(i));
    const auto order = must_list(blocks, ids);
    std::vector<LanePosition> places(ids.size());
    order->locate_run(0, {0, 1}, places);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(places[i].lane, block_of[i]) << "HEADRACE_TEST_SEED=" << test_seed();
      ASSERT_EQ(order->block_first_sample(places[i].lane) + places[i].position, i);
    }
  }
}

TEST(ListedOrder, RefusesTablesWithoutSamples) {
  const auto list = std::make_shared<VectorList>(std::vector<std::int64_t>{0});
  const std::vector<std::uint32_t> none;
  const std::vector<std::uint32_t> hole = {2, 0, 1};
  EXPECT_EQ(create_listed_order({}, none, 0, list).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(create_listed_order({}, hole, 0, list).error().code(), Code::kInvalidArgument);
}

TEST(OrderSource, GivesTheOrderOfItsSpecFromAnyPlace) {
  const std::vector<std::uint32_t> blocks = {3, 1, 5};
  const OrderSpec spec = order_test::make_spec(blocks, 5, 2, 1, 1);
  auto source = create_order_source(spec, blocks);
  ASSERT_TRUE(source);
  auto plan = (*source)->plan({.epoch = 2, .t = 4, .global_batch = 2}, {});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->start, 4U);
  EXPECT_EQ(order_test::sequence(*plan->order, {4, 2}),
            order_test::sequence(*order_test::must_create(spec, blocks, 2), {4, 2}));
  auto end = (*source)->plan({.epoch = 2, .t = 9}, {});
  ASSERT_TRUE(end);
  EXPECT_EQ(end->order, nullptr);
  EXPECT_EQ((*source)->plan({.epoch = 2, .t = 10}, {}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ((*source)->state_extra(2, 4), "{}");
}

TEST(OrderSource, TakesLanesFromAStateAndNothingElse) {
  const std::vector<std::uint32_t> blocks = {3, 1, 5};
  const OrderSpec spec = order_test::make_spec(blocks, 5, 2, 1, 1);
  auto source = create_order_source(spec, blocks);
  ASSERT_TRUE(source);
  auto same = (*source)->restored(spec, "{}");
  ASSERT_TRUE(same);
  EXPECT_EQ(*same, nullptr);
  auto other = (*source)->restored(order_test::make_spec(blocks, 5, 4, 2, 2), "{}");
  ASSERT_TRUE(other);
  EXPECT_EQ((*other)->spec().lane_count, 4U);
  EXPECT_EQ(create_order_source(order_test::make_spec(blocks, 5, 10, 1, 1), blocks).error().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
