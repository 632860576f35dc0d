// Values that are kept one by one, against damage, limits, processes that end, and each other.
#include "tier/disk_values.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"
#include "headrace/cache.h"
#include "headrace/value_cache.h"
#include "store/memory/memory_store.h"

namespace headrace::tier {
namespace {

constexpr std::uint32_t kGroup = DiskValues::kGroupValues;

/// Series of one kind: by the key, what all of it has to say is known.
struct Known {
  std::string key = "shard#image";
  std::string version = "e 1";
  std::uint64_t value_bytes = 5000;
  std::uint32_t count = 3;
  ValueSeries series() const {
    return {.key = key, .version = version, .value_bytes = value_bytes, .count = count};
  }
  std::string value(std::uint32_t index) const {
    Random random(index + 1000 * key.size() + value_bytes);
    std::string out(value_bytes, '\0');
    for (char& c : out) c = static_cast<char>(random.next());
    return out;
  }
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

double metric(const Cache& cache, std::string_view name) {
  MetricList all;
  cache.append_metrics(all);
  for (const Metric& one : all)
    if (one.name == name) return one.value;
  ADD_FAILURE() << name;
  return 0;
}

class DiskValuesTest : public ::testing::Test {
 protected:
  std::shared_ptr<Cache> open_cache(CacheOptions options = {}) const {
    options.directory = directory_.path();
    auto cache = Cache::open(options);
    EXPECT_TRUE(cache) << cache.error().message();
    return cache ? *std::move(cache) : nullptr;
  }
  static std::shared_ptr<ValueCache> open_values(const std::shared_ptr<Cache>& cache,
                                                 const std::string& url = "memory://values") {
    StoreOptions options;
    options.url = url;
    auto values = open_value_cache(cache, **open_memory_store(options));
    EXPECT_TRUE(values) << values.error().message();
    return values ? *std::move(values) : nullptr;
  }
  static void keep(ValueCache& values, const Known& known, std::uint32_t index) {
    values.keep(known.series(), index, bytes_of(known.value(index)));
  }
  static void keep(ValueCache& values, const Known& known, std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = begin; i < end; ++i) keep(values, known, i);
  }
  /// Which values are found; they must be right.
  static std::vector<std::uint32_t> found(ValueCache& values, const Known& known) {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < known.count; ++i) {
      std::string read(known.value_bytes, '\0');
      if (!values.read(known.series(), i, std::as_writable_bytes(std::span(read)))) continue;
      EXPECT_EQ(read, known.value(i)) << i;
      out.push_back(i);
    }
    return out;
  }
  static std::vector<std::uint32_t> up_to(std::uint32_t end) {
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < end; ++i) out.push_back(i);
    return out;
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> out;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(directory_.path() + "/v1")) {
      const bool is_extent = entry.path().parent_path().filename().string().size() == 3;
      if (entry.is_regular_file() && is_extent) out.push_back(entry.path());
    }
    return out;
  }
  void flip(const std::filesystem::path& path, std::uint64_t at) const {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }

  TemporaryDirectory directory_;
};

TEST_F(DiskValuesTest, AreFoundOnceAllOfTheirFileWereKept) {
  const auto cache = open_cache();
  const auto values = open_values(cache);
  const Known known{.count = kGroup + 2};
  keep(*values, known, 1, kGroup);
  cache->flush();
  EXPECT_TRUE(found(*values, known).empty());
  keep(*values, known, 0);
  keep(*values, known, 0);  // Once more is once.
  cache->flush();
  EXPECT_EQ(found(*values, known), up_to(kGroup));
  keep(*values, known, kGroup + 1);
  keep(*values, known, kGroup);
  cache->flush();
  EXPECT_EQ(found(*values, known), up_to(kGroup + 2));
  EXPECT_EQ(files().size(), 2U);
  // Another process finds them, too.
  auto usage = cache->usage();
  EXPECT_EQ(usage->data_bytes, known.series().stride_bytes() * known.count);
  EXPECT_EQ(cache->used_bytes(), usage->file_bytes);
}

