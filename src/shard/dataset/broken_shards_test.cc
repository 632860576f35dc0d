// Opening where some shards are broken: what is said, what is left out, what is made again.
#include "shard/dataset/broken_shards.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "io/testing/fake_store.h"
#include "shard/testing/dataset_fixture.h"
#include "shard/testing/deflate.h"
#include "shard/testing/make_mds.h"
#include "shard/testing/make_tar.h"
#include "shard/testing/read_dataset.h"

namespace headrace::detail {
namespace {

DatasetOptions leave_out() {
  DatasetOptions options;
  options.on_broken_shard = OnBrokenShard::kLeaveOut;
  return options;
}

class Broken : public testing::DatasetFixture {
 protected:
  static std::string name(std::size_t i, const std::string& ending = ".tar") {
    return (i < 10 ? "0" : "") + std::to_string(i) + ending;
  }
  static std::string tar(std::size_t i) {
    return testing::make_tar({{std::to_string(i) + ".txt", "text " + std::to_string(i)}});
  }
  void make_tars(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) store_.set(name(i), tar(i));
  }
  std::string& bytes(const std::string& key) { return store_.shared().objects.at(key).bytes; }
  std::vector<std::string> keys_left_out(const DatasetOptions& options = leave_out()) {
    auto dataset = open(options);
    EXPECT_TRUE(dataset.has_value()) << dataset.error().message();
    std::vector<std::string> keys;
    if (!dataset) return keys;
    for (const BrokenShard& shard : (*dataset)->broken_shards()) keys.push_back(shard.key);
    return keys;
  }
};

TEST_F(Broken, AreAllNamedWithWhatToDo) {
  make_tars(10);
  for (const std::size_t i : {2U, 7U, 9U}) bytes(name(i)).resize(515);
  EXPECT_EQ(code(), Code::kCorrupt);
  for (const std::size_t i : {2U, 7U, 9U}) expect_message("fake://data/" + name(i));
  for (const char* part : {"3 of 10", "leave_out", "on_bad_sample=\"replace\"", "--quarantine"})
    expect_message(part);
  EXPECT_EQ(message_.find(name(3)), std::string::npos) << message_;
}

TEST_F(Broken, AreNamedOnceInTheOrderOfTheirKeys) {
  BrokenShards broken;
  for (const char* key : {"c", "a", "b", "a"}) {
    broken.add({.key = key, .etag = {}, .message = "cut off"});
  }
  broken.add_whole();
  EXPECT_EQ(broken.size(), 3U);
  const Status status = broken.error(store_);
  EXPECT_EQ(status.message().find("fake://data/a: cut off; fake://data/b: cut off; fake://data/c"),
            0U)
      << status.message();
}

TEST_F(Broken, AreLeftOutWhereThatIsAskedFor) {
  make_tars(10);
  auto whole = open();
  for (const std::size_t i : {2U, 7U}) bytes(name(i)).resize(515);
  auto dataset = open(leave_out());
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->sample_count(), 8U);
  ASSERT_EQ((*dataset)->broken_shards().size(), 2U);
  const BrokenShard& first = (*dataset)->broken_shards()[0];
  EXPECT_EQ(first.key, name(2));
  EXPECT_EQ(first.size_bytes, 515U);
  EXPECT_EQ(first.sample_count, 0U);
  EXPECT_EQ(values(**dataset, 1)[2], "text 3");
  EXPECT_NE((*dataset)->fingerprint(), (*whole)->fingerprint());
  EXPECT_NE((*dataset)->version_fingerprint(), (*whole)->version_fingerprint());
}

TEST_F(Broken, NameWhatTheDatasetLacksInItsIdentity) {
  make_tars(3);
  bytes(name(1)).resize(515);
  const std::string lacking = (*open(leave_out()))->fingerprint();
  store_.shared().objects.erase(name(1));
  EXPECT_NE((*open(leave_out()))->fingerprint(), lacking);
}

TEST_F(Broken, BytesThatCameWrongOnceAreRead) {
  make_tars(5);
  bool is_first = true;
  store_.shared().on_get = [&](std::string_view key, std::span<std::byte> got) {
    if (key == name(3) && std::exchange(is_first, false)) got[0] ^= std::byte{1};
  };
  EXPECT_TRUE(keys_left_out().empty());
  EXPECT_FALSE(is_first);
}

TEST_F(Broken, AreNeverWhatTheStoreDid) {
  make_tars(5);
  const std::string chosen = name(2);
  DatasetOptions options = leave_out();
  options.keys = {name(0), "none.tar"};
  EXPECT_EQ(code(options), Code::kNotFound);
  // One that is there no more when it is read: all are listed anew.
  store_.shared().after_list = [&] { store_.shared().objects.erase(chosen); };
  EXPECT_TRUE(keys_left_out().empty());
}

