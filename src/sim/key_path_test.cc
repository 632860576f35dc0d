#include "sim/key_path.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace::sim {
namespace {

TEST(KeyPath, OrdinaryKeysArePaths) {
  for (const char* key : {"a", "a/b.bin", "a b/c%d", "x.y/z..", "+=?&#", "\xd0\xba/\xc3\xbc"}) {
    EXPECT_TRUE(is_path_key(key)) << key;
  }
}

TEST(KeyPath, KeysThatNoFileCanHaveAreNot) {
  for (const std::string& key :
       {std::string(), std::string("/a"), std::string("a//b"), std::string("a/"), std::string("."),
        std::string(".."), std::string("a/../b"), std::string(".hidden"), std::string("a/.b"),
        std::string(256, 'x'), std::string("a\0b", 3)}) {
    EXPECT_FALSE(is_path_key(key)) << key;
  }
  EXPECT_TRUE(is_path_key(std::string(255, 'x')));
}

TEST(KeyPath, EscapedPathsRoundTripAndStayApart) {
  std::set<std::string> files;
  std::set<std::string> folders;
  const std::string long_key(1024, '/');
  const std::string long_part(700, 'k');
  for (const std::string& key :
       {std::string("a"), std::string("a/b"), std::string("a/"), std::string(".."),
        std::string("="), std::string("+"), long_key, long_part, long_part.substr(0, 200),
        long_part.substr(0, 201), std::string("\xd0\xba %")}) {
    const std::string path = escaped_key_path(key);
    EXPECT_EQ(key_of_escaped_path(path), key);
    EXPECT_TRUE(files.insert(path).second);
    for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
      folders.insert(path.substr(0, at));
    }
  }
  for (const std::string& folder : folders) EXPECT_EQ(files.count(folder), 0u);
}

TEST(KeyPath, ForeignNamesAreNoKeys) {
  for (const char* path : {"", "=", "a", "a+", "a=/b=", "%zz=", "a+/b"}) {
    EXPECT_EQ(key_of_escaped_path(path), std::nullopt) << path;
  }
}

TEST(KeyPath, BucketNames) {
  for (const char* name : {"b", "my-bucket.2", "Data_1"}) EXPECT_TRUE(is_bucket_name(name)) << name;
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string(".hidden"),
        std::string("a/b"), std::string(64, 'x'), std::string("a b")}) {
    EXPECT_FALSE(is_bucket_name(name)) << name;
  }
}

}  // namespace
}  // namespace headrace::sim
