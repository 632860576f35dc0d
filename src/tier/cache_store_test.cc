// The cache against stores that count, misbehave and change, and against damage to its files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log_capture.h"
#include "base/random.h"
#include "base/small_files.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"
#include "headrace/cache.h"
#include "headrace/forwarding_store.h"
#include "store/fault/fault_store.h"
#include "store/fault/reused_tag.h"
#include "store/memory/memory_store.h"
#include "tier/extent_file.h"

namespace headrace::tier {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Counts the bytes that are asked of the store inside.
class CountingStore final : public ForwardingStore {
 public:
  CountingStore(std::unique_ptr<Store> inner, std::shared_ptr<std::atomic<std::uint64_t>> bytes)
      : ForwardingStore(std::move(inner)), bytes_(std::move(bytes)) {}
  std::size_t submit(std::span<Request> requests) override {
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> lengths;
    for (const Request& request : requests) lengths.push_back(request.length_bytes);
    const std::size_t count = inner().submit(requests);
    for (std::size_t i = 0; i < count; ++i) bytes += lengths[i];
    bytes_->fetch_add(bytes);
    return count;
  }
  std::string origin() const override { return "counted:1"; }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<CountingStore>(std::move(handle), bytes_));
  }
  const std::shared_ptr<std::atomic<std::uint64_t>> bytes_;
};

std::string content(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random.next());
  return out;
}

/// Where answers of head() wait on their way back.
struct HeadGate {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = true;
  std::size_t waiting_count = 0;

  void set_open(bool open) {
    const std::lock_guard lock(mutex);
    is_open = open;
    changed.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex);
    ++waiting_count;
    changed.notify_all();
    changed.wait(lock, [&] { return is_open; });
    --waiting_count;
  }
  void await_waiting(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return waiting_count >= count; });
  }
};

class GatedStore final : public ForwardingStore {
 public:
  GatedStore(std::unique_ptr<Store> inner, std::shared_ptr<HeadGate> gate)
      : ForwardingStore(std::move(inner)), gate_(std::move(gate)) {}
  Result<ObjectInfo> head(const std::string& key, const CallOptions& call) override {
    auto info = inner().head(key, call);
    gate_->pass();
    return info;
  }
  std::string origin() const override { return "counted:1"; }

 private:
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<GatedStore>(std::move(handle), gate_));
  }
  const std::shared_ptr<HeadGate> gate_;
};

class CacheStore : public ::testing::Test {
 protected:
  void SetUp() override {
    pool_ = *SlabPool::create({.limit_bytes = 256 * kMiB});
    fetched_ = std::make_shared<std::atomic<std::uint64_t>>(0);
    StoreOptions options;
    options.url = "memory://cached";
    origin_ = *open_memory_store(options);
  }

  std::shared_ptr<Cache> open_cache(std::uint64_t limit = 0) {
    auto cache = Cache::open({.directory = directory_.path(), .limit_bytes = limit});
    EXPECT_TRUE(cache) << cache.error().message();
    return cache ? *std::move(cache) : nullptr;
  }
  std::unique_ptr<Store> wrap(std::shared_ptr<Cache> cache, const FaultOptions* faults = nullptr) {
    std::unique_ptr<Store> store =
        std::make_unique<CountingStore>(*origin_->new_handle(), fetched_);
    if (faults != nullptr) store = FaultStore::create(std::move(store), *faults);
    return cache_reads(std::move(store), std::move(cache));
  }

