#include "headrace/verify.h"

#include <gmock/gmock.h>

#include "headrace/dataset.h"
#include "io/testing/fake_store.h"
#include "shard/codec/digest.h"
#include "shard/testing/make_mds.h"
#include "shard/testing/make_tar.h"
#include "store/fault/fault_store.h"

namespace headrace {
namespace {

using testing::FakeStore;

std::shared_ptr<SlabPool> make_pool(std::uint64_t bytes = std::uint64_t{64} << 20) {
  auto pool = SlabPool::create({.limit_bytes = bytes});
  EXPECT_TRUE(pool);
  return *std::move(pool);
}

std::shared_ptr<const Dataset> open(FakeStore& store, SlabPool& pool) {
  auto dataset = Dataset::open(store, pool, {.block_bytes = 65536, .index_cache_dir = {}});
  EXPECT_TRUE(dataset) << dataset.error().message();
  return *std::move(dataset);
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string read_whole(FakeStore& store, SlabPool& pool, const std::string& key) {
  auto bytes = read_object(store, pool, key, 1 << 20);
  EXPECT_TRUE(bytes) << bytes.error().message();
  return *std::move(bytes);
}

// Two shards of two columns; `names` are digests to record in the index.
void load_mds(FakeStore& store, const std::vector<std::string>& names, bool is_damaged = false) {
  nlohmann::json shards = nlohmann::json::array();
  std::uint64_t position = 0;
  for (int s = 0; s < 2; ++s) {
    std::vector<std::string> samples;
    for (int i = 0; i < 3000; ++i, ++position) {
      const std::string text = testing::mds_text(position, 100);
      std::string sample;
      testing::append_u32(sample, text.size());
      sample += text + std::string(8, '\1');
      samples.push_back(sample);
    }
    std::string bytes = testing::mds_shard(samples);
    const std::string name = "shard.0000" + std::to_string(s) + ".mds";
    auto entry = testing::mds_shard_entry(name, bytes.size(), samples.size());
    entry["hashes"] = names;
    for (const std::string& n : names)
      entry["raw_data"]["hashes"][n] = detail::hex_digest(n, as_bytes(bytes));
    if (is_damaged && s == 1) bytes[bytes.size() - 4] ^= 1;
    store.set(name, bytes);
    shards.push_back(entry);
  }
  store.set("index.json", nlohmann::json{{"version", 2}, {"shards", shards}}.dump());
}

TEST(Verify, CountsWhatItChecks) {
  FakeStore store;
  load_mds(store, {});
  auto pool = make_pool();
  auto report = verify_dataset(*open(store, *pool), store, *pool, {.worker_count = 2});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->sample_count, 6000U);
  EXPECT_EQ(report->problem_count, 0U);
  EXPECT_EQ(report->stored_digest_count, 0U);
  EXPECT_EQ(pool->used_bytes(), 0U);
}

TEST(Verify, ReadsHashedObjectsOnceFromEndToEndAndComparesEveryDigest) {
  FakeStore store;
  load_mds(store, {"sha256", "xxh64"});
  auto pool = make_pool();
  std::uint64_t last = 0, all = 0;
  auto report = verify_dataset(*open(store, *pool), store, *pool,
                               {.worker_count = 2, .progress = [&](auto done, auto total) {
                                  last = done;
                                  all = total;
                                }});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->object_count, 2U);
  EXPECT_EQ(report->stored_digest_count, 4U);
  EXPECT_EQ(report->sample_count, 6000U);
  EXPECT_EQ(report->problem_count, 0U);
  EXPECT_EQ(report->read_bytes, all);
  EXPECT_LE(last, all);
}

TEST(Verify, NamesTheObjectWhoseDigestDiffers) {
  FakeStore store;
  load_mds(store, {"sha1"}, true);
  auto pool = make_pool();
  auto report = verify_dataset(*open(store, *pool), store, *pool, {});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->problems.size(), 1U);
  EXPECT_EQ(report->problems[0].key, "shard.00001.mds");
  EXPECT_EQ(report->problems[0].position, -1);
  EXPECT_EQ(report->problems[0].sample_count, 0U);
  EXPECT_EQ(report->problems[0].code, Code::kCorrupt);
  EXPECT_THAT(report->problems[0].message, ::testing::HasSubstr("sha1"));
}

TEST(Verify, NamesTheSampleThatDoesNotFit) {
  FakeStore store;
  load_mds(store, {});
  auto pool = make_pool();
  const auto dataset = open(store, *pool);
  // The length of the text of the fourth sample of the first shard.
  FakeStore damaged;
  load_mds(damaged, {});
  std::string bytes = read_whole(damaged, *pool, "shard.00000.mds");
  std::uint32_t offset = 0;
  std::memcpy(&offset, bytes.data() + 4 + 4 * 3, 4);
  bytes[offset] ^= 0x40;
  damaged.set("shard.00000.mds", bytes);
  auto report = verify_dataset(*open(damaged, *pool), damaged, *pool, {.most_problems = 5});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->problem_count, 1U);
  EXPECT_EQ(report->problems[0].position, 3);
  EXPECT_EQ(report->problems[0].sample_count, 1U);
  EXPECT_EQ(report->sample_count, 5999U);
}

