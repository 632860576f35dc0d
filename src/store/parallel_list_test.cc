#include "store/parallel_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>

#include "base/random.h"
#include "headrace/forwarding_store.h"
#include "store/list_pager.h"
#include "store/memory/memory_store.h"

namespace headrace {
namespace {

/// Lists the keys it was made with by S3's rules, and holds none of them; counts.
class ListedStore final : public ForwardingStore {
 public:
  explicit ListedStore(std::set<std::string> keys)
      : ForwardingStore(*open_memory_store(memory())), keys_(std::move(keys)) {
    traits_.can_start_after = true;
  }

  Result<ListPage> list(const ListRequest& request, const CallOptions& call) override {
    const Visit visit(*this);
    if (before) HEADRACE_TRY(before(request));
    if (call.stop.stop_requested()) return Status(Code::kCancelled, "cancelled");
    ListPager pager(request);
    HEADRACE_TRY(pager.check());
    EXPECT_TRUE(request.start_after.empty() || traits_.can_start_after);
    const std::string& token = request.continuation;
    const std::string from = token.empty() ? std::max(request.prefix, request.start_after)
                                           : std::max(request.prefix, token.substr(1));
    for (auto it = keys_.lower_bound(from); it != keys_.end(); ++it) {
      if (!it->starts_with(request.prefix)) break;
      if (token.empty() && !request.start_after.empty() && *it <= request.start_after) continue;
      ObjectInfo info;
      info.key = *it;
      if (!pager.add(std::move(info))) break;
    }
    ListPage page = pager.take();
    if (after) after(page);
    return page;
  }

  /// Waits until `count` listings are under way.
  void await(std::size_t count) {
    MutexLock lock(mutex_);
    changed_.notify_all();
    while (most_ < count) lock.wait(changed_);
  }
  std::size_t request_count() {
    MutexLock lock(mutex_);
    return requests_;
  }
  std::size_t most_in_flight() {
    MutexLock lock(mutex_);
    return most_;
  }
  StoreTraits& edit_traits() { return traits_; }

  std::function<Status(const ListRequest&)> before;
  std::function<void(ListPage&)> after;

  const StoreTraits& traits() const noexcept override { return traits_; }

 private:
  struct Visit {
    explicit Visit(ListedStore& s) : store(s) {
      MutexLock lock(store.mutex_);
      ++store.requests_;
      store.most_ = std::max(store.most_, ++store.in_flight_);
    }
    ~Visit() {
      MutexLock lock(store.mutex_);
      --store.in_flight_;
    }
    ListedStore& store;
  };
  static StoreOptions memory() {
    StoreOptions options;
    options.url = "memory://listed";
    return options;
  }
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store>) override {
    return Status(Code::kUnsupported, "has one handle");
  }

