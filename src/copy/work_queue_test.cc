#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "copy/transfer.h"

namespace headrace::copy_detail {
namespace {

TEST(WorkQueueTest, WhatIsTriedAgainNeverWaitsForRoom) {
  WorkQueue queue;
  // More than a listing may be ahead: the next push() would wait for somebody who pulls.
  std::vector<Item> found(10'000);
  ASSERT_TRUE(queue.push(found));
  Item again;
  again.from_key = "again";
  EXPECT_TRUE(queue.push_again(std::move(again)));
  std::vector<Unit> pulled;
  EXPECT_TRUE(queue.pull(pulled, 20'000));
  ASSERT_EQ(pulled.size(), 10'001U);
  EXPECT_EQ(pulled.back().item.from_key, "again");
  queue.stop();
  EXPECT_FALSE(queue.push_again(Item()));
}

std::shared_ptr<LargeCopy> large_of(std::uint32_t parts) {
  auto large = std::make_shared<LargeCopy>();
  large->item.size_bytes = parts;
  large->part_bytes = 1;
  large->part_count = large->left_count = parts;
  large->is_there.resize(parts);
  return large;
}

// Each holds a file or an upload open, and is of use when all of it is there.
TEST(WorkQueueTest, PartsOfOneObjectGoBeforeThoseOfTheNext) {
  WorkQueue queue;
  queue.set_unlimited();
  std::vector<std::shared_ptr<LargeCopy>> all;
  for (int i = 0; i < 5; ++i) queue.add_large(all.emplace_back(large_of(10)));
  for (const std::size_t begin : {0, 7, 14, 21, 28, 35, 42}) {
    std::vector<Unit> pulled;
    ASSERT_TRUE(queue.pull(pulled, 7));
    ASSERT_EQ(pulled.size(), 7U);
    for (std::size_t i = 0; i < pulled.size(); ++i) {
      EXPECT_EQ(pulled[i].large, all[(begin + i) / 10]);
      EXPECT_EQ(pulled[i].part, (begin + i) % 10);
    }
  }
}

}  // namespace
}  // namespace headrace::copy_detail
