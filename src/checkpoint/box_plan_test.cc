#include "checkpoint/box_plan.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "base/test_seed.h"
#include "gmock/gmock.h"

namespace headrace::checkpoint {
namespace {

using Sizes = std::vector<std::uint64_t>;

struct Case {
  WantedBox box;
  std::vector<std::byte> piece;
  std::vector<std::byte> out, expected;
  std::vector<std::uint32_t> sums;
};

/// Calls `visit` for every index of a box.
void for_each_index(const Sizes& count, const std::function<void(const Sizes&)>& visit) {
  for (const std::uint64_t size : count) {
    if (size == 0) return;
  }
  Sizes index(count.size());
  while (true) {
    visit(index);
    std::size_t d = count.size();
    while (d > 0 && ++index[d - 1] == count[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

/// A random box of a random array, and what it must become, element by element.
void make_case(std::mt19937_64& random, Case& out) {
  WantedBox& box = out.box;
  const auto below = [&](std::uint64_t n) { return n == 0 ? 0 : random() % n; };
  const std::size_t dims = below(5);
  box.element_bytes = 1U << below(4);
  std::uint64_t bytes = box.element_bytes;
  for (std::size_t d = 0; d < dims; ++d) {
    box.shape.push_back(1 + below(d == 0 ? 700 : 9));
    box.start.push_back(below(box.shape[d] + 1));
    box.count.push_back(below(3) == 0 ? box.shape[d] - box.start[d]
                                      : below(box.shape[d] - box.start[d] + 1));
    if (below(3) == 0) {
      box.start[d] = 0;
      box.count[d] = box.shape[d];
    }
    bytes *= box.shape[d];
  }
  box.place = {below(100'000), bytes};
  out.piece.resize(bytes);
  for (std::byte& byte : out.piece) byte = static_cast<std::byte>(random());
  out.sums.resize((bytes + kSumBlockBytes - 1) / kSumBlockBytes);
  box.sums = out.sums;
  // Dimensions of the destination in any order, with room between elements now and then.
  std::vector<std::size_t> by(dims);
  std::iota(by.begin(), by.end(), std::size_t{0});
  if (below(2) == 0) std::shuffle(by.begin(), by.end(), random);
  std::uint64_t stride = box.element_bytes * (1 + below(2) * below(3));
  box.to_strides_bytes.resize(dims);
  for (std::size_t i = dims; i-- > 0;) {
    box.to_strides_bytes[by[i]] = static_cast<std::int64_t>(stride);
    stride *= std::max<std::uint64_t>(box.count[by[i]], 1);
  }
  out.out.assign(stride, std::byte{0});
  out.expected = out.out;
  box.to = out.out.data();
  for_each_index(box.count, [&](const Sizes& index) {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    for (std::size_t d = 0; d < dims; ++d) {
      from = from * box.shape[d] + box.start[d] + index[d];
      to += index[d] * static_cast<std::uint64_t>(box.to_strides_bytes[d]);
    }
    std::memcpy(&out.expected[to], &out.piece[from * box.element_bytes], box.element_bytes);
  });
}

TEST(BoxPlan, RandomBoxesArriveWhateverTheRequests) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 300; ++round) {
    Case one;
    make_case(random, one);
    ASSERT_TRUE(check_box(one.box).ok());
    const std::uint64_t most = kSumBlockBytes * (1 + random() % 5);
    const std::uint64_t hole = random() % 2 * kSumBlockBytes;
    std::uint64_t last_end = 0;
    for (const BoxRequest& request : plan_requests({&one.box, 1}, most, hole)) {
      EXPECT_GE(request.offset_bytes, last_end);
      EXPECT_LE(request.length_bytes, most);
      last_end = request.offset_bytes + request.length_bytes;
      for (const BlockRun& run : request.runs) {
        const std::uint64_t from = run.offset_bytes - one.box.place.offset_bytes;
        EXPECT_EQ(from, run.blocks.first * kSumBlockBytes);
        copy_box(one.box, from, std::span(one.piece).subspan(from, run.length_bytes));
      }
    }
    ASSERT_EQ(one.out, one.expected) << round;
  }
}

/// Blocks that are read for a box, in order.
Sizes blocks_read(const WantedBox& box) {
  Sizes blocks;
  for (const BoxRequest& request : plan_requests({&box, 1}, 7 * kSumBlockBytes, 0)) {
    for (const BlockRun& run : request.runs) {
      const std::uint64_t count = (run.length_bytes + kSumBlockBytes - 1) / kSumBlockBytes;
      for (std::uint64_t i = 0; i < count; ++i) blocks.push_back(run.blocks.first + i);
    }
  }
  return blocks;
}

TEST(BoxPlan, SomeBlocksAndTheOthersAreWhatTheBoxNeeds) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 300; ++round) {
    Case one;
    make_case(random, one);
    const auto needed = needed_blocks(one.box);
    ASSERT_TRUE(needed);
    std::vector<BlockRange> some;
    std::vector<BlockRange> others;
    std::uint64_t at = 0;
    for (auto* side = &some; at < one.sums.size() + 1; side = side == &some ? &others : &some) {
      const std::uint64_t end = at + 1 + random() % 9;
      side->push_back({at, end});
      at = end;
    }
    others.push_back({at, at + 1});  // Beyond the piece; and so there is one.
    one.box.only = some;
    Sizes blocks = blocks_read(one.box);
    one.box.only = others;
    for (const std::uint64_t block : blocks_read(one.box)) blocks.push_back(block);
    std::ranges::sort(blocks);
    one.box.only = {};
    EXPECT_EQ(blocks, blocks_read(one.box));
    Sizes expected;
    for (const BlockRange& range : *needed) {
      for (std::uint64_t block = range.first; block < range.end; ++block) expected.push_back(block);
    }
    EXPECT_EQ(blocks, expected);
  }
}

TEST(BoxPlan, NeedsTheBlocksOfTheBoxAndNoOthers) {
  std::vector<std::uint32_t> sums(100);
  WantedBox box{.place = {4096, 100 * kSumBlockBytes},
                .sums = sums,
                .element_bytes = 1,
                .shape = {100, kSumBlockBytes},
                .start = {10, 0},
                .count = {5, kSumBlockBytes},
                .to_strides_bytes = {kSumBlockBytes, 1}};
  const auto requests = plan_requests({&box, 1}, 100 * kSumBlockBytes, 0);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].offset_bytes, 4096 + 10 * kSumBlockBytes);
  EXPECT_EQ(requests[0].length_bytes, 5 * kSumBlockBytes);
}

TEST(BoxPlan, NeighboursOfManyPiecesAreOneRequest) {
  std::vector<std::uint32_t> sums(1);
  std::vector<WantedBox> boxes;
  for (std::uint64_t i = 0; i < 50; ++i) {
    boxes.push_back({.place = {4096 + i * 100, 100},
                     .sums = sums,
                     .element_bytes = 1,
                     .shape = {100},
                     .start = {0},
                     .count = {100},
                     .to_strides_bytes = {1}});
  }
  EXPECT_EQ(plan_requests(boxes, kSumBlockBytes, 0).size(), 1U);
}

TEST(BoxPlan, BoxesOutsideTheirPieceAreRefused) {
  std::vector<std::uint32_t> sums(1);
  const WantedBox good{.place = {0, 12},
                       .sums = sums,
                       .element_bytes = 4,
                       .shape = {3},
                       .start = {1},
                       .count = {2},
                       .to_strides_bytes = {4}};
  EXPECT_TRUE(check_box(good).ok());
  const std::vector<BlockRange> falling = {{1, 2}, {0, 1}};
  for (int kind = 0; kind < 7; ++kind) {
    WantedBox bad = good;
    if (kind == 0) bad.count = {3};
    if (kind == 1) bad.start = {UINT64_MAX};
    if (kind == 2) bad.place.length_bytes = 11;
    if (kind == 3) bad.sums = {};
    if (kind == 4) bad.to_strides_bytes = {};
    if (kind == 5) bad.shape = {UINT64_MAX};
    if (kind == 6) bad.only = falling;
    EXPECT_EQ(check_box(bad).code(), Code::kInvalidArgument) << kind;
  }
}

}  // namespace
}  // namespace headrace::checkpoint
