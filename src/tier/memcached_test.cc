// The client against a server that misbehaves in each way: whatever that does is an outcome, comes
// once, and the next server is none the worse for it.
#include "tier/memcached.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tier/fake_memcached.h"
#include "tier/rest.h"

namespace headrace::tier {
namespace {

using Manner = FakeMemcached::Manner;
using Outcome = RemoteCache::Outcome;

/// What one transfer came to.
class End {
 public:
  RemoteCache::Done take() {
    return [this](Outcome outcome, std::uint64_t object_size) {
      MutexLock lock(mutex_);
      EXPECT_FALSE(outcome_) << "it ended twice";
      outcome_ = outcome;
      object_size_ = object_size;
      changed_.notify_all();
    };
  }
  Outcome wait() {
    MutexLock lock(mutex_);
    while (!outcome_) lock.wait(changed_);
    return *outcome_;
  }
  std::uint64_t object_size() {
    MutexLock lock(mutex_);
    return object_size_;
  }

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  std::optional<Outcome> outcome_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t object_size_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

class Memcached : public ::testing::Test {
 protected:
  void SetUp() override { pool_ = *SlabPool::create({.limit_bytes = std::uint64_t{64} << 20}); }

  std::unique_ptr<RemoteCache> open(std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    auto cache = open_memcached({.nodes = {server_.name()},
                                 .item_bytes = 64 << 10,
                                 .read_connections = 2,
                                 .timeout = timeout});
    EXPECT_TRUE(cache) << cache.error().message();
    return *std::move(cache);
  }
  static ExtentInfo extent(std::uint64_t number, std::uint64_t length) {
    return {.name = {{number, 7}, 4096 * number, length},
            .object_size_bytes = 1'000'000,
            .url = "s3://bucket/key" + std::to_string(number),
            .etag = "\"abc\""};
  }
  static std::string content(const ExtentInfo& info) {
    std::string out(info.name.length_bytes, '\0');
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<char>(i * 31 + info.name.object.high + i / 251);
    return out;
  }
  void start_put(RemoteCache& cache, const ExtentInfo& info, End& end) {
    const std::string bytes = content(info);
    const ExtentParts parts(bytes.size(), cache.part_bytes());
    const std::size_t header = remote_header_bytes(info);
    Slab slab = *pool_->try_acquire(bytes.size() + parts.count() * header);
    auto at = slab.bytes();
    for (std::uint64_t i = 0; i < parts.count(); ++i) {
      const ExtentPart part = parts.part(i);
      const auto data = at.subspan(header, part.length_bytes);
      std::memcpy(data.data(), bytes.data() + part.from_bytes, part.length_bytes);
      make_remote_header(info, part.from_bytes, data, at.first(header));
      at = at.subspan(header + part.length_bytes);
    }
    cache.put({.extent = info, .slab = std::move(slab), .done = end.take()});
  }
  Outcome put(RemoteCache& cache, const ExtentInfo& info) {
    End end;
    start_put(cache, info, end);
    return end.wait();
  }
  Outcome get(RemoteCache& cache, const ExtentInfo& info, TimePoint deadline = TimePoint::max(),
              bool claims = false) {
    End end;
    out_.assign(info.name.length_bytes, '\0');
    cache.get({.extent = info,
               .out = std::as_writable_bytes(std::span(out_)),
               .deadline = deadline,
               .claims = claims,
               .done = end.take()});
    const Outcome outcome = end.wait();
    if (outcome == Outcome::kDone) {
      EXPECT_TRUE(out_ == content(info));
      EXPECT_EQ(end.object_size(), info.object_size_bytes);
    }
    return outcome;
  }

