#include "sim/storage.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_directory.h"
#include "sim/file_cache.h"
#include "sim/key_path.h"

namespace headrace::sim {
namespace {

class StorageTest : public ::testing::Test {
 protected:
  StorageTest() { std::filesystem::create_directory(dir_.path() + "/b"); }

  S3Code put(const std::string& key, const std::string& text,
             const WriteCondition& condition = {}) {
    TemporaryFile file;
    if (const S3Code code = storage_.create_temporary("b", file); code != S3Code::kNone)
      return code;
    EXPECT_EQ(::write(file.fd(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    return storage_.commit(std::move(file), "b", key, condition, {}, info_);
  }
  std::string get(const std::string& key) {
    FileInfo info;
    const auto path = storage_.find("b", key, info);
    if (!path) return "<absent>";
    std::ifstream in(*path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  bool is_file(const std::string& path) {
    return std::filesystem::is_regular_file(dir_.path() + "/b/" + path);
  }

  TemporaryDirectory dir_;
  Storage storage_{dir_.path()};
  FileInfo info_;
};

TEST_F(StorageTest, PathKeysAreFilesOfThatPath) {
  EXPECT_EQ(put("x/y/z.bin", "text"), S3Code::kNone);
  EXPECT_TRUE(is_file("x/y/z.bin"));
  EXPECT_EQ(get("x/y/z.bin"), "text");
}

TEST_F(StorageTest, KeyAndItsExtensionCoexistInEitherOrder) {
  EXPECT_EQ(put("a", "1"), S3Code::kNone);
  EXPECT_EQ(put("a/b", "2"), S3Code::kNone);
  EXPECT_EQ(put("c/d", "3"), S3Code::kNone);
  EXPECT_EQ(put("c", "4"), S3Code::kNone);
  EXPECT_EQ(get("a"), "1");
  EXPECT_EQ(get("a/b"), "2");
  EXPECT_EQ(get("c/d"), "3");
  EXPECT_EQ(get("c"), "4");
  EXPECT_EQ(storage_.remove("b", "a"), S3Code::kNone);
  EXPECT_EQ(get("a"), "<absent>");
  EXPECT_EQ(put("a/b", "5"), S3Code::kNone);  // now a path
  EXPECT_TRUE(is_file("a/b"));
  EXPECT_EQ(get("a/b"), "5");
  EXPECT_EQ(storage_.remove("b", "a/b"), S3Code::kNone);
  EXPECT_EQ(get("a/b"), "<absent>");
}

TEST_F(StorageTest, KeysNeverLeaveTheBucket) {
  EXPECT_EQ(put("../escape", "1"), S3Code::kNone);
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/escape"));
  EXPECT_EQ(get("../escape"), "1");
  FileInfo info;
  EXPECT_FALSE(storage_.find("..", "x", info));
}

TEST_F(StorageTest, RemoveTakesEmptyFoldersAlong) {
  EXPECT_EQ(put("x/y/z", "1"), S3Code::kNone);
  EXPECT_EQ(put("x/w", "1"), S3Code::kNone);
  EXPECT_EQ(storage_.remove("b", "x/y/z"), S3Code::kNone);
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/b/x/y"));
  EXPECT_EQ(get("x/w"), "1");
  EXPECT_EQ(storage_.remove("b", "x/w"), S3Code::kNone);
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/b"));
  EXPECT_EQ(storage_.remove("b", "never"), S3Code::kNone);
}

TEST_F(StorageTest, ConditionsAreCheckedAtCommit) {
  WriteCondition absent;
  absent.if_none_match = "*";
  EXPECT_EQ(put("k", "1", absent), S3Code::kNone);
  EXPECT_EQ(put("k", "2", absent), S3Code::kPreconditionFailed);
  const std::string etag = etag_of(info_);
  WriteCondition match;
  match.if_match = etag;
  EXPECT_EQ(put("k", "3", match), S3Code::kNone);
  EXPECT_EQ(put("k", "4", match), S3Code::kPreconditionFailed);
  EXPECT_EQ(put("other", "5", match), S3Code::kNoSuchKey);
  EXPECT_EQ(get("k"), "3");
}

TEST_F(StorageTest, FailedCommitLeavesNoTemporaryFile) {
  WriteCondition absent;
  absent.if_none_match = "*";
  EXPECT_EQ(put("k", "1", absent), S3Code::kNone);
  EXPECT_EQ(put("k", "2", absent), S3Code::kPreconditionFailed);
  EXPECT_TRUE(std::filesystem::is_empty(storage_.hidden_path("b", "tmp")));
}

TEST_F(StorageTest, EtagsTellVersionsOfEqualSizeApart) {
  std::string last;
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(put("k", "same"), S3Code::kNone);
    FileInfo found;
    ASSERT_TRUE(storage_.find("b", "k", found));
    EXPECT_EQ(etag_of(found), etag_of(info_));  // PUT and HEAD agree
    EXPECT_NE(etag_of(found), last);
    last = etag_of(found);
  }
}

TEST_F(StorageTest, TheTagOfAVersionHoldsUntilSomeoneElseWritesTheFile) {
  TemporaryFile file;
  ASSERT_EQ(storage_.create_temporary("b", file), S3Code::kNone);
  VersionTag tag{Md5Digest{0xab, 1}, 3};
  ASSERT_EQ(storage_.commit(std::move(file), "b", "k", {}, tag, info_), S3Code::kNone);
  FileInfo found;
  ASSERT_TRUE(storage_.find("b", "k", found));
  EXPECT_EQ(found, info_);
  if (!info_.is_sealed) GTEST_SKIP() << "no user attributes on this file system";
  EXPECT_EQ(etag_of(found), "\"ab010000000000000000000000000000-3\"");
  EXPECT_TRUE(storage_.touch("b", "k"));
  ASSERT_TRUE(storage_.find("b", "k", found));
  EXPECT_TRUE(found.is_sealed);  // the same bytes, and so the same sums
  EXPECT_TRUE(etag_of(found).ends_with("-1\""));
  std::ofstream(dir_.path() + "/b/k", std::ios::app) << "more";
  ASSERT_TRUE(storage_.find("b", "k", found));
  EXPECT_FALSE(found.is_sealed);
  EXPECT_TRUE(etag_of(found).ends_with("-1\""));
}

TEST_F(StorageTest, RemovalsKeepTheirConditions) {
  const auto condition = [this](std::string_view etag, std::int64_t seconds, std::uint64_t bytes) {
    WriteCondition out;
    out.if_match = etag;
    out.if_modified_s = info_.modified_ns / 1'000'000'000 + seconds;
    out.if_size_bytes = bytes;
    return storage_.remove("b", "k", out);
  };
  ASSERT_EQ(put("k", "text"), S3Code::kNone);
  const std::string etag = etag_of(info_);
  EXPECT_EQ(condition("\"other\"", 0, 4), S3Code::kPreconditionFailed);
  EXPECT_EQ(condition(etag, 1, 4), S3Code::kPreconditionFailed);
  EXPECT_EQ(condition(etag, 0, 5), S3Code::kPreconditionFailed);
  EXPECT_EQ(get("k"), "text");
  EXPECT_EQ(condition(etag, 0, 4), S3Code::kNone);
  EXPECT_EQ(get("k"), "<absent>");
  EXPECT_EQ(condition("\"other\"", 0, 4), S3Code::kNone);  // nothing there, nothing to keep
}

TEST_F(StorageTest, EtagListsMatch) {
  EXPECT_TRUE(etag_matches("*", "\"a\""));
  EXPECT_TRUE(etag_matches("\"a\"", "\"a\""));
  EXPECT_TRUE(etag_matches("a", "\"a\""));
  EXPECT_TRUE(etag_matches("\"b\", W/\"a\"", "\"a\""));
  EXPECT_FALSE(etag_matches("\"b\",\"c\"", "\"a\""));
  EXPECT_FALSE(etag_matches("", "\"a\""));
}

TEST_F(StorageTest, BucketLifeCycle) {
  EXPECT_EQ(storage_.create_bucket("new"), S3Code::kNone);
  EXPECT_EQ(storage_.create_bucket("new"), S3Code::kBucketAlreadyOwnedByYou);
  EXPECT_EQ(storage_.create_bucket(".."), S3Code::kInvalidBucketName);
  EXPECT_EQ(put(".", "kept escaped"), S3Code::kNone);
  EXPECT_EQ(storage_.delete_bucket("b"), S3Code::kBucketNotEmpty);
  EXPECT_EQ(storage_.remove("b", "."), S3Code::kNone);
  EXPECT_EQ(storage_.delete_bucket("b"), S3Code::kNone);
  EXPECT_EQ(storage_.delete_bucket("b"), S3Code::kNoSuchBucket);
  const auto buckets = storage_.list_buckets();
  ASSERT_EQ(buckets.size(), 1u);
  EXPECT_EQ(buckets[0].name, "new");
}

TEST_F(StorageTest, DeletingABucketSparesTheUsersHiddenFiles) {
  std::filesystem::create_directories(dir_.path() + "/b/folder/deeper");
  std::filesystem::create_directories(dir_.path() + "/b/.headrace-sim/uploads/id");
  for (const char* hidden : {".mine", "folder/.mine"}) {
    std::ofstream(dir_.path() + "/b/" + hidden) << "x";
    EXPECT_EQ(storage_.delete_bucket("b"), S3Code::kBucketNotEmpty);
    EXPECT_TRUE(is_file(hidden));
    std::filesystem::remove(dir_.path() + "/b/" + hidden);
  }
  // Nothing is lost of a bucket that stays.
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/b/folder/deeper"));
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/b/.headrace-sim/uploads/id"));
}

TEST_F(StorageTest, ABucketOfEmptyFoldersIsEmpty) {
  std::filesystem::create_directories(dir_.path() + "/b/folder/deeper");
  std::filesystem::create_directories(dir_.path() + "/b/.headrace-sim/tmp");
  EXPECT_EQ(storage_.delete_bucket("b"), S3Code::kNone);
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/b"));
}

TEST_F(StorageTest, FileCacheFollowsReplacementAndRemoval) {
  FileCache cache(2);
  ASSERT_EQ(put("k", "one"), S3Code::kNone);
  const std::string path = storage_.natural_path("b", "k");
  const auto first = cache.open(path);
  ASSERT_TRUE(first);
  EXPECT_EQ(cache.open(path), first);
  ASSERT_EQ(put("k", "two"), S3Code::kNone);
  const auto second = cache.open(path);
  ASSERT_TRUE(second);
  EXPECT_NE(second->etag, first->etag);
  char text[3];
  EXPECT_EQ(::pread(first->fd.get(), text, 3, 0), 3);  // what was handed out stays readable
  EXPECT_EQ(std::string(text, 3), "one");
  ASSERT_EQ(storage_.remove("b", "k"), S3Code::kNone);
  EXPECT_FALSE(cache.open(path));
}

TEST_F(StorageTest, FileCacheKeepsNoMoreThanItsCapacity) {
  FileCache cache(2);
  for (const char* key : {"k1", "k2", "k3"}) ASSERT_EQ(put(key, "x"), S3Code::kNone);
  const std::weak_ptr<const OpenFile> first = cache.open(storage_.natural_path("b", "k1"));
  EXPECT_FALSE(first.expired());
  cache.open(storage_.natural_path("b", "k2"));
  cache.open(storage_.natural_path("b", "k3"));
  EXPECT_TRUE(first.expired());
}

}  // namespace
}  // namespace headrace::sim
