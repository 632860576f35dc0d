#include "store/memory/memory_store.h"

#include <gtest/gtest.h>

#include "base/manual_clock.h"

namespace headrace {
namespace {

TEST(MemoryStore, OnlyMemoryUrls) {
  StoreOptions options;
  options.url = "file:///x";
  EXPECT_EQ(open_memory_store(options).error().code(), Code::kInvalidArgument);
  options.url = "memory://name/";
  EXPECT_EQ((*open_memory_store(options))->url(), "memory://name");
}

TEST(MemoryStore, EachOpenedStoreHasItsOwnContentWhichItsHandlesShare) {
  ManualClock clock;
  StoreOptions options;
  options.url = "memory://name";
  options.clock = &clock;
  auto pool = SlabPool::create({});
  ASSERT_TRUE(pool);
  auto first = open_memory_store(options);
  auto second = open_memory_store(options);
  ASSERT_TRUE(first && second);
  auto written = write_object(**first, **pool, "x", "1");
  ASSERT_TRUE(written);
  EXPECT_EQ((*second)->head("x").error().code(), Code::kNotFound);
  auto handle = (*first)->new_handle();
  ASSERT_TRUE(handle);
  auto info = (*handle)->head("x");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->modified_unix_s, clock.wall_now().time_since_epoch().count());
  auto other = write_object(**second, **pool, "x", "1");
  ASSERT_TRUE(other);
  EXPECT_NE(other->etag, written->etag) << "a cache that both have takes one for the other";
}

}  // namespace
}  // namespace headrace