  std::string put(const std::string& key, const std::string& bytes) {
    return put(key, bytes, *origin_);
  }
  std::string put(const std::string& key, const std::string& bytes, Store& store) {
    Request request;
    request.op = Op::kPut;
    request.key = key;
    request.length_bytes = bytes.size();
    request.slab = *pool_->acquire(bytes.size(), TimePoint::max());
    std::memcpy(request.slab.bytes().data(), bytes.data(), bytes.size());
    const Completion done = run(store, std::move(request));
    EXPECT_TRUE(done.status.ok()) << done.status.message();
    objects_[key] = {bytes, done.etag};
    return done.etag;
  }
  Request get(const std::string& key, std::uint64_t offset, std::uint64_t length) {
    Request request;
    request.key = objects_.find(key)->first;
    request.etag = objects_.find(key)->second.second;
    request.offset_bytes = offset;
    request.length_bytes = length;
    request.slab = *pool_->acquire(length, TimePoint::max());
    return request;
  }
  static Completion run(Store& store, Request request) {
    Completion out;
    while (store.submit({&request, 1}) == 0) std::this_thread::yield();
    while (store.wait({&out, 1}, TimePoint::max()) == 0) {
    }
    return out;
  }
  void expect_read(Store& store, const std::string& key, std::uint64_t offset,
                   std::uint64_t length) {
    const Completion done = run(store, get(key, offset, length));
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    expect_bytes(done, key, offset, length);
  }
  void expect_bytes(const Completion& done, const std::string& key, std::uint64_t offset,
                    std::uint64_t length) {
    ASSERT_EQ(done.length_bytes, length);
    const std::string_view read(reinterpret_cast<const char*>(done.slab.bytes().data()), length);
    ASSERT_EQ(read, std::string_view(objects_[key].first).substr(offset, length))
        << key << " " << offset << " + " << length;
  }
  /// Reads the first `count` pieces of an object, one after the other, `rounds` times.
  void read_pieces(Store& store, Cache& cache, const std::string& key, std::uint64_t count,
                   std::uint64_t piece, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      for (std::uint64_t at = 0; at < count; ++at) {
        expect_read(store, key, at * piece, piece);
        cache.flush();
      }
    }
  }
  /// Reads these pieces once more, without the store.
  void expect_kept(Store& store, const std::string& key, std::uint64_t count, std::uint64_t piece) {
    const std::uint64_t before = fetched_->load();
    for (std::uint64_t at = 0; at < count; ++at) expect_read(store, key, at * piece, piece);
    EXPECT_EQ(fetched_->load(), before);
  }
  template <class Work>
  static std::vector<std::string> warnings_of(Work&& work) {
    LogCapture log(LogLevel::kWarning);
    work();
    return log.take();
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
      if (entry.is_regular_file() && parse_file_name(entry.path().filename().string()))
        out.push_back(entry.path());
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  static double metric(const Cache& cache, const std::string& name) {
    MetricList all;
    cache.append_metrics(all);
    for (const Metric& m : all) {
      if (m.name == name) return m.value;
    }
    ADD_FAILURE() << name;
    return 0;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<SlabPool> pool_;
  std::shared_ptr<std::atomic<std::uint64_t>> fetched_;
  std::unique_ptr<Store> origin_;
  std::map<std::string, std::pair<std::string, std::string>> objects_;  // content, ETag
};

TEST_F(CacheStore, WhoeverNamesADirectoryWhoseParentIsMissingHearsOfIt) {
  const std::string parent = directory_.path() + "/not-mounted";
  const auto open = [&] { EXPECT_TRUE(Cache::open({.directory = parent + "/cache"})); };
  const auto lines = warnings_of(open);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find(parent + " was not there"), std::string::npos) << lines[0];
  EXPECT_TRUE(warnings_of(open).empty());
}

TEST_F(CacheStore, ADiskThatIsFullKeepsNothingAndSaysSoOnce) {
  auto cache = Cache::open({.directory = directory_.path(), .free_floor_bytes = UINT64_MAX - 1});
  ASSERT_TRUE(cache);
  put("key", content(4 * kMiB, 1));
  const auto store = wrap(*cache);
  const auto lines = warnings_of([&] { read_pieces(*store, **cache, "key", 4, kMiB, 2); });
  EXPECT_EQ(fetched_->load(), 8 * kMiB);
  EXPECT_TRUE(files().empty());
  EXPECT_EQ(metric(**cache, "cache.free_floor_bytes"), static_cast<double>(UINT64_MAX - 1));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].find("cache warning: " + directory_.path() + ": what is fetched is not kept"),
            0U)
      << lines[0];
}

TEST_F(CacheStore, ADiskThatFailsKeepsNothingAndSaysSo) {
  const auto cache = open_cache();
  put("key", content(2 * kMiB, 1));
  const auto store = wrap(cache);
  const SmallFiles full_disk(kMiB / 2);
  const auto lines = warnings_of([&] { read_pieces(*store, *cache, "key", 2, kMiB, 1); });
  EXPECT_EQ(fetched_->load(), 2 * kMiB);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].find("cache warning: 1 failure of " + directory_.path()), 0U) << lines[0];
}

