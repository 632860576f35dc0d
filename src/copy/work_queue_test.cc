#include <gtest/gtest.h>

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

}  // namespace
}  // namespace headrace::copy_detail
