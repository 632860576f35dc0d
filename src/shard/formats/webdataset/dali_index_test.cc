// DALI's indexes: parsed, compared with a scan, and never believed without a look at the tar.
#include "shard/formats/webdataset/dali_index.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/testing/fake_store.h"
#include "shard/formats/webdataset/tar_scan.h"
#include "shard/testing/drive_scan.h"
#include "shard/testing/make_tar.h"
#include "shard/testing/read_dataset.h"
#include "shard/testing/reference.h"

namespace headrace::detail {
namespace {

namespace fs = std::filesystem;
using testing::FakeStore;

TEST(DaliIndex, SaysWhatAScanOfTheReferenceTarsFinds) {
  const fs::path reference = testing::reference_path("wds");
  if (!fs::exists(reference)) GTEST_SKIP() << "no reference cases here";
  int used = 0;
  for (const char* name : {"written-0000", "written-0001", "written-0002"}) {
    SCOPED_TRACE(name);
    const std::string tar = testing::read_file(reference / (name + std::string(".tar")));
    auto index =
        parse_dali_index(testing::read_file(reference / (name + std::string(".idx"))), tar.size());
    if (!index) {
      EXPECT_EQ(index.error().code(), Code::kUnsupported) << index.error().message();
      continue;
    }
    ++used;
    TarScan scan(false);
    ASSERT_TRUE(testing::drive_scan(scan, std::as_bytes(std::span(tar)), 4096).ok());
    const FileSamples samples = scan.take();
    EXPECT_EQ(index->bounds, samples.bounds);
    auto facts = TarFacts::from_text(samples.facts);
    std::sort(facts->suffixes.begin(), facts->suffixes.end());
    EXPECT_EQ(index->suffixes, facts->suffixes);
  }
  EXPECT_GT(used, 0);
}

TEST(DaliIndex, RefusesWhatIsNotTheSame) {
  const char* const cases[] = {
      "",
      "v1.2",
      "v1.2 0\n",
      "v1.0 1\nx 512 1\n",
      "v1.1 1\nx 512 1 a.x\n",
      "v1.1 1\nx 512 1 x 1536 1\n",
      "v1.2 2\nx 512 1 a.x\n",
      "v1.2 1\nx 512 1 a.x\nmore\n",
      "v1.2 1\nx 512 9999 a.x\n",
      "v1.2 1\nx 1024 1 a.x\n",
      "v1.2 1\nx 512 1 a.y\n",
      "v1.2 1\nx 512 1 noext\n",
      "v1.2 1\nx 512 1 a.x y 1536 1 b.y\n",
      "v1.2 1\nx 512 1 a.x X 1536 1 a.X\n",
      "v1.2 2\nx 512 1 a.x\ny 1536 1 a.y\n",
      "v1.2 1\nx 512 -1 a.x\n",
      "v1.2 1\nx 512 18446744073709551615 a.x\n",
      "v1.2 1\n__meta__ 512 1 __meta__\n",
  };
  for (const char* text : cases) EXPECT_FALSE(parse_dali_index(text, 4096).has_value()) << text;
  auto index = parse_dali_index("v1.2 2\nx 512 1 a.x y 1536 0 a.y\nx 2048 1 b.x\n", 4096);
  ASSERT_TRUE(index.has_value()) << index.error().message();
  EXPECT_EQ(index->bounds, (std::vector<std::uint64_t>{0, 1536, 2560}));
  EXPECT_EQ(index->suffixes, (std::vector<std::string>{"x", "y"}));
  // v1.1 has no names.
  auto older = parse_dali_index("v1.1 2\nX 512 1 y 1536 0\nx 2048 1\n", 4096);
  ASSERT_TRUE(older.has_value()) << older.error().message();
  EXPECT_EQ(older->bounds, index->bounds);
  EXPECT_EQ(older->suffixes, index->suffixes);
  EXPECT_EQ(older->last.suffix, "x");
}

TEST(DaliIndex, LeavesFieldsThatEverySampleHasToTheScan) {
  EXPECT_FALSE(parse_dali_index("v1.2 1\n__key__ 512 1 a.__key__\n", 4096).has_value());
  EXPECT_FALSE(parse_dali_index("v1.1 1\nx 512 1 __url__ 1536 1\n", 4096).has_value());
}

class DaliReuse : public ::testing::Test {
 protected:
  DaliReuse() {
    std::string members;
    for (int i = 0; i < 100; ++i)
      members += testing::tar_member("s" + std::to_string(i) + ".bin", std::string(20'000, 'x'));
    index_ = "v1.2 100\n";
    for (std::size_t i = 0; i < 100; ++i) {
      index_ += "bin " + std::to_string(512 + i * members.size() / 100) + " 20000 s" +
                std::to_string(i) + ".bin\n";
    }
    tar_ = members + std::string(1024, '\0');
  }
  std::uint64_t sample_count() {
    store_.set("a.tar", tar_);
    store_.set("a.idx", index_);
    store_.shared().get_bytes = 0;
    auto dataset = Dataset::open(store_, *pool_, {});
    EXPECT_TRUE(dataset.has_value()) << dataset.error().message();
    return dataset ? (*dataset)->sample_count() : 0;
  }
  bool is_scanned() { return store_.shared().get_bytes >= tar_.size(); }

  FakeStore store_;
  std::unique_ptr<SlabPool> pool_ = testing::make_pool();
  std::string tar_, index_;
};

TEST_F(DaliReuse, SparesTheScan) {
  EXPECT_EQ(sample_count(), 100U);
  EXPECT_FALSE(is_scanned());
  auto dataset = Dataset::open(store_, *pool_, {});
  auto samples = testing::read_all(store_, *pool_, **dataset);
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  EXPECT_EQ(samples->back()[0].bytes, "s99");
}

TEST_F(DaliReuse, ReadsASampleWhoseNameIsInTwoPieces) {
  const std::string name(90, 'n');
  tar_.replace(50 * (tar_.size() - 1024) / 100, 512,
               testing::tar_header(name + ".bin", 20'000, '0', "a/prefix"));
  index_.replace(index_.find("s50.bin"), 7, "a/prefix/" + name + ".bin");
  ASSERT_EQ(sample_count(), 100U);
  EXPECT_FALSE(is_scanned());
  auto dataset = Dataset::open(store_, *pool_, {});
  auto sample = testing::read_one(store_, *pool_, **dataset, 50);
  ASSERT_TRUE(sample.has_value()) << sample.error().message();
  EXPECT_EQ((*sample)[0].bytes, "a/prefix/" + name);
}

TEST_F(DaliReuse, SparesTheScanWithoutNames) {
  std::string older;
  std::string_view rest = index_;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() + 1);
    older += older.empty() ? "v1.1 100\n" : std::string(line.substr(0, line.rfind(' '))) + "\n";
  }
  index_ = older;
  EXPECT_EQ(sample_count(), 100U);
  EXPECT_FALSE(is_scanned());
  // A header that says another field.
  tar_.replace(0, 512, testing::tar_header("other.txt", 20'000));
  EXPECT_EQ(sample_count(), 100U);
  EXPECT_TRUE(is_scanned());
}

TEST_F(DaliReuse, ScansATarThatWentOnSince) {
  tar_ = tar_.substr(0, tar_.size() - 1024) + testing::tar_member("more.bin", "y") +
         std::string(1024, '\0');
  EXPECT_EQ(sample_count(), 101U);
}

TEST_F(DaliReuse, ScansATarWithOtherMembers) {
  tar_.replace(0, 512, testing::tar_header("other.bin", 20'000));
  EXPECT_EQ(sample_count(), 100U);
  EXPECT_TRUE(is_scanned());
}

TEST_F(DaliReuse, ScansWhenTheIndexIsNone) {
  index_ = "v1.2 100\nnonsense";
  EXPECT_EQ(sample_count(), 100U);
  EXPECT_TRUE(is_scanned());
}

}  // namespace
}  // namespace headrace::detail
