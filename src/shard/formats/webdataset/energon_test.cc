// Energon's indexes: parsed, and never believed without a look at the tar.
#include <gtest/gtest.h>

#include "base/endian.h"
#include "io/testing/fake_store.h"
#include "shard/formats/webdataset/energon_reuse.h"
#include "shard/testing/make_tar.h"
#include "shard/testing/read_dataset.h"

namespace headrace::detail {
namespace {

using testing::FakeStore;

std::string packed(const std::vector<std::uint64_t>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

TEST(EnergonIndex, IsAscendingBlocksOfTheTar) {
  const auto parse = [](const std::vector<std::uint64_t>& values) {
    const std::string bytes = packed(values);
    return parse_energon_index(std::as_bytes(std::span(bytes)), 4096);
  };
  EXPECT_EQ(parse({0, 1024, 4096}), (std::vector<std::uint64_t>{0, 1024, 4096}));
  for (const std::vector<std::uint64_t>& bad : std::vector<std::vector<std::uint64_t>>{
           {}, {0}, {0, 0}, {1024, 512}, {1024, 4096}, {0, 100}, {0, 4608}})
    EXPECT_EQ(parse(bad), std::nullopt);
  const std::string text = "v1.2 1\nx 512 1 a.x\n";
  EXPECT_EQ(parse_energon_index(std::as_bytes(std::span(text)), 4096), std::nullopt);
}

class EnergonReuse : public ::testing::Test {
 protected:
  void add(const std::string& key, const std::string& name, std::size_t bytes) {
    if (key != last_key_) bounds_.push_back(members_.size());
    last_key_ = key;
    members_ += testing::tar_member(key + "." + name, std::string(bytes, 'x'));
  }
  void fill() {
    for (int i = 0; i < 100; ++i) {
      add("s" + std::to_string(i), "a", 20'000);
      add("s" + std::to_string(i), "B", 10);
    }
    store();
  }
  void store() {
    bounds_.push_back(members_.size());
    tar_ = members_ + std::string(1024, '\0');
    store_.set("x.tar", tar_);
    store_.set("x.tar.idx", packed(bounds_));
  }
  std::shared_ptr<const Dataset> open() {
    store_.shared().get_bytes = 0;
    auto dataset = Dataset::open(store_, *pool_, {});
    EXPECT_TRUE(dataset.has_value()) << dataset.error().message();
    return dataset ? *dataset : nullptr;
  }
  bool is_scanned() { return store_.shared().get_bytes >= tar_.size(); }

  FakeStore store_;
  std::unique_ptr<SlabPool> pool_ = testing::make_pool();
  std::string members_, last_key_, tar_;
  std::vector<std::uint64_t> bounds_;
};

TEST_F(EnergonReuse, SparesTheScan) {
  fill();
  auto dataset = open();
  ASSERT_NE(dataset, nullptr);
  EXPECT_FALSE(is_scanned());
  EXPECT_EQ(dataset->sample_count(), 100U);
  EXPECT_EQ(dataset->columns().size(), 3U);
  auto samples = testing::read_all(store_, *pool_, *dataset);
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  EXPECT_EQ(samples->back()[0].bytes, "s99");
  EXPECT_EQ(samples->back()[2].bytes, std::string(10, 'x'));
}

TEST_F(EnergonReuse, ReadsASampleWhoseNameIsInTwoPieces) {
  for (int i = 0; i < 1000; ++i) add("s" + std::to_string(i), "a", 100);
  const std::string name(90, 'n');
  members_.replace(501 * 1024, 512, testing::tar_header(name + ".a", 100, '0', "a/prefix"));
  store();
  auto dataset = open();
  ASSERT_NE(dataset, nullptr);
  EXPECT_FALSE(is_scanned());
  const auto sample = testing::read_one(store_, *pool_, *dataset, 501);
  ASSERT_TRUE(sample.has_value()) << sample.error().message();
  EXPECT_EQ((*sample)[0].bytes, "a/prefix/" + name);
}

TEST_F(EnergonReuse, ScansWhereSamplesDifferInTheirFields) {
  add("first", "a", 10);
  add("first", "more", 10);
  fill();
  EXPECT_EQ(open()->sample_count(), 101U);
  EXPECT_TRUE(is_scanned());
}

TEST_F(EnergonReuse, ScansATarThatWentOnSince) {
  fill();
  tar_ = members_ + testing::tar_member("more.a", "y") + std::string(1024, '\0');
  store_.set("x.tar", tar_);
  EXPECT_EQ(open()->sample_count(), 101U);
}

TEST_F(EnergonReuse, ScansWhenTheSamplesAreOthers) {
  fill();
  bounds_.erase(bounds_.begin() + 1);
  store_.set("x.tar.idx", packed(bounds_));
  EXPECT_EQ(open()->sample_count(), 100U);
  EXPECT_TRUE(is_scanned());
}

TEST_F(EnergonReuse, ScansWhenTheFirstSamplesAreMissing) {
  fill();
  bounds_.erase(bounds_.begin(), bounds_.begin() + 3);
  store_.set("x.tar.idx", packed(bounds_));
  EXPECT_EQ(open()->sample_count(), 100U);
  EXPECT_TRUE(is_scanned());
}

TEST_F(EnergonReuse, ReportsAFieldThatNoSampleLookedAtHas) {
  for (int i = 0; i < 1000; ++i) {
    add("s" + std::to_string(i), "a", 100);
    if (i == 500) add("s500", "odd", 10);
  }
  store();
  auto dataset = open();
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->columns().size(), 2U);
  EXPECT_TRUE(testing::read_one(store_, *pool_, *dataset, 499).has_value());
  const auto odd = testing::read_one(store_, *pool_, *dataset, 500);
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(odd.error().code(), Code::kCorrupt);
  EXPECT_NE(odd.error().message().find("with a pattern"), std::string_view::npos);
  // A pattern names the tars alone.
  DatasetOptions options;
  options.keys = {"x.tar"};
  auto scanned = Dataset::open(store_, *pool_, options);
  ASSERT_TRUE(scanned.has_value());
  EXPECT_EQ((*scanned)->columns().size(), 3U);
}

}  // namespace
}  // namespace headrace::detail