TEST_F(DiskValuesTest, OfAnIncompleteFileWhatThereIsIsFoundOnceSettled) {
  const auto cache = open_cache();
  const auto values = open_values(cache);
  const Known known{.count = 40};
  keep(*values, known, 3, 9);
  keep(*values, known, 30);
  values->settle();  // With writes under way.
  cache->flush();
  EXPECT_EQ(found(*values, known), (std::vector<std::uint32_t>{3, 4, 5, 6, 7, 8, 30}));
  EXPECT_EQ(files().size(), 2U);
  // The rest comes later, and stands beside them.
  keep(*values, known, 0, 3);
  keep(*values, known, 9, 30);
  keep(*values, known, 31, 40);
  cache->flush();
  values->settle();  // Nothing is under way.
  cache->flush();
  EXPECT_EQ(found(*values, known), up_to(40));
  EXPECT_EQ(cache->used_bytes(), cache->usage()->file_bytes) << "room was not given back";
}

TEST_F(DiskValuesTest, LargeValuesOfAnIncompleteFileAreShownAFewAtATime) {
  const auto cache = open_cache();
  const auto values = open_values(cache);
  const Known known{.value_bytes = 1'500'000, .count = 9};
  keep(*values, known, 0, 8);
  values->settle();
  cache->flush();
  EXPECT_EQ(found(*values, known), up_to(8));
  EXPECT_EQ(files().size(), 4U);
}

