// Tiers outside the node around a store that counts: what is fetched, what is kept, what a broken
// place costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/test_seed.h"
#include "headrace/cluster_cache.h"
#include "headrace/forwarding_store.h"
#include "store/memory/memory_store.h"
#include "tier/cache_store.h"
#include "tier/fake_memcached.h"
#include "tier/memcached.h"
#include "tier/remote_tier.h"
#include "tier/store_cache.h"

namespace headrace::tier {
namespace {

using Manner = FakeMemcached::Manner;

/// What a store was asked for, by all of its handles; and what it cannot do.
struct Watch {
  std::atomic<std::uint64_t> get_bytes{0}, conditional_puts{0}, puts{0};
  std::atomic<bool> knows_conditions{true};
};

class WatchedStore final : public ForwardingStore {
 public:
  WatchedStore(std::unique_ptr<Store> inner, std::shared_ptr<Watch> watch)
      : ForwardingStore(std::move(inner)), watch_(std::move(watch)) {}
  std::size_t submit(std::span<Request> requests) override {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      const std::uint64_t length = request.length_bytes;
      const Op op = request.op;
      const bool is_conditional = request.if_absent;
      // Longer than its slab: kInvalidArgument, as of a store that does not know the condition.
      if (is_conditional && !watch_->knows_conditions.load()) request.length_bytes = UINT64_MAX;
      if (inner().submit({&request, 1}) == 0) return i;
      if (op == Op::kGet) watch_->get_bytes.fetch_add(length);
      if (op == Op::kPut) (is_conditional ? watch_->conditional_puts : watch_->puts).fetch_add(1);
    }
    return requests.size();
  }
  std::string origin() const override { return "watched:1"; }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<WatchedStore>(std::move(handle), watch_));
  }
  const std::shared_ptr<Watch> watch_;
};

class ClusterStore : public ::testing::Test {
 protected:
  void SetUp() override {
    pool_ = *SlabPool::create({.limit_bytes = std::uint64_t{256} << 20});
    cold_ = open("memory://cold", cold_watch_);
    hot_ = open("memory://hot", hot_watch_);
    // Where answers get lost, claims do.
    for (FakeMemcached& server : servers_) server.claims_last(10);
  }
  static std::unique_ptr<Store> open(const std::string& url, std::shared_ptr<Watch> watch) {
    StoreOptions options;
    options.url = url;
    return std::make_unique<WatchedStore>(*open_memory_store(options), std::move(watch));
  }

  static std::shared_ptr<RemoteTier> make_tier(std::unique_ptr<RemoteCache> engine) {
    return *RemoteTier::create(
        std::move(engine), {.buffer_bytes = 64 << 20, .least_unnamed_bytes = 1, .clock = nullptr});
  }
  std::shared_ptr<RemoteTier> memcached(
      std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    return make_tier(*open_memcached({.nodes = {servers_[0].name(), servers_[1].name()},
                                      .item_bytes = 64 << 10,
                                      .timeout = timeout}));
  }
  std::shared_ptr<RemoteTier> hot() {
    return make_tier(*open_store_cache(*hot_->new_handle(), 64 << 20));
  }
  std::unique_ptr<Store> wrap(std::shared_ptr<RemoteTier> tier) {
    return wrap_tier(*cold_->new_handle(), std::move(tier), 4096);
  }

  void put(const std::string& key, std::size_t size, std::uint64_t seed) {
    Random random(seed);
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(random.next());
    Request request;
    request.op = Op::kPut;
    request.key = key;
    request.length_bytes = size;
    request.slab = *pool_->try_acquire(size);
    std::memcpy(request.slab.bytes().data(), bytes.data(), size);
    const Completion done = run(*cold_, std::move(request));
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    objects_[key] = {bytes, done.etag};
  }
  static Completion run(Store& store, Request request) {
    Completion out;
    while (store.submit({&request, 1}) == 0) std::this_thread::yield();
    while (store.wait({&out, 1}, TimePoint::max()) == 0) {
    }
    return out;
  }
  Request get(const std::string& key, std::uint64_t offset, std::uint64_t length) {
    Request request;
    const auto& object = *objects_.find(key);
    request.key = object.first;
    request.etag = object.second.second;
    request.offset_bytes = offset;
    request.length_bytes = length;
    request.slab = *pool_->acquire(length, TimePoint::max());
    return request;
  }
  /// Whether it came from a cache.
  bool read(Store& store, const std::string& key, std::uint64_t offset, std::uint64_t length) {
    const Completion done = run(store, get(key, offset, length));
    EXPECT_TRUE(done.status.ok()) << done.status.message();
    if (!done.status.ok()) return false;
    const std::string_view bytes(reinterpret_cast<const char*>(done.slab.bytes().data()), length);
    EXPECT_TRUE(bytes == std::string_view(objects_[key].first).substr(offset, length));
    return done.was_cached;
  }
  static double metric(const RemoteTier& tier, const std::string& name) {
    MetricList all;
    tier.append_metrics(all);
    for (const Metric& m : all) {
      if (m.name.ends_with("_" + name)) return m.value;
    }
    ADD_FAILURE() << name;
    return 0;
  }

