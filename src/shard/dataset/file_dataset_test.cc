// Datasets in a real directory, through the file store.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_directory.h"
#include "shard/testing/make_mds.h"
#include "shard/testing/read_dataset.h"
#include "shard/testing/reference.h"
#include "store/file/file_store.h"

namespace headrace {
namespace {

std::unique_ptr<Store> open_directory(const std::string& path) {
  StoreOptions options;
  options.url = path;
  auto store = open_file_store(options);
  EXPECT_TRUE(store.has_value());
  return *std::move(store);
}

TEST(FileDataset, IsReadWhereItLies) {
  const auto reference = testing::reference_path();
  if (!std::filesystem::exists(reference)) GTEST_SKIP() << "no reference cases here";
  const auto pool = testing::make_pool();
  for (const char* name : {"mds/comp_zstd", "mds/all_encodings", "mds/merged_deep"}) {
    const auto store = open_directory((reference / name).string());
    auto dataset = Dataset::open(*store, *pool, {});
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    auto samples = testing::read_all(*store, *pool, **dataset);
    ASSERT_TRUE(samples.has_value()) << samples.error().message();
    EXPECT_EQ(samples->size(), (*dataset)->sample_count());
  }
}

TEST(FileDataset, UsesTheIndexBesideIt) {
  const TemporaryDirectory directory;
  testing::FakeStore recipe;
  testing::make_mds(recipe, {.shard_count = 12, .samples_per_shard = 20});
  for (const auto& [key, object] : recipe.shared().objects) {
    std::ofstream(directory.path() + "/" + key, std::ios::binary) << object.bytes;
  }
  const auto pool = testing::make_pool();
  const auto store = open_directory(directory.path());
  auto index = build_index(*store, *pool, {});
  ASSERT_TRUE(index.has_value()) << index.error().message();
  ASSERT_TRUE(write_object(*store, *pool, "index.hri", *index).has_value());
  auto dataset = Dataset::open(*store, *pool, {});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  // With its shards gone, only the index can have told.
  std::filesystem::remove(directory.path() + "/shard.00003.mds");
  auto again = Dataset::open(*store, *pool, {});
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ((*again)->fingerprint(), (*dataset)->fingerprint());
  EXPECT_EQ((*again)->sample_count(), 240U);
}

TEST(FileDataset, SaysThatTheDirectoryIsNotThere) {
  const TemporaryDirectory directory;
  const auto pool = testing::make_pool();
  const auto store = open_directory(directory.path() + "/nothing");
  auto dataset = Dataset::open(*store, *pool, {});
  ASSERT_FALSE(dataset.has_value());
  EXPECT_EQ(dataset.error().code(), Code::kNotFound);
  EXPECT_NE(dataset.error().message().find("nothing"), std::string_view::npos);
}

}  // namespace
}  // namespace headrace