TEST_F(DiskValuesTest, OfManyPagesAreReadAlone) {
  const auto cache = open_cache();
  const auto values = open_values(cache);
  for (const std::uint64_t bytes : {70'000U, 150'528U, 300'000U}) {
    const Known known{.key = std::to_string(bytes) + "#image", .value_bytes = bytes, .count = 3};
    keep(*values, known, 0, 3);
    cache->flush();
    EXPECT_EQ(found(*values, known), up_to(3)) << bytes;
  }
  EXPECT_EQ(metric(*cache, "cache.corrupt"), 0);
}

TEST_F(DiskValuesTest, OfAnotherVersionNameOrPlaceAreNotFound) {
  const auto cache = open_cache();
  const auto values = open_values(cache);
  const Known known;
  keep(*values, known, 0, 3);
  cache->flush();
  ASSERT_EQ(found(*values, known).size(), 3U);
  EXPECT_TRUE(found(*values, {.version = "e 2"}).empty());
  EXPECT_TRUE(found(*values, {.key = "shard#mask"}).empty());
  EXPECT_TRUE(found(*open_values(cache, "memory://others"), known).empty());
}

TEST_F(DiskValuesTest, ThoseOfTwoReadersStandBesideEachOther) {
  const auto cache = open_cache();
  const auto one = open_values(cache), other = open_values(cache);
  const Known known{.count = 100};
  keep(*one, known, 0, 60);
  keep(*other, known, 50, 100);
  one->settle();
  other->settle();
  cache->flush();
  EXPECT_EQ(found(*one, known), up_to(100));
}

TEST_F(DiskValuesTest, AnyFlippedBitIsFoundOut) {
  for (const bool is_settled : {false, true}) {
    const auto cache = open_cache();
    const auto values = open_values(cache);
    const Known known{.count = 3};
    keep(*values, known, 0, is_settled ? 2 : 3);
    values->settle();
    cache->flush();
    const auto kept = found(*values, known);
    ASSERT_EQ(kept.size(), is_settled ? 2U : 3U);
    ASSERT_EQ(files().size(), 1U);
    flip(files()[0], 4096 + known.series().stride_bytes() + 17);  // In value 1.
    const double corrupt = metric(*cache, "cache.corrupt");
    std::string read(known.value_bytes, '\0');
    const auto out = std::as_writable_bytes(std::span(read));
    EXPECT_FALSE(values->read(known.series(), 1, out));
    EXPECT_EQ(metric(*cache, "cache.corrupt"), corrupt + 1);
    EXPECT_TRUE(files().empty());
    // And kept anew.
    keep(*values, known, 0, 3);
    cache->flush();
    EXPECT_EQ(found(*values, known), up_to(3));
    static_cast<void>(cache->remove(""));
  }
}

TEST_F(DiskValuesTest, AreProvedByVerifyAndGoWithTheirObject) {
  const auto cache = open_cache();
  const auto values = open_values(cache);
  keep(*values, {}, 0, 3);
  keep(*values, {.key = "other#image"}, 0, 3);
  cache->flush();
  EXPECT_EQ(cache->verify({})->broken_count, 0U);
  std::map<std::string, std::string> seen;
  ASSERT_TRUE(cache->list([&](const CachedExtent& e) { seen[e.url] = e.etag; }).ok());
  EXPECT_EQ(seen, (std::map<std::string, std::string>{{"memory://values/shard#image", "e 1"},
                                                      {"memory://values/other#image", "e 1"}}));
  flip(files()[0], 4096 + 9000);
  EXPECT_EQ(cache->verify({})->broken_count, 1U);
  EXPECT_EQ(files().size(), 1U);
  EXPECT_GT(*cache->remove("memory://values/"), 0U);
  EXPECT_TRUE(files().empty());
}

TEST_F(DiskValuesTest, NeverTakeMoreThanTheLimit) {
  const auto cache = open_cache({.directory = {}, .limit_bytes = 200'000});
  const auto values = open_values(cache);
  const Known fits{.key = "a#i", .count = 20};
  const Known too_large{.key = "b#i", .count = 100};
  keep(*values, fits, 0, 20);
  cache->flush();
  keep(*values, too_large, 0, 100);
  values->settle();
  cache->flush();
  EXPECT_EQ(found(*values, fits), up_to(20));
  EXPECT_TRUE(found(*values, too_large).empty());
  EXPECT_GT(metric(*cache, "cache.skipped_bytes"), 0);
  EXPECT_LE(cache->usage()->file_bytes, 200'000U);
  EXPECT_EQ(cache->used_bytes(), cache->usage()->file_bytes) << "room was not given back";
}

TEST_F(DiskValuesTest, NoMoreFilesAreOpenThanMay) {
  const auto cache = open_cache();
  const auto values = open_values(cache);
  std::vector<Known> all;
  for (std::size_t i = 0; i < DiskValues::kMostGroups + 8; ++i)
    all.push_back({.key = std::to_string(i), .value_bytes = 100, .count = 2});
  for (const Known& known : all) keep(*values, known, 0);
  for (const Known& known : all) keep(*values, known, 1);
  cache->flush();
  EXPECT_EQ(files().size(), DiskValues::kMostGroups);
  // Those that are complete make place for others.
  keep(*values, all.back(), 0, 2);
  cache->flush();
  EXPECT_EQ(found(*values, all.back()), up_to(2));
}

TEST_F(DiskValuesTest, OfAReaderThatEndsBeforeTheyAreCompleteNothingStays) {
  const auto cache = open_cache();
  const Known known{.count = 50};
  {
    const auto values = open_values(cache);
    keep(*values, known, 0, 20);
    cache->flush();
    EXPECT_GT(cache->used_bytes(), 0U);
  }
  EXPECT_EQ(cache->used_bytes(), 0U);
  EXPECT_TRUE(files().empty());
}

TEST_F(DiskValuesTest, OfAKilledProcessNothingStays) {
  const Known known{.count = 50};
  const pid_t child = ::fork();
  if (child == 0) {
    const auto cache = open_cache();
    const auto values = open_values(cache);
    keep(*values, known, 0, 20);
    cache->flush();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto cache = open_cache();
  EXPECT_EQ(cache->used_bytes(), 0U);
  EXPECT_TRUE(files().empty());
  const auto values = open_values(cache);
  keep(*values, known, 0, 50);
  cache->flush();
  EXPECT_EQ(found(*values, known), up_to(50));
}

TEST_F(DiskValuesTest, AreEncryptedUnderTheKey) {
  const auto key = std::make_shared<const SealKey>(SealKey::Bytes{std::byte{7}});
  const auto cache = open_cache({.directory = {}, .key = key});
  const auto values = open_values(cache);
  const Known known{.count = 20}, partly{.key = "shard#mask", .count = 20};
  for (std::uint32_t i = 20; i-- > 0;) keep(*values, known, i);
  keep(*values, partly, 5, 11);
  values->settle();
  cache->flush();
  EXPECT_EQ(found(*values, known), up_to(20));
  EXPECT_EQ(found(*values, partly).size(), 6U);
  for (const auto& path : files()) {
    std::ifstream file(path, std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(file)), {});
    for (const Known& each : {known, partly})
      EXPECT_EQ(all.find(each.value(7).substr(0, 64)), std::string::npos);
  }
  EXPECT_EQ(cache->verify({})->broken_count, 0U);
  // Whoever has no key can look at the directory, and neither read nor add.
  const auto keyless = open_cache({.directory = {}, .is_for_reads = false});
  StoreOptions options;
  options.url = "memory://values";
  const auto refused = open_value_cache(keyless, **open_memory_store(options));
  EXPECT_EQ(refused.error().code(), Code::kDenied);
}

TEST_F(DiskValuesTest, OfSeveralStoresAsOneEachKeepsItsOwn) {
  // With a limit: else others on the disk change the capacity meanwhile.
  const auto cache = open_cache({.directory = {}, .limit_bytes = std::uint64_t{64} << 20});
  const auto routed = route_value_caches({nullptr, open_values(cache)});
  EXPECT_EQ(routed->capacity_bytes(), cache->capacity_bytes());
  const Known plain{.key = "0/shard#image"}, cached{.key = "1/shard#image"};
  for (const Known& known : {plain, cached}) keep(*routed, known, 0, 3);
  cache->flush();
  EXPECT_TRUE(found(*routed, plain).empty());
  EXPECT_EQ(found(*routed, cached), up_to(3));
  // As the store itself has them.
  std::string read(cached.value_bytes, '\0');
  ValueSeries series = cached.series();
  series.key = "shard#image";
  EXPECT_TRUE(open_values(cache)->read(series, 2, std::as_writable_bytes(std::span(read))));
  EXPECT_EQ(read, cached.value(2));
}

// Random values by several readers, with damage, deleted files and small limits in between: what is
// found is right, and the sum of files is as it should be.
TEST_F(DiskValuesTest, WhatIsFoundIsRight) {
  for (std::uint64_t round = 0; round < test_round_count(); ++round) {
    SCOPED_TRACE(seed_and_round(round));
    Random random(test_seed() + 70'000 + round);
    const std::uint64_t limit = random.below(3) == 0 ? 60'000 + random.below(1'000'000) : 0;
    const auto cache = open_cache({.directory = {}, .limit_bytes = limit});
    std::vector<Known> all;
    for (int i = 0; i < 4; ++i)
      all.push_back({.key = std::to_string(i),
                     .value_bytes = 1 + random.below(9'000),
                     .count = static_cast<std::uint32_t>(1 + random.below(200))});
    std::vector<std::shared_ptr<ValueCache>> readers;
    for (int i = 0; i < 2; ++i) readers.push_back(open_values(cache));
    for (int step = 0; step < 60; ++step) {
      const std::size_t which = random.below(readers.size());
      const Known& known = all[random.below(all.size())];
      const std::uint64_t dice = random.below(30);
      if (dice == 0) {
        readers[which]->settle();
      } else if (dice == 1) {
        readers[which] = open_values(cache);
      } else if (dice == 2) {
        const auto kept = files();
        if (kept.empty()) continue;
        const auto& path = kept[random.below(kept.size())];
        std::error_code error;
        const auto size = std::filesystem::file_size(path, error);
        if (!error) flip(path, random.below(size));
      } else if (dice < 12) {
        const auto begin = static_cast<std::uint32_t>(random.below(known.count));
        const auto more = static_cast<std::uint32_t>(1 + random.below(40));
        keep(*readers[which], known, begin, std::min(known.count, begin + more));
      } else {
        std::string read(known.value_bytes, '\0');
        const auto index = static_cast<std::uint32_t>(random.below(known.count));
        if (readers[which]->read(known.series(), index, std::as_writable_bytes(std::span(read)))) {
          ASSERT_EQ(read, known.value(index));
        }
      }
    }
    for (const auto& reader : readers) reader->settle();
    cache->flush();
    for (const Known& known : all) found(*readers[0], known);
    const std::uint64_t held = cache->usage()->file_bytes;
    EXPECT_EQ(cache->used_bytes(), held);
    if (limit > 0) {
      EXPECT_LE(held, limit);
    }
    readers.clear();
    static_cast<void>(cache->remove(""));
  }
}

}  // namespace
}  // namespace headrace::tier