  std::array<FakeMemcached, 2> servers_;
  std::unique_ptr<SlabPool> pool_;
  std::shared_ptr<Watch> cold_watch_ = std::make_shared<Watch>();
  std::shared_ptr<Watch> hot_watch_ = std::make_shared<Watch>();
  std::unique_ptr<Store> cold_, hot_;
  std::map<std::string, std::pair<std::string, std::string>> objects_;  // Content, ETag.
};

TEST_F(ClusterStore, WhatOneHasReadAnotherFinds) {
  put("a", 500'000, 1);
  for (const bool is_hot : {false, true}) {
    const std::uint64_t before = cold_watch_->get_bytes;
    for (int i = 0; i < 2; ++i) {
      const auto tier = is_hot ? hot() : memcached();
      const auto store = wrap(tier);
      EXPECT_EQ(read(*store, "a", 0, 400'000), i == 1);
      EXPECT_EQ(read(*store, "a", 400'000, 100'000), i == 1);
      tier->flush();
      EXPECT_EQ(metric(*tier, "hits"), 2 * i);
      EXPECT_EQ(metric(*tier, "misses"), 2 - 2 * i);
      EXPECT_EQ(metric(*tier, "written_bytes"), i == 0 ? 500'000 : 0);
    }
    EXPECT_EQ(cold_watch_->get_bytes - before, 500'000U);
  }
}

TEST_F(ClusterStore, WhatComesFromFurtherAwayFillsWhatIsNearer) {
  put("a", 100'000, 1);
  const auto far = hot();
  read(*wrap(far), "a", 0, 100'000);
  far->flush();
  const auto near = memcached();
  for (int i = 0; i < 2; ++i) {
    const auto both = wrap_tier(wrap(far), near, 4096);
    EXPECT_TRUE(read(*both, "a", 0, 100'000));
    near->flush();
  }
  EXPECT_EQ(metric(*near, "hits"), 1);
  EXPECT_EQ(metric(*far, "hits"), 1);
  EXPECT_EQ(cold_watch_->get_bytes, 100'000U);
}

TEST_F(ClusterStore, AnotherVersionIsAnotherObject) {
  for (const bool is_hot : {false, true}) {
    put("a", 1000, 1);
    const auto tier = is_hot ? hot() : memcached();
    const auto store = wrap(tier);
    read(*store, "a", 0, 1000);
    tier->flush();
    put("a", 1000, 2);
    EXPECT_FALSE(read(*store, "a", 0, 1000));
  }
}

TEST_F(ClusterStore, ManyWhoWantTheSameFetchItOnce) {
  put("a", 4'000'000, 1);
  for (const bool is_hot : {false, true}) {
    const std::uint64_t before = cold_watch_->get_bytes;
    const auto tier = is_hot ? hot() : memcached();
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        const auto store = wrap(tier);
        for (std::uint64_t at = 0; at < 4'000'000; at += 500'000) read(*store, "a", at, 500'000);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(cold_watch_->get_bytes - before, 4'000'000U);
  }
}

TEST_F(ClusterStore, NodesThatWantTheSameFetchItOnce) {
  for (FakeMemcached& server : servers_) server.claims_last(INT_MAX);
  put("a", 4'000'000, 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto store = wrap(memcached());
      for (std::uint64_t at = 0; at < 4'000'000; at += 50'000) read(*store, "a", at, 50'000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cold_watch_->get_bytes, 4'000'000U);
  EXPECT_EQ(servers_[0].claim_count() + servers_[1].claim_count(), 0U);
}

TEST_F(ClusterStore, WhoDoesNotBringWhatItHasClaimedGivesItUp) {
  for (FakeMemcached& server : servers_) server.claims_last(INT_MAX);
  put("a", 100'000, 1);
  const auto tier = memcached();
  const auto store = wrap(tier);
  objects_["gone"] = {"", "\"x\""};
  EXPECT_EQ(run(*store, get("gone", 0, 10)).status.code(), Code::kNotFound);
  const auto small = *RemoteTier::create(
      *open_memcached({.nodes = {servers_[0].name(), servers_[1].name()}, .item_bytes = 64 << 10}),
      {.buffer_bytes = 64 << 10, .least_unnamed_bytes = 1, .clock = nullptr});
  EXPECT_FALSE(read(*wrap(small), "a", 0, 100'000)) << "too large for its memory";
  // Gives up what it had by the time it has done this, as that goes the same way.
  while (servers_[0].claim_count() + servers_[1].claim_count() > 0) std::this_thread::yield();
  EXPECT_FALSE(read(*store, "a", 0, 100'000));
  EXPECT_EQ(metric(*tier, "waits"), 0);
}

TEST_F(ClusterStore, AClaimOfTheDeadEndsByItself) {
  for (FakeMemcached& server : servers_) server.claims_last(3);
  put("a", 1000, 1);
  const auto tier = memcached();
  const auto store = wrap(tier);
  const std::string& etag = objects_["a"].second;
  const ExtentInfo info{.name = {object_id("watched:1", "memory://cold/a", etag), 0, 1000},
                        .object_size_bytes = 1000,
                        .url = "memory://cold/a",
                        .etag = etag};
  std::vector<std::byte> out(1000);
  std::atomic<bool> is_claimed{false};
  auto dead =
      *open_memcached({.nodes = {servers_[0].name(), servers_[1].name()}, .item_bytes = 64 << 10});
  dead->get({.extent = info,
             .out = out,
             .claims = true,
             .done = [&](RemoteCache::Outcome outcome, std::uint64_t) {
               is_claimed = outcome == RemoteCache::Outcome::kClaimed;
             }});
  dead.reset();
  ASSERT_TRUE(is_claimed);
  EXPECT_FALSE(read(*store, "a", 0, 1000));
  EXPECT_EQ(metric(*tier, "waits"), 1) << "for the dead";
  tier->flush();
  EXPECT_TRUE(read(*store, "a", 0, 1000));
}

TEST_F(ClusterStore, ServersThatMisbehaveCostTheirUseOnly) {
  put("a", 300'000, 1);
  for (int manner = 0; manner <= static_cast<int>(Manner::kHugeSize); ++manner) {
    const auto tier = memcached(
        std::chrono::milliseconds(manner == static_cast<int>(Manner::kSilent) ? 30 : 20'000));
    const auto store = wrap(tier);
    for (const Manner now : {Manner::kGood, static_cast<Manner>(manner), Manner::kGood}) {
      for (FakeMemcached& server : servers_) server.behave(now);
      for (std::uint64_t at = 0; at < 300'000; at += 100'000) read(*store, "a", at, 100'000);
      tier->flush();
    }
  }
}

TEST_F(ClusterStore, WhatIsBrokenIsReplaced) {
  put("a", 1000, 1);
  const auto tier = hot();
  const auto store = wrap(tier);
  read(*store, "a", 0, 1000);
  tier->flush();
  auto page = hot_->list({});
  ASSERT_TRUE(page);
  ASSERT_EQ(page->objects.size(), 1U);
  Request broken;
  broken.op = Op::kPut;
  broken.key = page->objects[0].key;
  broken.length_bytes = page->objects[0].size_bytes;
  broken.slab = *pool_->try_acquire(broken.length_bytes);
  std::memset(broken.slab.bytes().data(), 0, broken.length_bytes);
  ASSERT_TRUE(run(*hot_, std::move(broken)).status.ok());
  EXPECT_FALSE(read(*store, "a", 0, 1000));
  tier->flush();
  EXPECT_EQ(metric(*tier, "corrupt"), 1);
  EXPECT_TRUE(read(*store, "a", 0, 1000));
}

TEST_F(ClusterStore, AReadPastCachesReplacesWhatIsThere) {
  put("a", 1000, 1);
  for (const bool is_hot : {false, true}) {
    const auto tier = is_hot ? hot() : memcached();
    const auto store = wrap(tier);
    read(*store, "a", 0, 1000);
    tier->flush();
    Request request = get("a", 0, 1000);
    request.fresh_connection = true;
    EXPECT_FALSE(run(*store, std::move(request)).was_cached);
    tier->flush();
    EXPECT_EQ(metric(*tier, "written_bytes"), 2000);
    EXPECT_TRUE(read(*store, "a", 0, 1000));
  }
  EXPECT_EQ(hot_watch_->conditional_puts, 1U);
  EXPECT_EQ(hot_watch_->puts, 1U);
}

TEST_F(ClusterStore, AHotStoreWithoutConditionsIsFilledAllTheSame) {
  put("a", 2000, 1);
  hot_watch_->knows_conditions = false;
  const auto tier = hot();
  const auto store = wrap(tier);
  for (int i = 0; i < 2; ++i) {
    for (const std::uint64_t at : {0U, 1000U}) {
      EXPECT_EQ(read(*store, "a", at, 1000), i == 1);
      tier->flush();
    }
  }
  EXPECT_EQ(hot_watch_->conditional_puts, 1U) << "it is tried once";
}

TEST_F(ClusterStore, WhatIsTooLargeForItsMemoryIsLeftOut) {
  put("a", 1'000'000, 1);
  const auto tier =
      *RemoteTier::create(*open_store_cache(*hot_->new_handle(), 64 << 10),
                          {.buffer_bytes = 64 << 10, .least_unnamed_bytes = 1, .clock = nullptr});
  const auto store = wrap(tier);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(read(*store, "a", 0, 1'000'000));
    EXPECT_EQ(read(*store, "a", 0, 1000), i == 1);
    tier->flush();
  }
  EXPECT_EQ(metric(*tier, "skipped_bytes"), 2'000'000);
}

TEST_F(ClusterStore, WhatIsCancelledWhileItIsLookedForEnds) {
  put("a", 1000, 1);
  for (FakeMemcached& server : servers_) server.behave(Manner::kSilent);
  const auto store = wrap(memcached(std::chrono::milliseconds(50)));
  Request request = get("a", 0, 1000);
  request.tag = 7;
  ASSERT_EQ(store->submit({&request, 1}), 1U);
  store->cancel(7);
  Completion done;
  while (store->wait({&done, 1}, TimePoint::max()) == 0) {
  }
  EXPECT_EQ(done.tag, 7U);
  EXPECT_EQ(done.status.code(), Code::kCancelled);
}

// Against the objects: random reads, cancelled ones, and handles that die, while servers misbehave.
TEST_F(ClusterStore, RandomReadsAreRight) {
  Random random(test_seed());
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    for (int i = 0; i < 3; ++i)
      put("o" + std::to_string(i), 1 + random.below(400'000), random.next());
    const auto near = memcached(std::chrono::milliseconds(30)), far = hot();
    const auto open_handle = [&] { return wrap_tier(wrap(far), near, 4096); };
    std::vector<std::unique_ptr<Store>> stores;
    for (int i = 0; i < 3; ++i) stores.push_back(open_handle());
    struct Asked {
      std::string key;
      std::uint64_t offset = 0, length = 0;
      bool is_cancelled = false;
    };
    std::vector<std::map<std::uint64_t, Asked>> asked(stores.size());
    const auto check = [&](std::size_t which, const Completion& done) {
      const auto found = asked[which].find(done.tag);
      ASSERT_NE(found, asked[which].end()) << "nobody asked, or it came twice";
      const Asked& what = found->second;
      ASSERT_TRUE(done.status.ok() || what.is_cancelled) << done.status.message();
      if (done.status.ok()) {
        const std::string_view bytes(reinterpret_cast<const char*>(done.slab.bytes().data()),
                                     what.length);
        EXPECT_TRUE(bytes ==
                    std::string_view(objects_[what.key].first).substr(what.offset, what.length));
      }
      asked[which].erase(found);
    };
    std::uint64_t next_tag = 1;
    for (int step = 0; step < 200; ++step) {
      const std::size_t which = random.below(stores.size());
      const std::uint64_t dice = random.below(40);
      Completion done;
      if (dice < 22) {
        const std::string key = "o" + std::to_string(random.below(3));
        const std::uint64_t size = objects_[key].first.size();
        const std::uint64_t grid = 1 + size / (1 + random.below(4));
        const std::uint64_t offset = random.below(size) / grid * grid;
        const std::uint64_t length = std::min(size - offset, grid);
        Request request = get(key, offset, length);
        request.tag = next_tag;
        request.fresh_connection = random.below(30) == 0;
        if (stores[which]->submit({&request, 1}) == 1)
          asked[which][next_tag++] = {key, offset, length, false};
      } else if (dice < 36) {
        if (stores[which]->wait({&done, 1}, TimePoint::min()) == 1) check(which, done);
      } else if (dice == 36 && !asked[which].empty()) {
        asked[which].begin()->second.is_cancelled = true;
        stores[which]->cancel(asked[which].begin()->first);
      } else if (dice == 37) {
        const auto manner = random.below(static_cast<std::uint64_t>(Manner::kHugeSize) + 1);
        servers_[random.below(2)].behave(random.below(2) == 0 ? Manner::kGood
                                                              : static_cast<Manner>(manner));
      } else if (dice == 38) {
        servers_[random.below(2)].hang_up();
      } else if (dice == 39 && random.below(4) == 0) {
        stores[which] = open_handle();  // The old one dies with what it has under way.
        asked[which].clear();
      }
    }
    // All in turn: what one wants may be on its way to another.
    const auto is_waiting = [](const auto& handle) { return !handle.empty(); };
    while (std::any_of(asked.begin(), asked.end(), is_waiting)) {
      for (std::size_t i = 0; i < stores.size(); ++i) {
        Completion done;
        const TimePoint until = system_clock().now() + std::chrono::milliseconds(1);
        if (!asked[i].empty() && stores[i]->wait({&done, 1}, until) == 1) check(i, done);
      }
    }
    stores.clear();
    ASSERT_EQ(pool_->used_bytes(), 0U) << "slabs were lost";
  }
}

/// A store that others reach, too.
class NamedStore final : public ForwardingStore {
 public:
  explicit NamedStore(std::unique_ptr<Store> inner) : ForwardingStore(std::move(inner)) {}
  const std::string& url() const noexcept override { return url_; }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<NamedStore>(std::move(handle)));
  }
  const std::string url_ = "watched://cold";
};

// Whoever is let in with one password is not let in with another.
TEST_F(ClusterStore, HotStoresOfOtherOptionsAreOthers) {
  put("a", 1000, 1);
  const auto open_with = [&](const auto& change) {
    HotStoreOptions hot;
    hot.store.url = "memory://hot";
    hot.environment.variables = {{"AWS_SECRET_ACCESS_KEY", "one"}, {"LINES", "24"}};
    change(hot);
    auto store = read_through_cluster(
        std::make_unique<NamedStore>(*cold_->new_handle()),
        {.engine = hot, .buffer_bytes = 64 << 20, .least_unnamed_bytes = 1, .clock = nullptr});
    EXPECT_TRUE(store) << store.error().message();
    return *std::move(store);
  };
  const auto misses = [](const Store& store) {
    MetricList all;
    store.append_metrics(all);
    const auto found = std::find_if(all.begin(), all.end(), [](const Metric& metric) {
      return metric.name == "cache.store_misses";
    });
    return found != all.end() ? found->value : -1;
  };
  const auto first = open_with([](HotStoreOptions&) {});
  EXPECT_TRUE(run(*first, get("a", 0, 1000)).status.ok());
  EXPECT_EQ(misses(*first), 1);
  using Change = void (*)(HotStoreOptions&);
  for (const Change same : {Change([](HotStoreOptions&) {}), Change([](HotStoreOptions& hot) {
                              hot.environment.variables["LINES"] = "25";
                            })})
    EXPECT_EQ(misses(*open_with(same)), 1);
  for (const Change other : {Change([](HotStoreOptions& hot) { hot.store.anonymous = true; }),
                             Change([](HotStoreOptions& hot) { hot.store.path_style = true; }),
                             Change([](HotStoreOptions& hot) { hot.store.path_style = false; }),
                             Change([](HotStoreOptions& hot) { hot.store.tls_verify = false; }),
                             Change([](HotStoreOptions& hot) { hot.store.ca_bundle = "/ca.pem"; }),
                             Change([](HotStoreOptions& hot) { hot.store.proxy = "none"; }),
                             Change([](HotStoreOptions& hot) {
                               hot.environment.variables["AWS_SECRET_ACCESS_KEY"] = "two";
                             }),
                             Change([](HotStoreOptions& hot) {
                               hot.environment.variables["AWS_SESSION_TOKEN"] = "token";
                             })})
    EXPECT_EQ(misses(*open_with(other)), 0);
}

}  // namespace
}  // namespace headrace::tier
