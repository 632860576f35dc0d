// Shards whose index.json is missing, empty, damaged or another's are errors, never files.
#include "shard/dataset/lost_index.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/testing/fake_store.h"
#include "shard/testing/dataset_fixture.h"
#include "shard/testing/make_mds.h"
#include "shard/testing/make_tar.h"
#include "shard/testing/read_dataset.h"
#include "shard/testing/reference.h"

namespace headrace::detail {
namespace {

class LostIndex : public testing::DatasetFixture {
 protected:
  std::string& index() { return store_.shared().objects["index.json"].bytes; }
  void forget_index() { store_.shared().objects.erase("index.json"); }
};

TEST_F(LostIndex, IsSaidOfMdsWithoutOne) {
  for (const bool is_fixed : {false, true}) {
    testing::make_mds(store_, {.shard_count = 3, .is_fixed = is_fixed});
    EXPECT_EQ(code(), Code::kOk);
    forget_index();
    EXPECT_EQ(code(), Code::kNotFound);
    for (const char* part : {"shard.00000.mds", "2 more", "index.json", "--rebuild", "raw"})
      expect_message(part);
    EXPECT_EQ(code(with_format(Format::kMds)), Code::kNotFound);
    EXPECT_EQ(code(with_format(Format::kRaw)), Code::kOk);
  }
}

TEST_F(LostIndex, IsSaidOfMdsUnderOtherNames) {
  testing::make_mds(store_, {.shard_count = 2, .samples_per_shard = 2000});
  forget_index();
  for (const char* name : {"shard.00000.mds", "shard.00001.mds"}) {
    store_.set(std::string("part-") + name[10] + ".bin", store_.shared().objects[name].bytes);
    store_.shared().objects.erase(name);
  }
  EXPECT_EQ(code(), Code::kNotFound);
  expect_message("part-0.bin");
}

TEST_F(LostIndex, IsSaidOfEveryDamage) {
  testing::make_mds(store_, {.shard_count = 2});
  const std::string whole = index();
  for (std::size_t length = 0; length < whole.size(); length += 37) {
    index() = whole.substr(0, length);
    EXPECT_EQ(code(), Code::kCorrupt) << length;
    expect_message("index.json");
    expect_message(length == 0 ? "is empty" : "is damaged");
    EXPECT_EQ(code(with_format(Format::kMds)), Code::kCorrupt);
  }
  // JSON all the same, but none that names shards.
  index() = R"({"shardz": [], "version": 2})";
  EXPECT_EQ(code(), Code::kCorrupt);
  expect_message("names no shards");
}

TEST_F(LostIndex, IsNoMatterOfOtherFormatsWhenTheyAreNamed) {
  store_.set("a.tar", testing::make_tar({{"a.txt", "1"}}));
  store_.set("index.json", "");
  EXPECT_EQ(code(), Code::kCorrupt);
  EXPECT_EQ(code(with_format(Format::kWebDataset)), Code::kOk);
  index() = R"({"about": "these tars"})";
  EXPECT_EQ(code(), Code::kOk);
}

TEST_F(LostIndex, IsSaidOfLitData) {
  const std::string chunk = testing::mds_shard({"a", "b"}, "");
  for (const char* name : {"chunk-0-0.bin", "chunk-12-3.zstd.bin"}) {
    store_.shared().objects.clear();
    store_.set(name, chunk);
    EXPECT_EQ(code(), Code::kNotFound);
    expect_message("LitData");
    expect_message(name);
  }
  // By content alone where there is enough of it.
  store_.shared().objects.clear();
  store_.set("data", testing::mds_shard(std::vector<std::string>(50, "x"), ""));
  EXPECT_EQ(code(), Code::kNotFound);
  expect_message("LitData");
}

TEST_F(LostIndex, IsSaidOfEveryReferenceSet) {
  for (const auto& entry : std::filesystem::directory_iterator(testing::reference_path("mds"))) {
    const auto folder =
        std::filesystem::exists(entry.path() / "data") ? entry.path() / "data" : entry.path();
    if (!std::filesystem::exists(folder / "index.json")) continue;
    SCOPED_TRACE(folder);
    store_.shared().objects.clear();
    store_.load(folder);
    store_.shared().objects.erase("expected.json");
    forget_index();
    EXPECT_NE(code(), Code::kOk);
    expect_message("MDS");
  }
}

TEST_F(LostIndex, NamesTheFoldersThatHaveOne) {
  testing::FakeStore part;
  testing::make_mds(part, {});
  for (const auto& [key, object] : part.shared().objects)
    for (const char* folder : {"x/", "y/"}) store_.set(folder + key, object.bytes);
  EXPECT_EQ(code(), Code::kInvalidArgument);
  expect_message("x/, y/");
  DatasetOptions one;
  one.keys = {"x/shard.00000.mds"};
  EXPECT_EQ(code(one), Code::kInvalidArgument);
  expect_message("open the folder");
}

TEST_F(LostIndex, IsSaidOfAPackThatDidNotComeToItsEnd) {
  const std::string tar = testing::make_tar({{"a.x", "1"}, {"b.x", "2"}});
  for (const char* folder : {"", "train/"}) {
    SCOPED_TRACE(folder);
    store_.shared().objects.clear();
    const std::string root = folder;
    store_.set(root + "shard-000000.tar", tar);
    EXPECT_EQ(code(), Code::kOk);
    store_.set(root + ".hrpack.json", "{}");
    for (const Format format : {Format::kAuto, Format::kWebDataset, Format::kRaw}) {
      EXPECT_EQ(code(with_format(format)), Code::kInvalidArgument);
      expect_message(root + ".hrpack.json is there");
    }
    DatasetOptions one;
    one.keys = {root + "shard-000000.tar"};
    EXPECT_EQ(code(one), Code::kOk);
    store_.set(root + ".hrpack.done.json", "{}");
    EXPECT_EQ(code(), Code::kOk);
  }
  // Of another folder.
  store_.set("other/.hrpack.json", "{}");
  EXPECT_EQ(code(), Code::kInvalidArgument);
  // Without its index.json, which comes at the end.
  store_.shared().objects.clear();
  testing::make_mds(store_, {.shard_count = 3});
  store_.set(".hrpack.json", "{}");
  forget_index();
  EXPECT_EQ(code(), Code::kInvalidArgument);
  expect_message("run the same again");
}

TEST_F(LostIndex, LeavesFilesThatOnlyLookALittleLikeShards) {
  std::string numbers;
  for (std::uint32_t i = 0; i < 1000; ++i) testing::append_u32(numbers, i);
  store_.set("numbers.bin", numbers);
  store_.set("count.dat", std::string("\1\0\0\0\14\0\0\0rest", 12));
  EXPECT_EQ(code(), Code::kOk);
}

}  // namespace
}  // namespace headrace::detail