TEST_F(Broken, AreAnErrorWhereNothingIsWhole) {
  make_tars(3);
  for (std::size_t i = 0; i < 3; ++i) bytes(name(i)).resize(515);
  EXPECT_EQ(code(leave_out()), Code::kCorrupt);
  expect_message("no other was found whole");
}

TEST_F(Broken, OfAnotherFormatAreNotReadToTheEnd) {
  for (std::size_t i = 0; i < 99; ++i) store_.set(name(i), std::string(2000, 'x'));
  EXPECT_EQ(code(leave_out()), Code::kCorrupt);
  expect_message("broken: 64, and no other was found whole");
}

// Few compressed files are inflated at once: one that turns out broken makes room for the next.
TEST_F(Broken, CompressedFilesMakeRoom) {
  for (std::size_t i = 0; i < 40; ++i) {
    const std::string packed = testing::deflate(Compression::kGzip, tar(i));
    const bool is_broken = i % 8 != 0;
    store_.set(name(i, ".tar.gz"), is_broken ? packed.substr(0, packed.size() - 9) : packed);
  }
  EXPECT_EQ(keys_left_out().size(), 35U);
}

TEST_F(Broken, AmongLinesTheFirstThatIsWholeDecides) {
  store_.set("0.jsonl.gz", testing::deflate(Compression::kGzip, "{\"a\": 1}\n").substr(0, 12));
  store_.set("1.jsonl.gz", testing::deflate(Compression::kGzip, "{\"a\": 1}\n"));
  store_.set("2.jsonl.gz", testing::deflate(Compression::kGzip, "{\"a\": 2}\nno json\n"));
  EXPECT_EQ(keys_left_out(), (std::vector<std::string>{"0.jsonl.gz", "2.jsonl.gz"}));
}

class BrokenOfManifest : public Broken {
 protected:
  void SetUp() override { testing::make_mds(store_, {.shard_count = 4}); }
  const std::string shard_ = "shard.00002.mds";
};

TEST_F(BrokenOfManifest, KeepTheirPositions) {
  bytes(shard_).resize(30);
  EXPECT_EQ(code(), Code::kCorrupt);
  expect_message("fake://data/" + shard_);
  auto dataset = open(leave_out());
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->sample_count(), 40U);
  const BrokenShard& broken = (*dataset)->broken_shards()[0];
  EXPECT_EQ(broken.first_sample, 20U);
  EXPECT_EQ(broken.sample_count, 10U);
  EXPECT_EQ(broken.size_bytes, 30U);
}

TEST_F(BrokenOfManifest, MayBeMissing) {
  store_.shared().objects.erase(shard_);
  EXPECT_EQ(code(), Code::kNotFound);
  expect_message("fake://data/" + shard_ + ": is not there, index.json names it");
  auto dataset = open(leave_out());
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  const BrokenShard& broken = (*dataset)->broken_shards()[0];
  EXPECT_EQ(broken.code, Code::kNotFound);
  EXPECT_EQ(broken.first_sample, 20U);
  EXPECT_EQ(broken.sample_count, 10U);
  for (std::size_t i = 0; i < 4; ++i)
    store_.shared().objects.erase("shard.0000" + std::to_string(i) + ".mds");
  EXPECT_EQ(code(leave_out()), Code::kNotFound);
}

TEST_F(BrokenOfManifest, AnIndexWithoutThemServesOnlyWhoAskedAndOnlyWhileTheyAreAsTheyWere) {
  const std::string whole = bytes(shard_);
  for (const bool is_missing : {false, true}) {
    if (is_missing) {
      store_.shared().objects.erase(shard_);
    } else {
      store_.set(shard_, whole.substr(0, 30));
    }
    auto dataset = open(leave_out());
    ASSERT_TRUE(dataset.has_value());
    const auto index = (*dataset)->index_bytes();
    store_.set("index.hri", std::string(reinterpret_cast<const char*>(index.data()), index.size()));
    const std::uint64_t before = store_.shared().get_count;
    EXPECT_EQ(keys_left_out().size(), 1U);
    EXPECT_EQ(store_.shared().get_count, before + 1);  // The index alone.
    EXPECT_EQ(code(), is_missing ? Code::kNotFound : Code::kCorrupt);
    store_.set(shard_, whole);
    EXPECT_TRUE(keys_left_out().empty());
    EXPECT_EQ(code(), Code::kOk);
  }
}

}  // namespace
}  // namespace headrace::detail