  const std::set<std::string> keys_;
  StoreTraits traits_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::size_t requests_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t in_flight_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::size_t most_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

std::string number(std::size_t value, std::size_t digits) {
  std::string text = std::to_string(value);
  return text.insert(0, digits - std::min(digits, text.size()), '0');
}

std::set<std::string> flat_keys(std::size_t count) {
  std::set<std::string> keys;
  for (std::size_t i = 0; i < count; ++i) keys.insert(keys.end(), "flat/key-" + number(i, 8));
  return keys;
}

std::set<std::string> tree_keys(std::size_t directories, std::size_t each) {
  std::set<std::string> keys;
  for (std::size_t d = 0; d < directories; ++d) {
    for (std::size_t i = 0; i < each; ++i)
      keys.insert(keys.end(), "tree/d" + number(d, 3) + "/k" + number(i, 6));
  }
  return keys;
}

Result<std::vector<std::string>> keys_of(ParallelList& list) {
  std::vector<std::string> keys;
  while (true) {
    HEADRACE_TRY_ASSIGN(const std::vector<ObjectInfo> some, list.next());
    if (some.empty()) return keys;
    for (const ObjectInfo& info : some) keys.push_back(info.key);
  }
}

std::vector<std::string> below(const std::set<std::string>& keys, const std::string& prefix) {
  std::vector<std::string> found;
  for (const std::string& key : keys) {
    if (key.starts_with(prefix)) found.push_back(key);
  }
  return found;
}

std::size_t pages_of(std::size_t keys) { return std::max<std::size_t>(1, (keys + 999) / 1000); }

/// Keys of a few odd pieces, so that many share beginnings and some are beginnings of others.
std::set<std::string> odd_keys(Random& random, std::size_t count) {
  static const std::vector<std::string> kPieces = {
      "/", "//", "a", "b",    "0",   "17",  "-", ".", "é", "日本", "\xf0\x9f\x98\x80",
      " ", "~",  "Z", "dir/", "key", "\x7f"};
  std::set<std::string> keys;
  for (int tries = 0; keys.size() < count && tries < 200'000; ++tries) {
    std::string key;
    const std::size_t pieces = 1 + random.below(9);
    for (std::size_t i = 0; i < pieces; ++i) key += kPieces[random.below(kPieces.size())];
    keys.insert(std::move(key));
  }
  return keys;
}

TEST(ParallelList, ListsEveryKeyOnceInOrderWhateverTheKeys) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Random random(seed);
    const std::set<std::string> keys = odd_keys(random, 500 + random.below(12'000));
    for (const std::string prefix : {"", "a", "/", "dir/", "nothing/"}) {
      ListedStore store(keys);
      store.edit_traits().can_start_after = seed % 2 == 0;
      ParallelListOptions options;
      options.max_buffered_pages = 1 + random.below(8);
      options.is_ordered = seed % 3 != 0;
      ParallelList list(store, prefix, options);
      auto found = keys_of(list);
      ASSERT_TRUE(found) << found.error().message();
      if (!options.is_ordered) std::sort(found->begin(), found->end());
      const auto expected = below(keys, prefix);
      ASSERT_EQ(*found, expected) << "seed " << seed << ", prefix " << prefix;
      EXPECT_EQ(list.request_count(), store.request_count());
      EXPECT_LE(store.request_count(), 2 * pages_of(expected.size()) + 1) << "seed " << seed;
    }
  }
}

TEST(ParallelList, CostsTreesOfFewPagesAtMostOneListingMore) {
  for (const std::size_t count : {0U, 1U, 999U, 1000U, 1001U, 2500U, 3999U}) {
    for (const bool is_flat : {true, false}) {
      const auto keys = is_flat ? flat_keys(count) : tree_keys(count / 3, 3);
      ListedStore store(keys);
      ParallelList list(store, "");
      ASSERT_EQ(keys_of(list)->size(), keys.size());
      EXPECT_LE(store.request_count(), pages_of(keys.size()) + (keys.size() > 1000 ? 1 : 0))
          << count << (is_flat ? " flat" : " tree");
    }
  }
}

TEST(ParallelList, CostsLargeTreesLittleMore) {
  std::set<std::string> hex;
  Random random(7);
  while (hex.size() < 60'000) {
    std::string key = "h/";
    for (int i = 0; i < 12; ++i) key += "0123456789abcdef"[random.below(16)];
    hex.insert(std::move(key));
  }
  for (const auto& keys : {flat_keys(60'000), tree_keys(60, 1000), tree_keys(3, 20'000),
                           tree_keys(900, 60), tree_keys(20'000, 3), hex}) {
    ListedStore store(keys);
    ParallelList list(store, "");
    ASSERT_EQ(*keys_of(list), std::vector<std::string>(keys.begin(), keys.end()));
    EXPECT_LE(store.request_count(), pages_of(keys.size()) * 3 / 2 + 3) << *keys.begin();
    EXPECT_LE(store.most_in_flight(), 8U);
  }
}

TEST(ParallelList, KeepsSeveralListingsInFlight) {
  for (const bool is_flat : {true, false}) {
    ListedStore store(is_flat ? flat_keys(100'000) : tree_keys(100, 1000));
    store.edit_traits().can_start_after = is_flat;
    std::atomic<int> calls{0};
    // Ends only if two come together.
    store.before = [&](const ListRequest&) {
      if (++calls > 5) store.await(2);
      return Status();
    };
    ParallelList list(store, "");
    EXPECT_EQ(keys_of(list)->size(), 100'000U);
    EXPECT_GE(store.most_in_flight(), 2U);
  }
}

TEST(ParallelList, HoldsNoMorePagesThanItMay) {
  ListedStore store(flat_keys(100'000));
  ParallelListOptions options;
  options.max_buffered_pages = 4;
  ParallelList list(store, "", options);
  for (std::size_t taken = 1; taken <= 20; ++taken) {
    ASSERT_FALSE(list.next()->empty());
    // What was taken, what may be held (in order: two each of eight parts), and what is under way;
    // guesses and ends of parts count as well.
    EXPECT_LE(list.request_count(), 2 * taken + 4 + 16 + 8 + 8);
  }
}

TEST(ParallelList, ListsLocalAndUnorderedStoresPageAfterPage) {
  for (const bool is_local : {true, false}) {
    ListedStore store(flat_keys(20'000));
    (is_local ? store.edit_traits().is_local : store.edit_traits().lists_in_order) = is_local;
    ParallelList list(store, "flat/");
    EXPECT_EQ(keys_of(list)->size(), 20'000U);
    EXPECT_EQ(store.request_count(), 20U);
    EXPECT_EQ(store.most_in_flight(), 1U);
  }
}

TEST(ParallelList, ListsAMemoryStore) {
  StoreOptions options;
  options.url = "memory://some";
  auto store = open_memory_store(options);
  ASSERT_TRUE(store);
  for (const std::string key : {"a", "a/", "a//b", "a/b", "b"}) {
    Request request;
    request.op = Op::kPut;
    request.key = key;
    ASSERT_EQ((*store)->submit({&request, 1}), 1U);
    Completion done;
    ASSERT_EQ((*store)->wait({&done, 1}, TimePoint::max()), 1U);
    ASSERT_TRUE(done.status.ok());
  }
  ParallelList list(**store, "a");
  EXPECT_EQ(*keys_of(list), (std::vector<std::string>{"a", "a/", "a//b", "a/b"}));
}

TEST(ParallelList, EndsWithTheFirstErrorAndRepeatsIt) {
  for (const int good_calls : {0, 1, 9}) {
    ListedStore store(flat_keys(50'000));
    std::atomic<int> calls{0};
    store.before = [&](const ListRequest&) {
      return calls++ < good_calls ? Status() : Status(Code::kDenied, "not for you");
    };
    ParallelList list(store, "");
    EXPECT_EQ(keys_of(list).error().code(), Code::kDenied);
    EXPECT_EQ(list.next().error().message(), "not for you");
  }
}

TEST(ParallelList, IsCancelledByTheCaller) {
  ListedStore store(flat_keys(50'000));
  std::stop_source stop;
  CallOptions call;
  call.stop = stop.get_token();
  ParallelList list(store, "", {}, call);
  EXPECT_FALSE(list.next()->empty());
  stop.request_stop();
  EXPECT_EQ(list.next().error().code(), Code::kCancelled);
}

TEST(ParallelList, MayBeLeftEarly) {
  ListedStore store(flat_keys(200'000));
  ParallelListOptions options;
  options.max_buffered_pages = 4;
  {
    ParallelList list(store, "", options);
    EXPECT_FALSE(list.next()->empty());
    EXPECT_FALSE(list.next()->empty());
  }
  EXPECT_LT(store.request_count(), 100U);
}

TEST(ParallelList, EndsWhenTheStoreContinuesAtTheSamePlace) {
  for (const bool is_in_order : {true, false}) {
    ListedStore store(flat_keys(50'000));
    store.edit_traits().lists_in_order = is_in_order;
    store.after = [](ListPage& page) { page.continuation = "kflat/key-00000999"; };
    ParallelList list(store, "");
    EXPECT_EQ(keys_of(list).error().code(), Code::kCorrupt);
  }
}

TEST(ParallelList, RefusesKeysOutOfOrderOncePartsAreListedAtATime) {
  ListedStore store(flat_keys(50'000));
  std::atomic<int> calls{0};
  store.before = [&](const ListRequest&) {
    if (++calls > 1) store.await(2);
    return Status();
  };
  store.after = [&](ListPage& page) {
    if (calls > 1) std::reverse(page.objects.begin(), page.objects.end());
  };
  ParallelList list(store, "flat/");
  const auto found = keys_of(list);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::kCorrupt);
}

TEST(ParallelList, ListsAStoreOutOfOrderPageAfterPage) {
  ListedStore store(flat_keys(20'000));
  store.after = [](ListPage& page) { std::reverse(page.objects.begin(), page.objects.end()); };
  ParallelList list(store, "");
  EXPECT_EQ(keys_of(list)->size(), 20'000U);
  EXPECT_EQ(store.request_count(), 20U);
}

}  // namespace
}  // namespace headrace
