#include "shard/codec/digest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/testing/fake_store.h"

namespace headrace::detail {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Digest, EqualsEveryHashOfTheReference) {
  const auto root =
      std::filesystem::path(HEADRACE_SOURCE_DIR) / "../shared/reference/mds/every_hash";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no reference cases here";
  const auto index = nlohmann::json::parse(headrace::testing::read_file(root / "index.json"));
  for (const auto& shard : index["shards"]) {
    const auto& zip = shard["zip_data"];
    const std::string bytes =
        headrace::testing::read_file(root / zip["basename"].get<std::string>());
    ASSERT_EQ(zip["hashes"].size(), 17U);
    for (const auto& [name, hex] : zip["hashes"].items()) {
      EXPECT_TRUE(is_known_digest(name));
      EXPECT_EQ(hex_digest(name, as_bytes(bytes)), hex) << name;
      EXPECT_TRUE(check_digest(name + "=" + hex.get<std::string>(), as_bytes(bytes)).ok());
      EXPECT_EQ(check_digest(name + "=" + hex.get<std::string>(), as_bytes(bytes + "x")).code(),
                Code::kCorrupt);
    }
  }
}

TEST(Digest, PassesWhatItCannotCompute) {
  EXPECT_FALSE(is_known_digest("crc32"));
  EXPECT_TRUE(check_digest("crc32=00 whirlpool=11", as_bytes("x")).ok());
  EXPECT_TRUE(check_digest("", as_bytes("x")).ok());
}

TEST(Digest, FindsAKnownOneAmongOthers) {
  EXPECT_EQ(check_digest("odd=1 md5=0 zz=2", as_bytes("x")).code(), Code::kCorrupt);
  EXPECT_TRUE(check_digest("odd=1 md5=9dd4e461268c8034f5c8564e155c67a6", as_bytes("x")).ok());
}

}  // namespace
}  // namespace headrace::detail