  FakeMemcached server_;
  std::unique_ptr<SlabPool> pool_;
  std::string out_;
};

TEST_F(Memcached, GivesWhatItWasGiven) {
  const auto cache = open();
  for (const std::uint64_t length : {1U, 100U, 61'000U, 61'440U, 61'441U, 1'000'000U}) {
    const ExtentInfo info = extent(length, length);
    EXPECT_EQ(get(*cache, info), Outcome::kMissing);
    EXPECT_EQ(put(*cache, info), Outcome::kDone);
    EXPECT_EQ(get(*cache, info), Outcome::kDone) << length;
  }
  EXPECT_LE(server_.largest_item_bytes(), 64U << 10);
  EXPECT_EQ(server_.item_count(), 1 + 1 + 1 + 1 + 2 + 17U);
  EXPECT_EQ(server_.connection_count(), 2U) << "one that reads, one that writes";
}

TEST_F(Memcached, WhoClaimsWhatIsMissingBringsIt) {
  const auto cache = open(), other = open();
  for (const std::uint64_t length : {1U, 61'440U, 1'000'000U}) {
    const ExtentInfo info = extent(length, length);
    EXPECT_EQ(get(*cache, info, TimePoint::max(), true), Outcome::kClaimed);
    EXPECT_EQ(get(*other, info, TimePoint::max(), true), Outcome::kTaken);
    EXPECT_EQ(get(*other, info), Outcome::kTaken) << "who does not claim hears of it as well";
    cache->release(info);
    while (server_.claim_count() > 0) std::this_thread::yield();
    EXPECT_EQ(get(*other, info), Outcome::kMissing);
    EXPECT_EQ(get(*other, info, TimePoint::max(), true), Outcome::kClaimed);
    EXPECT_EQ(get(*cache, info, TimePoint::max(), true), Outcome::kTaken);
    EXPECT_EQ(put(*other, info), Outcome::kDone);
    EXPECT_EQ(get(*cache, info, TimePoint::max(), true), Outcome::kDone);
  }
  cache->release(extent(5, 5));  // Nobody has claimed it.
  EXPECT_EQ(get(*cache, extent(5, 5)), Outcome::kMissing);
}

TEST_F(Memcached, ManyAtOnce) {
  constexpr std::uint64_t kCount = 200;
  const auto cache = open();
  std::vector<End> puts(kCount), gets(2 * kCount);
  std::vector<std::string> outs(2 * kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) start_put(*cache, extent(i, 1 + 997 * i), puts[i]);
  for (End& end : puts) EXPECT_EQ(end.wait(), Outcome::kDone);
  for (std::uint64_t i = 0; i < 2 * kCount; ++i) {
    const ExtentInfo info = extent(i, 1 + 997 * i);
    outs[i].resize(info.name.length_bytes);
    cache->get({.extent = info,
                .out = std::as_writable_bytes(std::span(outs[i])),
                .done = gets[i].take()});
  }
  for (std::uint64_t i = 0; i < 2 * kCount; ++i) {
    EXPECT_EQ(gets[i].wait(), i < kCount ? Outcome::kDone : Outcome::kMissing);
    EXPECT_TRUE(i >= kCount || outs[i] == content(extent(i, 1 + 997 * i))) << i;
  }
  EXPECT_LE(server_.connection_count(), 3U);
}

TEST_F(Memcached, WhatIsOfAnotherExtentIsCorrupt) {
  const auto cache = open();
  for (std::uint64_t i = 0; i < 3; ++i) put(*cache, extent(i, 5000));
  server_.swap_values();
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(get(*cache, extent(i, 5000)), Outcome::kCorrupt);
  ExtentInfo other = extent(1, 5000);
  EXPECT_EQ(put(*cache, other), Outcome::kDone) << "and is replaced";
  EXPECT_EQ(get(*cache, other), Outcome::kDone);
  other.etag = "\"abd\"";  // As if the hashes of two versions were the same.
  EXPECT_EQ(get(*cache, other), Outcome::kCorrupt);
  other = extent(1, 5000);
  other.url += 'x';
  EXPECT_EQ(get(*cache, other), Outcome::kCorrupt);
}

struct Misbehaviour {
  Manner manner;
  Outcome of_get, of_put;
  bool ends_connection;
};

class MisbehavingMemcached : public Memcached,
                             public ::testing::WithParamInterface<Misbehaviour> {};

TEST_P(MisbehavingMemcached, IsAMiss) {
  const Misbehaviour how = GetParam();
  const std::chrono::milliseconds timeout(how.manner == Manner::kSilent ? 30 : 20'000);
  for (const std::uint64_t length : {100U, 50'000U, 200'000U}) {
    server_.behave(Manner::kGood);
    const ExtentInfo info = extent(1, length);
    ASSERT_EQ(put(*open(), info), Outcome::kDone);
    const auto cache = open(timeout);
    server_.behave(how.manner);
    EXPECT_EQ(get(*cache, info), how.of_get) << length;
    server_.behave(Manner::kGood);
    // A node that failed rests for a second at least.
    const Outcome next = get(*cache, info);
    EXPECT_TRUE(next == Outcome::kDone || how.ends_connection) << static_cast<int>(next);
    server_.behave(how.manner);
    EXPECT_EQ(put(*open(timeout), info), how.of_put);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each, MisbehavingMemcached,
    ::testing::Values(Misbehaviour{Manner::kWrongBytes, Outcome::kCorrupt, Outcome::kDone, false},
                      Misbehaviour{Manner::kWrongHeader, Outcome::kCorrupt, Outcome::kDone, false},
                      Misbehaviour{Manner::kLongerValue, Outcome::kCorrupt, Outcome::kDone, false},
                      Misbehaviour{Manner::kServerError, Outcome::kRefused, Outcome::kRefused,
                                   false},
                      Misbehaviour{Manner::kCutOff, Outcome::kFailed, Outcome::kDone, true},
                      Misbehaviour{Manner::kNoLineEnd, Outcome::kFailed, Outcome::kDone, true},
                      Misbehaviour{Manner::kSilent, Outcome::kFailed, Outcome::kFailed, true},
                      Misbehaviour{Manner::kCloses, Outcome::kFailed, Outcome::kFailed, true},
                      Misbehaviour{Manner::kOutOfOrder, Outcome::kFailed, Outcome::kFailed, true},
                      Misbehaviour{Manner::kGarbage, Outcome::kFailed, Outcome::kFailed, true},
                      Misbehaviour{Manner::kEndlessLine, Outcome::kFailed, Outcome::kFailed, true},
                      Misbehaviour{Manner::kHugeSize, Outcome::kFailed, Outcome::kFailed, true}),
    [](const auto& how) { return std::to_string(static_cast<int>(how.param.manner)); });

// An answer that nobody asked for would be taken for that to the next command.
TEST_F(Memcached, AnswersThatNobodyAskedForAreNotTaken) {
  const auto cache = open();
  const ExtentInfo a = extent(1, 3000), b = extent(2, 3000);
  put(*cache, a);
  put(*cache, b);
  server_.behave(Manner::kUnasked);
  for (int i = 0; i < 20; ++i) {
    get(*cache, a);  // Checks what it gets.
    get(*cache, b);
  }
}

TEST_F(Memcached, ConnectionsThatTheServerClosedAreMadeAnew) {
  const auto cache = open();
  const ExtentInfo info = extent(1, 3000);
  put(*cache, info);
  EXPECT_EQ(get(*cache, info), Outcome::kDone);
  for (int i = 0; i < 5; ++i) {
    server_.hang_up();
    EXPECT_EQ(get(*cache, info), Outcome::kDone);
  }
}

TEST_F(Memcached, NobodyThereIsAMiss) {
  std::string gone;
  {
    FakeMemcached other;
    gone = other.name();
  }
  for (const std::string& name : {gone, std::string("no-such-host.invalid")}) {
    const auto cache = open_memcached({.nodes = {name}, .timeout = std::chrono::seconds(20)});
    ASSERT_TRUE(cache);
    EXPECT_EQ(get(**cache, extent(1, 100)), Outcome::kFailed) << name;
    EXPECT_NE(get(**cache, extent(1, 100)), Outcome::kDone) << name;
    EXPECT_NE(put(**cache, extent(1, 100)), Outcome::kDone) << name;
  }
}

TEST_F(Memcached, WhoHasNoTimeIsNotHeldUp) {
  const auto cache = open();
  EXPECT_EQ(get(*cache, extent(1, 100), system_clock().now()), Outcome::kResting);
}

TEST_F(Memcached, EndsWithWhatIsUnderWay) {
  std::vector<End> ends(20);
  std::vector<std::string> outs(ends.size(), std::string(100, '\0'));
  server_.behave(Manner::kSilent);
  {
    const auto cache = open(std::chrono::milliseconds(50));
    for (std::size_t i = 0; i < ends.size(); ++i)
      cache->get({.extent = extent(i, 100),
                  .out = std::as_writable_bytes(std::span(outs[i])),
                  .done = ends[i].take()});
  }
  for (End& end : ends) EXPECT_EQ(end.wait(), Outcome::kFailed);
}

TEST_F(Memcached, OptionsThatMakeNoSenseAreErrors) {
  const auto code = [](MemcachedOptions options) {
    const auto cache = open_memcached(options);
    return cache ? Code::kOk : cache.error().code();
  };
  using Nodes = std::vector<std::string>;
  for (const Nodes& nodes : {Nodes{}, Nodes{""}, Nodes{"a:"}, Nodes{"a:0"}, Nodes{"a:x"},
                             Nodes{"a:70000"}, Nodes{"a b"}, Nodes{"u@h"}, Nodes{"a", "a"}})
    EXPECT_EQ(code({.nodes = nodes}), Code::kInvalidArgument) << nodes.size();
  EXPECT_EQ(code({.nodes = {"a"}, .item_bytes = 100}), Code::kInvalidArgument);
  EXPECT_EQ(code({.nodes = {"a"}, .read_connections = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.nodes = {"a"}, .timeout = std::chrono::milliseconds(0)}),
            Code::kInvalidArgument);
  EXPECT_EQ(code({.nodes = {"a", "b:1", "[::1]:5", "::1"}}), Code::kInvalidArgument)
      << "an address with colons wants brackets";
  EXPECT_EQ(code({.nodes = {"a", "b:1", "[::1]:5", "[::2]"}}), Code::kOk);
}

TEST(NodeOf, SpreadsEvenlyAndMovesOnlyWhatWasOnTheNodeThatWent) {
  const std::vector<std::string> three = {"a:1", "b:1", "c:1"}, turned = {"c:1", "a:1", "b:1"},
                                 two = {"a:1", "c:1"};
  std::map<std::string, int> count;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const ExtentName name = {{i, i * i}, i << 20, 8 << 20};
    const std::string& node = three[node_of(name, three)];
    EXPECT_EQ(node, turned[node_of(name, turned)]);
    EXPECT_TRUE(node == "b:1" || node == two[node_of(name, two)]);
    ++count[node];
  }
  for (const auto& [node, n] : count) EXPECT_NEAR(n, 1000, 120) << node;
}

TEST(Rest, DoublesAndLetsOneTry) {
  Rest rest;
  TimePoint now{std::chrono::seconds(100)};
  EXPECT_TRUE(rest.may_try(now));
  EXPECT_TRUE(rest.may_try(now));
  std::chrono::milliseconds pause = Rest::kFirst;
  for (int i = 0; i < 10; ++i) {
    rest.note_failure(now);
    rest.note_failure(now);  // Another connection of the same node: once is enough.
    EXPECT_FALSE(rest.may_try(now + pause - std::chrono::milliseconds(1)));
    now += pause;
    EXPECT_TRUE(rest.may_try(now));
    EXPECT_FALSE(rest.may_try(now)) << "one is trying";
    pause = std::min(2 * pause, Rest::kLongest);
  }
  EXPECT_EQ(pause, Rest::kLongest);
  rest.note_success();
  EXPECT_TRUE(rest.may_try(now));
  rest.note_failure(now);
  EXPECT_TRUE(rest.may_try(now + Rest::kFirst));
}

}  // namespace
}  // namespace headrace::tier
