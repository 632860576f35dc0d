#include "headrace/range_fetcher.h"

#include <gtest/gtest.h>

#include <set>

#include "io/testing/fake_store.h"

namespace headrace {
namespace {

using headrace::testing::FakeStore;

std::shared_ptr<SlabPool> make_pool(std::uint64_t bytes = 4 << 20) {
  auto pool = SlabPool::create({.limit_bytes = bytes});
  EXPECT_TRUE(pool.has_value());
  return *std::move(pool);
}

TEST(RangeFetcher, GivesEveryReadOnce) {
  FakeStore store;
  store.set("k", std::string(10'000, 'x'));
  // Room for a few reads of the two hundred.
  const auto pool = make_pool(64 << 10);
  const CallOptions call;
  auto fetcher = RangeFetcher::create(store, *pool, {.call = call});
  ASSERT_TRUE(fetcher.has_value());
  for (std::uint64_t i = 0; i < 200; ++i) {
    (*fetcher)->start({.key = "k", .etag = {}, .offset_bytes = i, .length_bytes = 9000, .tag = i});
  }
  std::set<std::uint64_t> tags;
  while ((*fetcher)->pending() > 0) {
    auto data = (*fetcher)->next();
    ASSERT_TRUE(data.has_value()) << data.error().message();
    EXPECT_EQ(data->bytes().size(), 9000U);
    EXPECT_EQ(data->object_size_bytes, 10'000U);
    EXPECT_TRUE(tags.insert(data->tag).second);
  }
  EXPECT_EQ(tags.size(), 200U);
  EXPECT_LE(pool->peak_bytes(), pool->limit_bytes());
}

TEST(RangeFetcher, WaitsForMemoryThatOthersHoldUntilItsDeadline) {
  FakeStore store;
  store.set("k", "0123456789");
  const auto pool = make_pool(64 << 10);
  auto held = pool->try_acquire(64 << 10);
  ASSERT_TRUE(held.has_value());
  const CallOptions call{.deadline = system_clock().now(), .stop = {}};
  auto fetcher = RangeFetcher::create(store, *pool, {.call = call});
  (*fetcher)->start({.key = "k", .etag = {}, .length_bytes = 10});
  EXPECT_EQ((*fetcher)->next().error().code(), Code::kDeadline);
}

TEST(RangeFetcher, RefusesAReadThatCanNeverFit) {
  FakeStore store;
  const auto pool = make_pool(64 << 10);
  const CallOptions call;
  auto fetcher = RangeFetcher::create(store, *pool, {.call = call});
  (*fetcher)->start({.key = "k", .etag = {}, .length_bytes = 1 << 20});
  EXPECT_EQ((*fetcher)->next().error().code(), Code::kInvalidArgument);
}

TEST(RangeFetcher, NamesOfReadsInFlightAreItsOwn) {
  FakeStore store;
  store.set("long enough to lie on the heap", "0123456789");
  std::string key = "long enough to lie on the heap";
  const auto pool = make_pool();
  const CallOptions call;
  auto fetcher = RangeFetcher::create(store, *pool, {.call = call});
  for (int i = 0; i < 2; ++i) (*fetcher)->start({.key = key, .etag = {}, .length_bytes = 10});
  ASSERT_TRUE((*fetcher)->next().has_value());
  // As when the caller gives up at an error: the second read is still in flight.
  key.assign(key.size(), '-');
  fetcher->reset();
  EXPECT_EQ(store.shared().get_count, 2U);
  EXPECT_EQ(store.shared().missed_count, 0U);
}

TEST(RangeFetcher, PassesOnWhatTheStoreSays) {
  FakeStore store;
  store.set("k", "0123456789");
  const auto pool = make_pool();
  const CallOptions call;
  auto fetcher = RangeFetcher::create(store, *pool, {.call = call});
  (*fetcher)->start({.key = "k", .etag = "\"old\"", .length_bytes = 10});
  EXPECT_EQ((*fetcher)->next().error().code(), Code::kChanged);
  (*fetcher)->start({.key = "none", .etag = {}, .length_bytes = 10});
  EXPECT_EQ((*fetcher)->next().error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace headrace
