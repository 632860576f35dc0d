#include "sim/listing.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/random.h"
#include "base/temporary_directory.h"

namespace headrace::sim {
namespace {

class ListingTest : public ::testing::Test {
 protected:
  ListingTest() { std::filesystem::create_directory(dir_.path() + "/b"); }

  void put(const std::string& key) {
    TemporaryFile file;
    FileInfo info;
    ASSERT_EQ(storage_.create_temporary("b", file), S3Code::kNone);
    ASSERT_EQ(storage_.commit(std::move(file), "b", key, {}, {}, info), S3Code::kNone);
    keys_.insert(key);
  }

  Listing list(const ListQuery& query) { return list_objects(storage_, folders_, "b", query); }

  /// All pages; keys and common prefixes in one sorted set, prefixes marked by a trailing '|'.
  std::vector<std::string> list_all(ListQuery query) {
    std::vector<std::string> all;
    for (int page_count = 0; page_count < 10'000; ++page_count) {
      const Listing page = list(query);
      EXPECT_LE(page.objects.size() + page.common_prefixes.size(), query.max_count);
      for (const auto& object : page.objects) all.push_back(object.key);
      for (const auto& prefix : page.common_prefixes) all.push_back(prefix + "|");
      if (!page.is_truncated) break;
      query.after = page.last;
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  /// What S3 says a listing is, computed from the set of keys.
  std::vector<std::string> model(const ListQuery& query) const {
    std::set<std::string> all;
    for (const std::string& key : keys_) {
      if (!key.starts_with(query.prefix) || key <= query.after) continue;
      const std::size_t at = query.delimiter.empty()
                                 ? std::string::npos
                                 : key.find(query.delimiter, query.prefix.size());
      if (at == std::string::npos) {
        all.insert(key);
      } else if (key.substr(0, at + query.delimiter.size()) > query.after) {
        all.insert(key.substr(0, at + query.delimiter.size()) + "|");
      }
    }
    return {all.begin(), all.end()};
  }

  TemporaryDirectory dir_;
  Storage storage_{dir_.path()};
  FolderCache folders_;
  std::set<std::string> keys_;
};

TEST_F(ListingTest, KeysComeInByteOrderAcrossFoldersAndEscapedKeys) {
  for (const char* key : {"a", "a/b", "a-b", "a.b/c", "a/b/c", "a0", "b//c", "z/", "..", ".x"}) {
    put(key);
  }
  std::vector<std::string> got;
  for (const auto& object : list({}).objects) got.push_back(object.key);
  EXPECT_EQ(got, std::vector<std::string>(keys_.begin(), keys_.end()));
}

TEST_F(ListingTest, HiddenFilesAndEmptyFoldersAreNotListed) {
  put("shown/x");
  std::filesystem::create_directories(dir_.path() + "/b/empty/deeper");
  std::ofstream(dir_.path() + "/b/.hidden") << "x";
  std::ofstream(dir_.path() + "/b/shown/.hidden") << "x";
  EXPECT_EQ(list_all({}), std::vector<std::string>{"shown/x"});
  ListQuery query;
  query.delimiter = "/";
  EXPECT_EQ(list_all(query), std::vector<std::string>{"shown/|"});
}

TEST_F(ListingTest, ZeroKeysIsAnEmptyFinishedPage) {
  put("a");
  ListQuery query;
  query.max_count = 0;
  const Listing page = list(query);
  EXPECT_TRUE(page.objects.empty());
  EXPECT_FALSE(page.is_truncated);
}

TEST_F(ListingTest, LastPageIsNotTruncated) {
  put("a");
  put("b");
  ListQuery query;
  query.max_count = 2;
  EXPECT_FALSE(list(query).is_truncated);
  query.max_count = 1;
  EXPECT_TRUE(list(query).is_truncated);
}

TEST_F(ListingTest, AgreesWithTheModelForRandomKeysAndQueries) {
  constexpr std::uint64_t kSeed = 20261121;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  const std::string alphabet = "ab/-.";
  const auto text = [&](std::uint64_t max_length) {
    std::string out;
    for (std::uint64_t n = random.below(max_length + 1); n > 0; --n) {
      out += alphabet[static_cast<std::size_t>(random.below(alphabet.size()))];
    }
    return out;
  };
  for (int i = 0; i < 120; ++i) {
    if (const std::string key = text(6); !key.empty()) put(key);
  }
  for (int i = 0; i < 150; ++i) {
    ListQuery query;
    query.prefix = text(3);
    query.delimiter = random.below(3) == 0 ? "" : random.below(4) == 0 ? "b" : "/";
    query.after = random.below(2) == 0 ? "" : text(4);
    query.max_count = static_cast<std::uint32_t>(1 + random.below(12));
    EXPECT_EQ(list_all(query), model(query))
        << "prefix " << query.prefix << " delimiter " << query.delimiter << " after " << query.after
        << " max " << query.max_count;
  }
}

TEST_F(ListingTest, ChangesToALargeFolderShowAtOnce) {
  for (int i = 0; i < 300; ++i) std::ofstream(dir_.path() + "/b/f" + std::to_string(i)) << "x";
  EXPECT_EQ(list({}).objects.size(), 300u);
  std::ofstream(dir_.path() + "/b/g") << "x";
  EXPECT_EQ(list({}).objects.size(), 301u);
  std::filesystem::remove(dir_.path() + "/b/g");
  EXPECT_EQ(list({}).objects.size(), 300u);
}

TEST_F(ListingTest, LargeSettledFoldersAreReadOnce) {
  const std::string path = dir_.path() + "/b";
  for (int i = 0; i < 300; ++i) std::ofstream(path + "/f" + std::to_string(i)) << "x";
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const auto first = folders_.read(path);
  EXPECT_EQ(folders_.read(path), first);
  std::ofstream(path + "/g") << "x";
  EXPECT_EQ(folders_.read(path)->size(), first->size() + 1);
}

}  // namespace
}  // namespace headrace::sim
