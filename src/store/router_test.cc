#include "headrace/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "headrace/forwarding_store.h"
#include "store/fault/fault_store.h"
#include "store/memory/memory_store.h"

namespace headrace {
namespace {

class RouterTest : public ::testing::Test {
 protected:
  /// Store i holds "dir/x" with ten times its digit.
  std::unique_ptr<Store> open(std::size_t count, const FaultOptions& faults = {}) {
    std::vector<std::unique_ptr<Store>> stores;
    for (std::size_t i = 0; i < count; ++i) {
      StoreOptions options;
      options.url = "memory://s" + std::to_string(i);
      auto inner = open_memory_store(options);
      EXPECT_TRUE(inner);
      EXPECT_TRUE(write_object(**inner, *pool_, "dir/x", std::string(10, digit(i))));
      stores.push_back(FaultStore::create(*std::move(inner), faults));
    }
    auto router = route_stores(std::move(stores));
    EXPECT_TRUE(router);
    return *std::move(router);
  }

  static char digit(std::size_t i) { return static_cast<char>('0' + i); }

  Request read(std::string_view key, std::uint64_t tag) {
    Request request;
    request.key = key;
    request.length_bytes = 10;
    request.slab = *pool_->try_acquire(10);
    request.tag = tag;
    return request;
  }
  Completion run(Store& store, Request request) {
    EXPECT_EQ(store.submit({&request, 1}), 1U);
    Completion done;
    EXPECT_EQ(store.wait({&done, 1}, TimePoint::max()), 1U);
    return done;
  }
  static std::string text(const Completion& done) {
    return {reinterpret_cast<const char*>(done.slab.bytes().data()), done.length_bytes};
  }

  std::unique_ptr<SlabPool> pool_ = *SlabPool::create({});
};

TEST_F(RouterTest, ReadsFromTheStoreThatTheKeyNames) {
  const auto store = open(3);
  for (std::size_t i = 0; i < 3; ++i) {
    const Completion done = run(*store, read(std::to_string(i) + "/dir/x", i));
    EXPECT_TRUE(done.status.ok()) << done.status.message();
    EXPECT_EQ(text(done), std::string(10, digit(i)));
    EXPECT_EQ(done.tag, i);
  }
  auto info = store->head("2/dir/x");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->key, "2/dir/x");
  EXPECT_EQ(info->size_bytes, 10U);
  EXPECT_EQ(run(*store, read("1/none", 0)).status.code(), Code::kNotFound);
  MetricList metrics;
  store->append_metrics(metrics);
  EXPECT_TRUE(std::any_of(metrics.begin(), metrics.end(), [](const Metric& m) {
    return m.name == "store.received_bytes" && m.value == 30;
  }));
}

TEST_F(RouterTest, RefusesKeysOfNoStoreAndWrites) {
  const auto store = open(2);
  for (const char* key : {"x", "2/x", "/x", "1/", "1", "-1/x", "99999999999999999999/x"}) {
    const Completion done = run(*store, read(key, 7));
    EXPECT_EQ(done.status.code(), Code::kInvalidArgument) << key;
    EXPECT_EQ(done.slab.bytes().size(), 10U);
    EXPECT_EQ(store->head(key).error().code(), Code::kInvalidArgument) << key;
  }
  EXPECT_FALSE(store->traits().can_write);
  EXPECT_EQ(store->list({}).error().code(), Code::kUnsupported);
  EXPECT_EQ(store->remove("0/x").code(), Code::kUnsupported);
  EXPECT_EQ(store->create_upload("0/x").error().code(), Code::kUnsupported);
  EXPECT_EQ(route_stores({}).error().code(), Code::kInvalidArgument);
}

/// Signs by adding a word.
class SigningStore final : public ForwardingStore {
 public:
  explicit SigningStore(std::unique_ptr<Store> inner) : ForwardingStore(std::move(inner)) {}
  Result<std::string> presign(const PresignRequest& request) override {
    return url() + "/" + request.key + "?signed";
  }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<SigningStore>(std::move(handle)));
  }
};

