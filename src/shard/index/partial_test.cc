#include "shard/index/partial.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_directory.h"

namespace headrace::detail {
namespace {

std::string only_file(const std::string& dir) {
  for (const auto& entry : std::filesystem::directory_iterator(dir)) return entry.path();
  return {};
}

ObjectInfo object(std::string key, std::string etag, std::uint64_t size_bytes = 7) {
  ObjectInfo info;
  info.key = std::move(key);
  info.etag = std::move(etag);
  info.size_bytes = size_bytes;
  return info;
}

TEST(PartialIndex, TellsVersionsByETagAndSize) {
  const TemporaryDirectory dir;
  PartialIndex partial(dir.path(), "u", "k");
  partial.store(object("a", "1", 7), "x");
  EXPECT_TRUE(partial.load(object("a", "1", 7)));
  EXPECT_FALSE(partial.load(object("a", "1", 8)));
  partial.store(object("b", ""), "y");
  EXPECT_FALSE(partial.load(object("b", "")));
}

TEST(PartialIndex, KeepsWhatAKilledBuildHadFound) {
  const TemporaryDirectory dir;
  {
    PartialIndex partial(dir.path(), "s3://b/x", "tar 1");
    EXPECT_FALSE(partial.load(object("a", "1")));
    partial.store(object("a", "1"), "found in a");
    partial.store(object("b", "1"), "");
    EXPECT_EQ(partial.load(object("a", "1")), "found in a");
  }
  PartialIndex partial(dir.path(), "s3://b/x", "tar 1");
  EXPECT_EQ(partial.load(object("a", "1")), "found in a");
  EXPECT_EQ(partial.load(object("b", "1")), "");
  EXPECT_FALSE(partial.load(object("a", "2")));
  EXPECT_FALSE(partial.load(object("a1", "")));
  partial.store(object("c", "1"), "more");
  EXPECT_EQ(partial.load(object("c", "1")), "more");
}

TEST(PartialIndex, PassesOverTornAndDamagedRecords) {
  const TemporaryDirectory dir;
  {
    PartialIndex partial(dir.path(), "u", "k");
    partial.store(object("a", "1"), "aaaa");
    partial.store(object("b", "1"), "bbbb");
  }
  const std::string path = only_file(dir.path());
  const auto size = std::filesystem::file_size(path);
  for (auto cut = size - 1; cut + 28 >= size; --cut) {
    std::filesystem::resize_file(path, cut);
    PartialIndex partial(dir.path(), "u", "k");
    EXPECT_EQ(partial.load(object("a", "1")), "aaaa");
    EXPECT_FALSE(partial.load(object("b", "1")));
  }
  {
    PartialIndex partial(dir.path(), "u", "k");
    partial.store(object("b", "1"), "again");
  }
  {
    FILE* file = std::fopen(path.c_str(), "r+");
    std::fseek(file, 24, SEEK_SET);  // The first record's content.
    std::fputc('X', file);
    std::fclose(file);
  }
  const PartialIndex partial(dir.path(), "u", "k");
  EXPECT_FALSE(partial.load(object("a", "1")));
  EXPECT_EQ(partial.load(object("b", "1")), "again");
}

TEST(PartialIndex, IsHeldByOneAndSeparateByUrlAndKind) {
  const TemporaryDirectory dir;
  PartialIndex first(dir.path(), "u", "k");
  first.store(object("a", "1"), "x");
  PartialIndex second(dir.path(), "u", "k");
  second.store(object("b", "1"), "y");
  EXPECT_FALSE(second.load(object("a", "1")));
  EXPECT_FALSE(second.load(object("b", "1")));
  PartialIndex other(dir.path(), "v", "k");
  EXPECT_FALSE(other.load(object("a", "1")));
  PartialIndex nowhere("", "u", "k");
  nowhere.store(object("a", "1"), "x");
  EXPECT_FALSE(nowhere.load(object("a", "1")));
}

TEST(PartialIndex, SeesNoRecordsOfAnotherKindOrAfterRemoval) {
  const TemporaryDirectory dir;
  { PartialIndex(dir.path(), "u", "k").store(object("a", "1"), "x"); }
  EXPECT_FALSE(PartialIndex(dir.path(), "u", "k 2").load(object("a", "1")));
  EXPECT_TRUE(PartialIndex(dir.path(), "u", "k").load(object("a", "1")));
  PartialIndex::remove(dir.path(), "u");
  EXPECT_FALSE(PartialIndex(dir.path(), "u", "k").load(object("a", "1")));
}

}  // namespace
}  // namespace headrace::detail
