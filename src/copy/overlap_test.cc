#include "copy/overlap.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "headrace/copy.h"

namespace headrace {
namespace {

std::unique_ptr<Store> open(const std::string& url) {
  StoreOptions options;
  options.url = url;
  options.anonymous = true;
  auto store = open_store(options, {});
  EXPECT_TRUE(store) << url;
  return *std::move(store);
}

TEST(Overlap, KnowsAStoreUnderAnotherSpelling) {
  const auto from = open("az://account/container");
  const auto same = open("abfss://container@account.dfs.core.windows.net");
  EXPECT_TRUE(copy_detail::Overlap(*from, *same).is_same_root());
  EXPECT_TRUE(is_same_object(*from, "a/x", *same, "a/x"));
  EXPECT_FALSE(is_same_object(*from, "a/x", *same, "a/y"));
}

TEST(Overlap, TranslatesKeysOfAPrefixOfTheSameStore) {
  const auto from = open("gs://bucket");
  const auto below = open("gcs://bucket/a");
  const copy_detail::Overlap overlap(*from, *below);
  EXPECT_TRUE(overlap.is_any());
  EXPECT_FALSE(overlap.is_same_root());
  EXPECT_EQ(overlap.source_key("x"), "a/x");
  EXPECT_EQ(overlap.target_key("a/x"), "x");
  EXPECT_EQ(overlap.target_key("b/x"), std::nullopt);
  EXPECT_FALSE(copy_detail::Overlap(*from, *open("gs://bucket2")).is_any());
}

}  // namespace
}  // namespace headrace