TEST_F(RouterTest, TheStoreThatTheKeyNamesSigns) {
  std::vector<std::unique_ptr<Store>> stores;
  for (const char* url : {"memory://s0", "memory://s1"}) {
    StoreOptions options;
    options.url = url;
    stores.push_back(std::make_unique<SigningStore>(*open_memory_store(options)));
  }
  const auto store = *route_stores(std::move(stores));
  EXPECT_EQ(*store->presign({"1/dir/x"}), "memory://s1/dir/x?signed");
  EXPECT_EQ(store->presign({"2/dir/x"}).error().code(), Code::kInvalidArgument);
}

TEST_F(RouterTest, WakesStopsAndTimesOut) {
  const auto store = open(2);
  Completion done;
  store->wake();
  EXPECT_EQ(store->wait({&done, 1}, TimePoint::max()), 0U);
  EXPECT_EQ(store->wait({&done, 1}, system_clock().now()), 0U);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(store->wait({&done, 1}, TimePoint::max(), stop.get_token()), 0U);
  store->stop();
  Request request = read("0/dir/x", 1);
  EXPECT_EQ(store->submit({&request, 1}), 0U);
  EXPECT_EQ(request.key, "0/dir/x") << "a request that was not accepted stays as it was";
  EXPECT_EQ(store->wait({&done, 1}, TimePoint::max()), 0U) << "stopped and drained";
}

TEST_F(RouterTest, BoundsWhatItAccepts) {
  const auto store = open(2);
  std::size_t accepted = 0;
  while (true) {
    Request request = read(accepted % 2 == 0 ? "0/dir/x" : "1/dir/x", accepted);
    if (store->submit({&request, 1}) == 0) break;
    ASSERT_LT(++accepted, std::size_t{1} << 16);
  }
  std::vector<bool> seen(accepted, false);
  for (std::size_t taken = 0; taken < accepted;) {
    Completion done[64];
    const std::size_t count = store->wait(done, TimePoint::max());
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_FALSE(seen[done[i].tag]);
      seen[done[i].tag] = true;
    }
    taken += count;
  }
  EXPECT_TRUE(run(*store, read("1/dir/x", 0)).status.ok());
}

// Stores that fail, take fewer and hold answers back: each accepted request ends once, whatever
// happens to the handle.
TEST_F(RouterTest, EachRequestEndsOnceOnEveryHandle) {
  const FaultOptions faults{
      .seed = 3, .error_share = 0.2, .short_accept_share = 0.3, .hold_back_count = 3};
  const auto store = open(4, faults);
  const auto work = [&](std::uint64_t seed) {
    auto handle = store->new_handle();
    ASSERT_TRUE(handle);
    Random random(seed);
    const std::vector<std::string> keys = {"0/dir/x", "1/dir/x", "2/dir/x", "3/dir/x", "bad"};
    std::map<std::uint64_t, std::size_t> open_tags;
    std::uint64_t next = 0;
    std::uint64_t ended = 0;
    while (ended < 400) {
      if (next < 400 && open_tags.size() < 20) {
        const std::size_t which = random.below(keys.size());
        Request request = read(keys[which], next);
        if ((*handle)->submit({&request, 1}) == 1) open_tags[next++] = which;
        if (random.below(10) == 0) (*handle)->cancel(random.below(next + 1));
        if (open_tags.size() < 20) continue;
      }
      Completion done[8];
      const std::size_t count = (*handle)->wait(done, TimePoint::max());
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(open_tags.count(done[i].tag), 1U);
        const std::size_t which = open_tags[done[i].tag];
        if (which == 4) {
          EXPECT_EQ(done[i].status.code(), Code::kInvalidArgument);
        } else if (done[i].status.ok()) {
          EXPECT_EQ(text(done[i]), std::string(10, digit(which)));
        }
        open_tags.erase(done[i].tag);
        ++ended;
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 3; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RouterTest, DestroyingAHandleGivesTheSlabsBack) {
  for (int round = 0; round < 20; ++round) {
    auto store = open(3, {.hold_back_count = 5});
    for (std::uint64_t tag = 0; tag < 9; ++tag) {
      static constexpr std::string_view kKeys[] = {"0/dir/x", "1/dir/x", "2/dir/x"};
      Request request = read(kKeys[tag % 3], tag);
      ASSERT_EQ(store->submit({&request, 1}), 1U);
    }
    store.reset();
    EXPECT_EQ(pool_->used_bytes(), 0U);
  }
}

}  // namespace
}  // namespace headrace