TEST_F(CacheStore, FetchesOnce) {
  put("a", content(3 * kMiB, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  expect_read(*store, "a", 0, 2 * kMiB);
  cache->flush();
  EXPECT_EQ(fetched_->load(), 2 * kMiB);
  expect_read(*store, "a", 0, 2 * kMiB);
  expect_read(*store, "a", 70'000, 100);
  expect_read(*store, "a", kMiB, kMiB);
  EXPECT_EQ(fetched_->load(), 2 * kMiB) << "all of it, and parts of it, came from the file";
  expect_read(*store, "a", 2 * kMiB, kMiB);
  cache->flush();
  expect_read(*store, "a", kMiB, 2 * kMiB);
  EXPECT_EQ(fetched_->load(), 3 * kMiB) << "two files together";
}

TEST_F(CacheStore, SurvivesItsProcess) {
  put("a", content(kMiB, 1));
  expect_read(*wrap(open_cache()), "a", 0, kMiB);
  expect_read(*wrap(open_cache()), "a", 0, kMiB);
  EXPECT_EQ(fetched_->load(), kMiB);
  EXPECT_EQ(open_cache()->usage()->data_bytes, kMiB);
}

TEST_F(CacheStore, AnotherVersionIsAnotherObject) {
  put("a", content(1000, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  expect_read(*store, "a", 0, 1000);
  put("a", content(1000, 2));
  expect_read(*store, "a", 0, 1000);
  EXPECT_EQ(fetched_->load(), 2000U);
}

TEST_F(CacheStore, ShortReadsWithoutAVersionAreNotCached) {
  put("a", content(1000, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  for (int i = 0; i < 2; ++i) {
    Request request = get("a", 0, 1000);
    request.etag = {};
    const Completion done = run(*store, std::move(request));
    ASSERT_TRUE(done.status.ok());
    EXPECT_EQ(done.etag, objects_["a"].second);
  }
  EXPECT_EQ(fetched_->load(), 2000U);
  cache->flush();
  EXPECT_TRUE(files().empty());
}

TEST_F(CacheStore, LongReadsWithoutAVersionAreOfTheOneThatIsThere) {
  put("a", content(kMiB, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  const auto read = [&](std::uint64_t length, bool allow_short) {
    Request request = get("a", 0, length);
    request.etag = {};
    request.allow_short = allow_short;
    return run(*store, std::move(request));
  };
  for (int i = 0; i < 3; ++i) {
    const Completion done = read(2 * kMiB, true);
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    expect_bytes(done, "a", 0, kMiB);
    EXPECT_EQ(done.etag, objects_["a"].second);
    cache->flush();
  }
  EXPECT_EQ(fetched_->load(), kMiB);
  EXPECT_EQ(read(2 * kMiB, false).status.code(), Code::kCorrupt) << "as without a cache";
}

// The version that was remembered has gone when it is asked for: the read is made as it was meant.
TEST_F(CacheStore, WhoNamesNoVersionNeverHearsThatItChanged) {
  const auto cache = open_cache();
  const auto store = wrap(cache);
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    put("a", content(kMiB + seed, seed));  // Past the cache, which remembers the one before.
    cache->flush();
    ASSERT_TRUE(cache->remove(""));
    Request request = get("a", 0, kMiB);
    request.etag = {};
    const Completion done = run(*store, std::move(request));
    ASSERT_TRUE(done.status.ok()) << done.status.message();
    EXPECT_EQ(done.etag, objects_["a"].second);
    expect_bytes(done, "a", 0, kMiB);
  }
}

// What head() told before a write, and brings after it, is nobody's version any more.
TEST_F(CacheStore, AReadAfterOnesOwnWriteIsOfWhatWasWritten) {
  put("a", content(kMiB, 1));
  const auto cache = open_cache();
  const auto gate = std::make_shared<HeadGate>();
  const auto store = cache_reads(std::make_unique<GatedStore>(*origin_->new_handle(), gate), cache);
  const auto writer = *store->new_handle();
  expect_read(*store, "a", 0, kMiB);
  cache->flush();
  const auto unnamed = [&] {
    Request request = get("a", 0, kMiB);
    request.etag = {};
    return request;
  };
  gate->set_open(false);
  Request before = unnamed();
  ASSERT_EQ(store->submit({&before, 1}), 1U);
  gate->await_waiting(1);
  put("a", content(kMiB, 2), *writer);
  gate->set_open(true);
  Completion first;
  while (store->wait({&first, 1}, TimePoint::max()) == 0) {
  }
  ASSERT_TRUE(first.status.ok()) << "of either version: it was under way";
  const Completion after = run(*store, unnamed());
  ASSERT_TRUE(after.status.ok()) << after.status.message();
  expect_bytes(after, "a", 0, kMiB);
}

// Of whatever store: they share the threads that read files.
TEST_F(CacheStore, AStoreThatDoesNotAnswerHoldsUpNoReadThatNeedsNoAnswer) {
  put("a", content(kMiB, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  expect_read(*store, "a", 0, kMiB);
  cache->flush();
  const auto gate = std::make_shared<HeadGate>();
  const auto silent =
      cache_reads(std::make_unique<GatedStore>(*origin_->new_handle(), gate), cache);
  gate->set_open(false);
  constexpr std::size_t kAsked = 8;  // As many as the cache has threads to read.
  for (std::size_t i = 0; i < kAsked; ++i) {
    Request request = get("a", 0, kMiB);
    request.etag = {};
    ASSERT_EQ(silent->submit({&request, 1}), 1U);
  }
  gate->await_waiting(kAsked);
  expect_read(*store, "a", 0, kMiB);
  EXPECT_EQ(fetched_->load(), kMiB);
  gate->set_open(true);
  for (std::size_t i = 0; i < kAsked; ++i) {
    Completion done;
    while (silent->wait({&done, 1}, TimePoint::max()) == 0) {
    }
    expect_bytes(done, "a", 0, kMiB);
    EXPECT_TRUE(done.was_cached);
  }
}

TEST_F(CacheStore, CancelReachesNoRequestThatCameInBetween) {
  put("a", content(1000, 1));
  put("b", content(1000, 2));
  const auto seen = std::make_shared<ReusedTag>();
  const auto store =
      cache_reads(std::make_unique<ReusedTagStore>(*origin_->new_handle(), seen), open_cache());
  const auto submit = [&](const std::string& key, std::uint64_t tag) {
    Request request = get(key, 0, 1000);
    request.etag = {};
    request.tag = tag;
    ASSERT_EQ(store->submit({&request, 1}), 1U);
  };
  Completion done;
  seen->meanwhile = [&] {
    while (store->wait({&done, 1}, TimePoint::max()) == 0) {
    }
    submit("b", 2);
  };
  submit("a", 1);
  store->cancel(1);
  seen->thread.join();
  EXPECT_EQ(done.tag, 1U);
  EXPECT_EQ(seen->cancelled_key, "a");
}

TEST_F(CacheStore, AReadPastCachesReplacesWhatIsThere) {
  put("a", content(1000, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  expect_read(*store, "a", 0, 1000);
  cache->flush();
  Request request = get("a", 0, 1000);
  request.fresh_connection = true;
  EXPECT_TRUE(run(*store, std::move(request)).status.ok());
  EXPECT_EQ(fetched_->load(), 2000U);
  cache->flush();
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(CacheStore, ManyWhoWantTheSameFetchItOnce) {
  put("a", content(4 * kMiB, 1));
  const auto cache = open_cache();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto store = wrap(cache);
      for (std::uint64_t at = 0; at < 4 * kMiB; at += kMiB) expect_read(*store, "a", at, kMiB);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fetched_->load(), 4 * kMiB);
}

TEST_F(CacheStore, DamageIsSeenCountedAndMadeGood) {
  put("a", content(kMiB, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  const std::vector<std::function<void(const std::filesystem::path&)>> damages = {
      [](const auto& path) { std::filesystem::resize_file(path, 70'000); },
      [](const auto& path) { std::filesystem::resize_file(path, 0); },
      [](const auto& path) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(500'000);
        file.put('x').put('y').put('z');
      },
      [](const auto& path) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(20);
        file.put('x').put('y').put('z');
      },
      [](const auto& path) { std::filesystem::remove(path); },
  };
  expect_read(*store, "a", 0, kMiB);
  for (const auto& damage : damages) {
    cache->flush();
    ASSERT_EQ(files().size(), 1U);
    damage(files().front());
    const std::uint64_t before = fetched_->load();
    expect_read(*store, "a", 0, kMiB);
    EXPECT_EQ(fetched_->load(), before + kMiB);
  }
  EXPECT_EQ(metric(*cache, "cache.corrupt"), 4);
}

TEST_F(CacheStore, APipeInAFilesPlaceHoldsNobodyUp) {
  put("a", content(kMiB, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  expect_read(*store, "a", 0, kMiB);
  cache->flush();
  const std::filesystem::path file = files().front();
  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  expect_read(*store, "a", 0, kMiB);
}

TEST_F(CacheStore, FilesOfOthersSwappedAreSeen) {
  put("a", content(1000, 1));
  put("b", content(1000, 2));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  expect_read(*store, "a", 0, 1000);
  expect_read(*store, "b", 0, 1000);
  cache->flush();
  const auto all = files();
  ASSERT_EQ(all.size(), 2U);
  std::filesystem::rename(all[0], directory_.path() + "/swap");
  std::filesystem::rename(all[1], all[0]);
  std::filesystem::rename(directory_.path() + "/swap", all[1]);
  expect_read(*store, "a", 0, 1000);
  expect_read(*store, "b", 0, 1000);
}

TEST_F(CacheStore, StaysBelowItsLimit) {
  const std::uint64_t file = 64 * 1024 + kHeaderBytes;
  put("a", content(4 * kMiB, 1));
  const auto cache = open_cache(10 * file);
  const auto store = wrap(cache);
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t at = 0; at < 4 * kMiB; at += 64 * 1024) {
      expect_read(*store, "a", at, 64 * 1024);
      cache->flush();
      ASSERT_LE(files().size(), 10U);
    }
  }
  EXPECT_GE(files().size(), 8U) << "it is used";
  EXPECT_EQ(metric(*cache, "cache.used_bytes"), static_cast<double>(files().size() * file));
}

// One pass over much more than the cache does not push out what is read again and again.
TEST_F(CacheStore, AScanLeavesWhatIsInUse) {
  const std::uint64_t piece = 64 * 1024;
  put("hot", content(8 * piece, 1));
  put("scan", content(200 * piece, 2));
  const auto cache = open_cache(20 * (piece + kHeaderBytes));
  const auto store = wrap(cache);
  read_pieces(*store, *cache, "hot", 8, piece, 2);
  read_pieces(*store, *cache, "scan", 200, piece, 1);
  expect_kept(*store, "hot", 8, piece);
}

// What comes back soon after it was pushed out is worth more than what was read once.
TEST_F(CacheStore, WhatComesBackIsKept) {
  const std::uint64_t piece = 64 * 1024;
  put("old", content(18 * piece, 1));
  put("loop", content(12 * piece, 2));
  const auto cache = open_cache(20 * (piece + kHeaderBytes));
  const auto store = wrap(cache);
  read_pieces(*store, *cache, "old", 18, piece, 2);
  read_pieces(*store, *cache, "loop", 12, piece, 5);
  expect_kept(*store, "loop", 12, piece);
}

TEST_F(CacheStore, AnExtentLargerThanTheLimitIsLeftOut) {
  put("a", content(kMiB, 1));
  const auto cache = open_cache(100'000);
  const auto store = wrap(cache);
  for (int i = 0; i < 2; ++i) expect_read(*store, "a", 0, kMiB);
  cache->flush();
  EXPECT_TRUE(files().empty());
  EXPECT_EQ(metric(*cache, "cache.used_bytes"), 0);
}

TEST_F(CacheStore, ADirectoryThatVanishesCostsItsUseOnly) {
  put("a", content(kMiB, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  expect_read(*store, "a", 0, kMiB);
  cache->flush();
  std::filesystem::remove_all(directory_.path());
  for (int i = 0; i < 3; ++i) {
    expect_read(*store, "a", 0, kMiB);
    cache->flush();
  }
}

TEST_F(CacheStore, ErrorsOfTheStoreAreTheReaders) {
  put("a", content(1000, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  objects_["gone"] = {"", "\"x\""};
  EXPECT_EQ(run(*store, get("gone", 0, 10)).status.code(), Code::kNotFound);
  Request wrong = get("a", 0, 1000);
  wrong.etag = "\"other\"";
  EXPECT_EQ(run(*store, std::move(wrong)).status.code(), Code::kChanged);
  Request beyond = get("a", 500, 1000);
  EXPECT_EQ(run(*store, std::move(beyond)).status.code(), Code::kCorrupt);
  cache->flush();
  EXPECT_TRUE(files().empty());
}

TEST_F(CacheStore, RemovesWhatIsNamed) {
  put("x/a", content(1000, 1));
  put("y/b", content(1000, 2));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  expect_read(*store, "x/a", 0, 1000);
  expect_read(*store, "y/b", 0, 1000);
  cache->flush();
  auto gone = cache->remove("memory://cached/x/");
  ASSERT_TRUE(gone) << gone.error().message();
  EXPECT_EQ(*gone, file_bytes({{}, 0, 1000}));
  std::vector<std::string> urls;
  ASSERT_TRUE(cache->list([&](const CachedExtent& e) { urls.push_back(e.url); }).ok());
  EXPECT_EQ(urls, std::vector<std::string>{"memory://cached/y/b"});
}

TEST_F(CacheStore, VerifyDeletesWhatIsBroken) {
  put("a", content(kMiB, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  expect_read(*store, "a", 0, 1000);
  expect_read(*store, "a", 1000, 1000);
  cache->flush();
  std::filesystem::resize_file(files().front(), kHeaderBytes + 10);
  auto check = cache->verify(nullptr);
  ASSERT_TRUE(check) << check.error().message();
  EXPECT_EQ(check->extent_count, 2U);
  EXPECT_EQ(check->broken_count, 1U);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(CacheStore, VerifyAndRemoveSayWhatCannotBeDeleted) {
  put("a", content(3000, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  for (std::uint64_t at = 0; at < 3000; at += 1000) expect_read(*store, "a", at, 1000);
  cache->flush();
  const auto all = files();
  ASSERT_EQ(all.size(), 3U);
  std::filesystem::remove(all[0]);
  std::filesystem::create_directory(all[0]);
  std::filesystem::resize_file(all[1], 10);
  auto check = cache->verify(nullptr);
  ASSERT_FALSE(check) << "a directory cannot be deleted as a file is";
  EXPECT_NE(check.error().message().find("of 3 extents 2 are broken"), std::string::npos)
      << check.error().message();
  EXPECT_EQ(files(), std::vector<std::filesystem::path>{all[2]});
  EXPECT_FALSE(cache->remove(""));
  EXPECT_TRUE(files().empty());
  std::filesystem::remove(all[0]);
  EXPECT_TRUE(cache->remove(""));
}

TEST_F(CacheStore, VerifyDeletesWhatClaimsMoreThanThereIs) {
  put("a", content(1000, 1));
  const auto cache = open_cache();
  const auto store = wrap(cache);
  expect_read(*store, "a", 0, 1000);
  cache->flush();
  const std::filesystem::path good = files().front();
  const auto bucket = good.parent_path();
  const std::string object = good.filename().string().substr(0, 32);
  // Without their headers' word for it, sizes are not believed either.
  for (const std::uint64_t length :
       {std::uint64_t{1} << 60, UINT64_MAX - 1, std::uint64_t{1} << 40}) {
    char name[64];
    std::snprintf(name, sizeof(name), "%s-0-%llx", object.c_str(),
                  static_cast<unsigned long long>(length));
    std::ofstream(bucket / name) << "x";
    if (length == std::uint64_t{1} << 40)
      std::filesystem::resize_file(bucket / name, file_bytes({{}, 0, length}));
  }
  auto check = cache->verify(nullptr);
  ASSERT_TRUE(check) << check.error().message();
  EXPECT_EQ(check->extent_count, 4U);
  EXPECT_EQ(check->broken_count, 3U);
  EXPECT_EQ(check->data_bytes, 1000U);
  EXPECT_EQ(files(), std::vector<std::filesystem::path>{good});
}

// Against the objects themselves: random reads through several handles over a store that holds
// completions back and takes few requests at a time, with a small limit, damage, cancelled requests
// and stopped handles in between.
TEST_F(CacheStore, RandomReadsAreRight) {
  Random random(test_seed());
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    for (int i = 0; i < 3; ++i)
      put("o" + std::to_string(i), content(1 + random.below(600'000), random.next()));
    const std::uint64_t limit = random.below(3) == 0 ? 0 : 50'000 + random.below(2'000'000);
    const FaultOptions faults{.seed = random.next(),
                              .short_accept_share = 0.3,
                              .hold_back_count = static_cast<std::uint32_t>(random.below(5))};
    const auto cache = open_cache(limit);
    std::vector<std::unique_ptr<Store>> stores;
    for (int i = 0; i < 3; ++i) stores.push_back(wrap(cache, &faults));
    struct Asked {
      std::string key;
      std::uint64_t offset = 0, length = 0;
      bool is_cancelled = false;
    };
    std::vector<std::map<std::uint64_t, Asked>> asked(stores.size());
    std::uint64_t next_tag = 1;
    for (int step = 0; step < 150; ++step) {
      const std::size_t which = random.below(stores.size());
      Store& store = *stores[which];
      const std::uint64_t dice = random.below(20);
      if (dice < 12) {
        const std::string key = "o" + std::to_string(random.below(3));
        const std::uint64_t size = objects_[key].first.size();
        const std::uint64_t grid = 1 + size / (1 + random.below(6));
        const std::uint64_t offset = random.below(size) / grid * grid;
        const std::uint64_t length = std::min(size - offset, 1 + random.below(grid));
        Request request = get(key, offset, length);
        request.tag = next_tag++;
        request.fresh_connection = random.below(30) == 0;
        const std::uint64_t tag = request.tag;
        if (store.submit({&request, 1}) == 1) asked[which][tag] = {key, offset, length, false};
      } else if (dice < 17) {
        Completion done;
        if (store.wait({&done, 1}, TimePoint::min()) == 0) continue;
        const auto found = asked[which].find(done.tag);
        ASSERT_NE(found, asked[which].end()) << "nobody asked, or it came twice";
        if (done.status.ok()) {
          expect_bytes(done, found->second.key, found->second.offset, found->second.length);
        } else {
          EXPECT_TRUE(found->second.is_cancelled) << done.status.message();
        }
        asked[which].erase(found);
      } else if (dice == 17 && !asked[which].empty()) {
        asked[which].begin()->second.is_cancelled = true;
        store.cancel(asked[which].begin()->first);
      } else if (dice == 18) {
        const auto all = files();
        if (all.empty()) continue;
        std::error_code ignored;
        const auto& victim = all[random.below(all.size())];
        const auto size = std::filesystem::file_size(victim, ignored);
        if (!ignored) std::filesystem::resize_file(victim, random.below(size + 1), ignored);
      } else if (dice == 19 && random.below(4) == 0) {
        stores[which] = wrap(cache, &faults);  // The old one dies with what it has under way.
        asked[which].clear();
      }
    }
    for (std::size_t i = 0; i < stores.size(); ++i) {
      while (!asked[i].empty()) {
        Completion done;
        if (stores[i]->wait({&done, 1}, TimePoint::max()) == 0) continue;
        const auto found = asked[i].find(done.tag);
        ASSERT_NE(found, asked[i].end());
        if (done.status.ok())
          expect_bytes(done, found->second.key, found->second.offset, found->second.length);
        asked[i].erase(found);
      }
    }
    cache->flush();
    if (limit > 0) {
      std::uint64_t held = 0;
      for (const auto& path : files()) held += std::filesystem::file_size(path);
      EXPECT_LE(held, limit);
    }
    stores.clear();
    ASSERT_EQ(pool_->used_bytes(), 0U) << "slabs were lost";
    static_cast<void>(cache->remove(""));
  }
}

}  // namespace
}  // namespace headrace::tier
