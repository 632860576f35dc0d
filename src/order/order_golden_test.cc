// Vectors made with the Python program of docs/order.md, which shares no code with the engine. They
// hold order `headrace` version 1 for ever: a run saved today must go on in the same order with any
// later build. Never change a number here.
#include "order/order_math.h"
#include "order/order_test_util.h"

namespace headrace {
namespace {

using order_test::make_spec;
using order_test::must_create;
using order_test::sequence;
using Positions = std::vector<std::uint64_t>;

constexpr std::uint64_t kMax = ~std::uint64_t{0};
const std::vector<std::uint32_t> kBlocks = {5, 3, 4, 7, 1, 6, 2, 8};

Positions first_values(std::uint64_t key, std::uint64_t n, std::size_t count) {
  const order_math::Permutation permutation(key, n);
  Positions out;
  for (std::uint64_t i = 0; i < count; ++i) out.push_back(permutation(i));
  return out;
}

TEST(OrderGolden, Mix) {
  EXPECT_EQ(order_math::mix(0), 0U);
  EXPECT_EQ(order_math::mix(1), 0x5692161d100b05e5U);
  EXPECT_EQ(order_math::mix(kMax), 0xb4d055fcf2cbbd7bU);
}

TEST(OrderGolden, EpochKey) {
  EXPECT_EQ(order_math::epoch_key(0, 0), 0x48218226ff3cd4bfU);
  EXPECT_EQ(order_math::epoch_key(0, 1), 0xea8568d2e45fd6cbU);
  EXPECT_EQ(order_math::epoch_key(1, 0), 0xdce423fc82c0d5b8U);
  EXPECT_EQ(order_math::epoch_key(17, 3), 0x8d464868155ecb46U);
  EXPECT_EQ(order_math::epoch_key(kMax, kMax), 0xe8ba9f99ca933538U);
}

TEST(OrderGolden, Permutation) {
  EXPECT_EQ(first_values(0, 1, 1), (Positions{0}));
  EXPECT_EQ(first_values(1, 2, 2), (Positions{0, 1}));
  EXPECT_EQ(first_values(2, 3, 3), (Positions{1, 0, 2}));
  EXPECT_EQ(first_values(42, 16, 16),
            (Positions{2, 10, 7, 14, 9, 11, 15, 12, 13, 0, 3, 6, 4, 1, 8, 5}));
  EXPECT_EQ(first_values(7, 33, 16),
            (Positions{9, 30, 31, 15, 20, 3, 0, 14, 11, 19, 18, 26, 5, 21, 23, 29}));
  EXPECT_EQ(first_values(123456789, 100, 16),
            (Positions{96, 97, 88, 94, 51, 56, 34, 90, 85, 60, 24, 27, 16, 28, 66, 95}));
  EXPECT_EQ(first_values(99, 1'000'000'000, 8),
            (Positions{11004162, 431142014, 989023106, 669610450, 21837339, 61947641, 328671720,
                       948028054}));
  EXPECT_EQ(first_values(5, (std::uint64_t{1} << 40) + 1, 4),
            (Positions{630481990572, 361279859982, 232881112664, 544742315009}));
}

TEST(OrderGolden, BlockTableDigest) {
  EXPECT_EQ(block_table_digest(kBlocks), 0xb38fd50c4b78e4c8U);
  EXPECT_EQ(block_table_digest(std::vector<std::uint32_t>{1}), 0xdec1469c8d51e97bU);
}

TEST(OrderGolden, BundledBatchesOfTwoEpochs) {
  const OrderSpec spec = make_spec(kBlocks, 17, 4, 2, 2);
  EXPECT_EQ(sequence(*must_create(spec, kBlocks, 0), {0, 8}),
            (Positions{29, 6, 32, 5,  11, 15, 8,  13, 30, 27, 31, 7,  9,  24, 10, 16, 33, 2,
                       35, 4, 23, 17, 19, 18, 28, 1,  34, 3,  21, 25, 20, 12, 26, 0,  22, 14}));
  EXPECT_EQ(sequence(*must_create(spec, kBlocks, 1), {0, 8}),
            (Positions{19, 30, 13, 1,  35, 23, 33, 21, 12, 2,  18, 4, 34, 22, 8,  24, 15, 3,
                       17, 32, 9,  20, 11, 6,  14, 28, 0,  31, 10, 7, 27, 5,  16, 29, 26, 25}));
}

TEST(OrderGolden, RoundRobinWhereLanesDoNotDivideTheBatch) {
  EXPECT_EQ(sequence(*must_create(make_spec(kBlocks, 17, 4, 2, 2), kBlocks), {0, 6}),
            (Positions{29, 6,  11, 15, 32, 5,  8,  13, 30, 27, 9,  24, 31, 7,  10, 16, 33, 2,
                       23, 17, 35, 4,  19, 18, 28, 1,  21, 25, 34, 3,  20, 12, 26, 0,  22, 14}));
}

TEST(OrderGolden, LaterSegment) {
  EXPECT_EQ(sequence(*must_create(make_spec(kBlocks, 17, 4, 2, 2), kBlocks), {16, 8}),
            (Positions{33, 2, 35, 4, 23, 17, 19, 18, 28, 1, 34, 3, 21, 25, 20, 12, 26, 0, 22, 14}));
}

TEST(OrderGolden, WholeEpochOfFortyBlocks) {
  std::vector<std::uint32_t> blocks;
  for (std::uint32_t i = 0; i < 40; ++i) blocks.push_back(10 + i * 7 % 13);
  const auto order =
      must_create(make_spec(blocks, (std::uint64_t{1} << 63) + 5, 8, 3, 4), blocks, 9);
  const Positions all = sequence(*order, {0, 32});
  ASSERT_EQ(all.size(), 634U);
  EXPECT_EQ(
      Positions(all.begin(), all.begin() + 16),
      (Positions{456, 226, 210, 259, 459, 631, 531, 261, 469, 231, 529, 257, 454, 633, 528, 254}));
  std::uint64_t fold = 0;
  for (const std::uint64_t position : all) fold = order_math::mix(fold + position);
  EXPECT_EQ(fold, 0xac6ea36f26581110U);
}

}  // namespace
}  // namespace headrace
