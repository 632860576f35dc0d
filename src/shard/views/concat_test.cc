#include <gtest/gtest.h>

#include "headrace/router.h"
#include "headrace/views.h"
#include "io/testing/fake_store.h"
#include "shard/testing/make_mds.h"
#include "shard/testing/read_dataset.h"
#include "store/memory/memory_store.h"

namespace headrace {
namespace {

using testing::FakeStore;

class ConcatTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Dataset> open(FakeStore& store) {
    auto dataset = Dataset::open(store, *pool_, {});
    EXPECT_TRUE(dataset) << dataset.error().message();
    return *dataset;
  }
  /// The objects of a fake store in one that may be used from any thread.
  std::unique_ptr<Store> real(FakeStore& fake, const std::string& name) {
    StoreOptions options;
    options.url = "memory://" + name;
    auto store = open_memory_store(options);
    EXPECT_TRUE(store);
    auto objects = list_all(fake, "");
    EXPECT_TRUE(objects);
    for (const ObjectInfo& object : *objects) {
      auto bytes = read_object(fake, *pool_, object.key, 1 << 20);
      EXPECT_TRUE(bytes);
      EXPECT_TRUE(write_object(**store, *pool_, object.key, *bytes));
    }
    return *std::move(store);
  }

  std::unique_ptr<SlabPool> pool_ = testing::make_pool();
};

TEST_F(ConcatTest, ReadsSeveralDatasetsAsOne) {
  FakeStore a("fake://a");
  FakeStore b("fake://b");
  make_mds(a, {.shard_count = 3, .samples_per_shard = 10});
  make_mds(b, {.shard_count = 2, .samples_per_shard = 7, .sample_bytes = 50});
  std::vector<std::unique_ptr<Store>> stores;
  std::vector<std::shared_ptr<const Dataset>> parts;
  std::vector<testing::Sample> expected;
  for (FakeStore* fake : {&a, &b}) {
    stores.push_back(real(*fake, fake->url().substr(7)));
    auto part = Dataset::open(*stores.back(), *pool_, {});
    ASSERT_TRUE(part);
    parts.push_back(*part);
    auto samples = testing::read_all(*stores.back(), *pool_, **part);
    ASSERT_TRUE(samples);
    expected.insert(expected.end(), samples->begin(), samples->end());
  }
  auto all = concat_datasets(parts);
  ASSERT_TRUE(all) << all.error().message();
  const auto router = *route_stores(std::move(stores));
  auto samples = testing::read_all(*router, *pool_, **all);
  ASSERT_TRUE(samples) << samples.error().message();
  ASSERT_EQ(samples->size(), 44U);
  for (std::size_t i = 0; i < samples->size(); ++i) {
    for (std::size_t c = 0; c < 2; ++c) EXPECT_EQ((*samples)[i][c].bytes, expected[i][c].bytes);
    auto one = testing::read_one(*router, *pool_, **all, i);
    ASSERT_TRUE(one) << one.error().message();
    EXPECT_EQ((*one)[0].bytes, expected[i][0].bytes);
  }
  EXPECT_EQ((*all)->shard_count(), 5U);
  EXPECT_EQ((*all)->shard(3).key, "1/shard.00000.mds");
  EXPECT_EQ((*all)->shard(3).first_sample, 30U);
  EXPECT_EQ((*all)->block((*all)->block_of(35)).shard, 3U);
  EXPECT_EQ((*all)->format(), Format::kSamples);
  EXPECT_EQ((*all)->stored_bytes(), parts[0]->stored_bytes() + parts[1]->stored_bytes());
  EXPECT_EQ((*all)->fingerprint().size(), 32U);
  std::swap(parts[0], parts[1]);
  EXPECT_NE((*concat_datasets(parts))->fingerprint(), (*all)->fingerprint());
  EXPECT_EQ((*concat_datasets(parts, {.is_growing = true}))->fingerprint(),
            parts[0]->fingerprint());
}

TEST_F(ConcatTest, MatchesColumnsByName) {
  FakeStore a("fake://a");
  FakeStore b("fake://b");
  make_mds(a, {});
  make_mds(b, {});
  // The same samples, but the text is called "u".
  std::string index = *read_object(b, *pool_, "index.json", 1 << 20);
  index.replace(index.find("\"t\""), 3, "\"u\"");
  // MDS wants sorted names: "x" stays second only after "u".
  b.set("index.json", index);
  const auto first = open(a);
  const auto second = open(b);
  const auto refused = concat_datasets({first, second});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  auto common = concat_datasets({first, second}, {.columns = ConcatColumns::kCommon});
  ASSERT_TRUE(common) << common.error().message();
  ASSERT_EQ((*common)->columns().size(), 1U);
  EXPECT_EQ((*common)->columns()[0].name, "x");
  auto both = concat_datasets({first, second}, {.columns = ConcatColumns::kUnion});
  ASSERT_TRUE(both) << both.error().message();
  ASSERT_EQ((*both)->columns().size(), 3U);
  auto bytes = testing::read_block(b, *pool_, *second, 0, 0, 10);
  ASSERT_TRUE(bytes);
  std::vector<ColumnBytes> cells(3);
  const std::uint32_t block = first->block_count();
  ASSERT_TRUE(
      (*both)->cut({block, 0, 10, std::as_bytes(std::span(*bytes)), nullptr}, 4, cells).ok());
  EXPECT_FALSE(cells[0].present) << "t";
  EXPECT_TRUE(cells[1].present) << "x";
  EXPECT_TRUE(cells[2].present) << "u";
  EXPECT_EQ(concat_datasets({}).error().code(), Code::kInvalidArgument);
}

TEST_F(ConcatTest, RefusesColumnsOfOneNameAndTwoMeanings) {
  FakeStore a("fake://a");
  FakeStore b("fake://b");
  make_mds(a, {});
  make_mds(b, {.is_fixed = true});
  const auto refused = concat_datasets({open(a), open(b)});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("'t'"), std::string::npos) << refused.error().message();
  // What nobody wants is not compared: it is left out where it differs.
  const auto chosen = concat_datasets({open(a), open(b)}, {.wanted = {"x"}});
  ASSERT_TRUE(chosen) << chosen.error().message();
  EXPECT_EQ((*chosen)->columns().size(), 1U);
  EXPECT_FALSE(concat_datasets({open(a), open(b)}, {.wanted = {"t", "x"}}));
}

TEST_F(ConcatTest, TakesTheColumnsThatAreWanted) {
  FakeStore a("fake://a");
  FakeStore b("fake://b");
  make_mds(a, {});
  make_mds(b, {});
  // Where all have a column alike it stays, and with it the fingerprint of before.
  const auto all = concat_datasets({open(a), open(b)});
  const auto same = concat_datasets({open(a), open(b)}, {.wanted = {"x"}});
  ASSERT_TRUE(all && same);
  EXPECT_EQ((*same)->fingerprint(), (*all)->fingerprint());
  const ConcatOptions one{.columns = ConcatColumns::kWanted, .wanted = {"x"}};
  const auto alone = concat_datasets({open(a), open(b)}, one);
  ASSERT_TRUE(alone) << alone.error().message();
  ASSERT_EQ((*alone)->columns().size(), 1U);
  EXPECT_EQ((*alone)->columns()[0].name, "x");
  const ConcatOptions none{.columns = ConcatColumns::kWanted, .wanted = {"x", "no"}};
  const auto refused = concat_datasets({open(a), open(b)}, none);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("'no'"), std::string::npos) << refused.error().message();
}

}  // namespace
}  // namespace headrace
