#include "store/fault/fault_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "store/memory/memory_store.h"

namespace headrace {
namespace {

class FaultStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<FaultStore> open(const FaultOptions& options) {
    StoreOptions store_options;
    store_options.url = "memory://x";
    auto inner = open_memory_store(store_options);
    EXPECT_TRUE(inner);
    EXPECT_TRUE(write_object(**inner, *pool_, "x", "0123456789"));
    return FaultStore::create(*std::move(inner), options);
  }
  /// Tags and codes of `count` reads, submitted one by one, in order of completion.
  std::vector<std::pair<std::uint64_t, Code>> read(Store& store, std::uint64_t count) {
    for (std::uint64_t tag = 0; tag < count; ++tag) {
      Request request;
      request.key = "x";
      request.length_bytes = 10;
      request.slab = *pool_->try_acquire(10);
      request.tag = tag;
      while (store.submit({&request, 1}) == 0) {
      }
    }
    std::vector<std::pair<std::uint64_t, Code>> outcomes;
    while (outcomes.size() < count) {
      Completion done;
      EXPECT_EQ(store.wait({&done, 1}, TimePoint::max()), 1U);
      EXPECT_EQ(done.slab.bytes().size(), 10U);
      const bool is_intact = done.slab.bytes()[0] == std::byte{'0'};
      EXPECT_EQ(is_intact, done.status.ok());
      outcomes.emplace_back(done.tag, done.status.code());
    }
    return outcomes;
  }

  std::unique_ptr<SlabPool> pool_ = *SlabPool::create({});
};

TEST_F(FaultStoreTest, WithoutFaultsNothingChanges) {
  auto store = open({});
  const auto outcomes = read(*store, 20);
  for (std::uint64_t tag = 0; tag < 20; ++tag) EXPECT_EQ(outcomes[tag], std::pair(tag, Code::kOk));
}

TEST_F(FaultStoreTest, TurnsAShareOfCompletionsIntoErrors) {
  auto store = open({.error_share = 0.25, .error_code = Code::kThrottled});
  const auto outcomes = read(*store, 400);
  const auto failed = std::count_if(outcomes.begin(), outcomes.end(),
                                    [](const auto& o) { return o.second == Code::kThrottled; });
  EXPECT_GT(failed, 60);
  EXPECT_LT(failed, 140);
  EXPECT_EQ(store->counts().errors, static_cast<std::uint64_t>(failed));
}

TEST_F(FaultStoreTest, FlipsOneBitOfAShareOfTheGets) {
  auto store = open({.flip_share = 0.25});
  int flipped = 0;
  for (int i = 0; i < 200; ++i) {
    const auto read = read_object(*store, *pool_, "x", 10);
    ASSERT_TRUE(read);
    int bits = 0;
    for (std::size_t at = 0; at < 10; ++at)
      bits += std::popcount(static_cast<unsigned char>((*read)[at] ^ "0123456789"[at]));
    ASSERT_LE(bits, 1);
    flipped += bits;
  }
  EXPECT_NEAR(flipped, 50, 30);
  EXPECT_EQ(store->counts().flips, static_cast<std::uint64_t>(flipped));
}

TEST_F(FaultStoreTest, IsDeterministicBySeed) {
  const FaultOptions options{
      .seed = 5, .error_share = 0.3, .short_accept_share = 0.3, .hold_back_count = 4};
  const auto first = read(*open(options), 100);
  EXPECT_EQ(first, read(*open(options), 100));
  FaultOptions other = options;
  other.seed = 6;
  EXPECT_NE(first, read(*open(other), 100));
}

TEST_F(FaultStoreTest, HoldsBackAndReorders) {
  auto store = open({.hold_back_count = 5});
  const auto outcomes = read(*store, 50);
  EXPECT_FALSE(std::is_sorted(outcomes.begin(), outcomes.end()));
  EXPECT_EQ(store->counts().held_back, 50U);
}

TEST_F(FaultStoreTest, AcceptsShortButNeverNothingWhileIdle) {
  auto store = open({.short_accept_share = 1});
  std::vector<Request> requests(8);
  for (Request& request : requests) {
    request.key = "x";
    request.length_bytes = 10;
    request.slab = *pool_->try_acquire(10);
  }
  const std::size_t accepted = store->submit(requests);
  EXPECT_GE(accepted, 1U);
  EXPECT_LT(accepted, 8U);
  EXPECT_EQ(store->counts().short_accepts, 1U);
}

TEST_F(FaultStoreTest, FailsCallsWithoutMakingThem) {
  auto store = open({.error_code = Code::kUnavailable, .call_error_share = 1});
  EXPECT_EQ(store->remove("x").code(), Code::kUnavailable);
  EXPECT_EQ(store->head("x").error().code(), Code::kUnavailable);
  EXPECT_EQ(store->list({}).error().code(), Code::kUnavailable);
  EXPECT_EQ(store->copy("x", "y").error().code(), Code::kUnavailable);
  EXPECT_EQ(store->create_upload("x").error().code(), Code::kUnavailable);
  EXPECT_EQ(store->complete_upload("x", "id", {}).error().code(), Code::kUnavailable);
  EXPECT_EQ(store->abort_upload("x", "id").code(), Code::kUnavailable);
  EXPECT_EQ(store->counts().call_errors, 7U);
  EXPECT_EQ(read(*store, 1).front().second, Code::kOk) << "the object is still there";
}

}  // namespace
}  // namespace headrace