TEST(Verify, BitsThatFlipOnTheWireAreNoProblemOfTheData) {
  for (const bool is_damaged : {false, true}) {
    FakeStore store;
    load_mds(store, {"sha1", "xxh64"}, is_damaged);
    auto pool = make_pool();
    const auto dataset = open(store, *pool);
    std::uint64_t second_reads = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      const auto flipping =
          FaultStore::create(*store.new_handle(), {.seed = seed, .flip_share = 0.05});
      auto report = verify_dataset(*dataset, *flipping, *pool, {.worker_count = 1});
      ASSERT_TRUE(report) << report.error().message();
      ASSERT_EQ(report->sample_count, 6000U);
      ASSERT_EQ(report->stored_digest_count, 4U);
      ASSERT_EQ(report->problem_count, is_damaged ? 1U : 0U);
      for (const VerifyProblem& problem : report->problems)
        EXPECT_EQ(problem.key, "shard.00001.mds");
      second_reads += report->second_read_count;
    }
    EXPECT_GT(second_reads, 0U);
  }
}

TEST(Verify, BytesThatNeverComeTwiceTheSameAreAProblemOfTheStore) {
  FakeStore store;
  load_mds(store, {"sha1"});
  auto pool = make_pool();
  const auto dataset = open(store, *pool);
  const auto flipping = FaultStore::create(*store.new_handle(), {.flip_share = 1});
  auto report = verify_dataset(*dataset, *flipping, *pool, {.worker_count = 1});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_GE(report->problem_count, 2U);
  for (const VerifyProblem& problem : report->problems)
    EXPECT_EQ(problem.code, Code::kUnavailable) << problem.message;
}

TEST(Verify, LooksAtBlocksThatHaveNoBytes) {
  FakeStore store;
  for (const char* key : {"a.bin", "b.bin", "c.bin"}) store.set(key, "");
  auto pool = make_pool();
  auto dataset = Dataset::open(store, *pool, {.format = Format::kRaw, .index_cache_dir = {}});
  ASSERT_TRUE(dataset) << dataset.error().message();
  auto report = verify_dataset(**dataset, store, *pool, {});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->sample_count, 3U);
  EXPECT_EQ(report->problem_count, 0U);
}

TEST(Verify, GoesOnAfterAMissingObject) {
  FakeStore store;
  load_mds(store, {"md5"});
  auto pool = make_pool();
  const auto dataset = open(store, *pool);
  ASSERT_TRUE(store.remove("shard.00000.mds", {}).ok());
  auto report = verify_dataset(*dataset, store, *pool, {});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->problem_count, 1U);
  EXPECT_EQ(report->problems[0].code, Code::kNotFound);
  EXPECT_EQ(report->sample_count, 3000U);
}

TEST(Verify, SaysHowMuchMemoryItNeeds) {
  FakeStore store;
  load_mds(store, {});
  auto pool = make_pool();
  const auto dataset = open(store, *pool);
  auto small = make_pool(65536);
  auto report = verify_dataset(*dataset, store, *small, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), Code::kExhausted);
  EXPECT_THAT(std::string(report.error().message()), ::testing::HasSubstr("at least"));
}

TEST(Verify, EndsWhenStopped) {
  FakeStore store;
  load_mds(store, {});
  auto pool = make_pool();
  std::stop_source stop;
  stop.request_stop();
  auto report = verify_dataset(*open(store, *pool), store, *pool, {},
                               CallOptions{.deadline = TimePoint::max(), .stop = stop.get_token()});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), Code::kCancelled);
}

TEST(DigestObjects, HashesAnyObjects) {
  FakeStore store;
  store.set("b", std::string(5'000'000, 'x'));
  store.set("a", "");
  auto pool = make_pool();
  auto listing = list_all(store, "");
  ASSERT_TRUE(listing);
  auto report = digest_objects(*listing, store, *pool, {.digests = {"sha256", "xxh3_64"}});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->objects.size(), 2U);
  EXPECT_EQ(report->objects[0].key, "a");
  // The published digest of no bytes (FIPS 180-4 examples).
  EXPECT_EQ(report->objects[0].hex[0],
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(report->objects[1].hex[1],
            detail::hex_digest("xxh3_64", as_bytes(std::string(5'000'000, 'x'))));
}

TEST(DigestObjects, ReadsLargeObjectsWithLittleMemory) {
  FakeStore store;
  store.set("a", std::string(5'000'000, 'x'));
  auto pool = make_pool(256 << 10);
  auto listing = list_all(store, "");
  ASSERT_TRUE(listing);
  auto report = digest_objects(*listing, store, *pool, {.digests = {"xxh3_64"}});
  ASSERT_TRUE(report) << report.error().message();
  ASSERT_EQ(report->problem_count, 0U) << report->problems[0].message;
  EXPECT_EQ(report->objects[0].hex[0],
            detail::hex_digest("xxh3_64", as_bytes(std::string(5'000'000, 'x'))));
}

TEST(DigestObjects, RefusesUnknownNames) {
  FakeStore store;
  auto pool = make_pool();
  EXPECT_EQ(digest_objects({}, store, *pool, {.digests = {"crc99"}}).error().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
