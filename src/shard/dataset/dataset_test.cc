// Dataset::open: detection, stored and cached indexes, and what each kind of damage is called.
#include "headrace/dataset.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_directory.h"
#include "io/testing/fake_store.h"
#include "shard/testing/dataset_fixture.h"
#include "shard/testing/make_mds.h"
#include "shard/testing/make_tar.h"
#include "shard/testing/read_dataset.h"

namespace headrace {
namespace {

using testing::make_mds;
using testing::make_pool;
using testing::make_tar;

class DatasetOpen : public testing::DatasetFixture {
 protected:
  /// Does what `headrace index` does.
  void store_index(const DatasetOptions& options = {}) {
    auto bytes = build_index(store_, *pool_, options);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message();
    store_.set("index.hri", *bytes);
  }
};

// --- detection ---

TEST_F(DatasetOpen, SaysThatNothingIsThere) {
  EXPECT_EQ(code(), Code::kNotFound);
  expect_message("fake://data");
  store_.set(".hidden", "x");
  store_.set("dir/", "");
  store_.set("index.hri", "");
  EXPECT_EQ(code(), Code::kNotFound);
}

TEST_F(DatasetOpen, SaysThatTheWantedFormatIsNotThere) {
  store_.set("a.bin", "x");
  EXPECT_EQ(code(with_format(Format::kMds)), Code::kNotFound);
  expect_message("index.json");
  EXPECT_EQ(code(with_format(Format::kWebDataset)), Code::kNotFound);
  expect_message(".tar");
}

TEST_F(DatasetOpen, NamesBothKindsOfAMixture) {
  store_.set("a.tar", make_tar({{"a.txt", "1"}}));
  store_.set("a.json", "{}");
  store_.set("notes.txt", "side car");
  EXPECT_EQ(code(), Code::kOk);
  store_.set("b.parquet", "x");
  EXPECT_EQ(code(), Code::kInvalidArgument);
  expect_message("a.tar");
  expect_message("b.parquet");
  expect_message("format=");
  EXPECT_EQ(code(with_format(Format::kWebDataset)), Code::kOk);
  EXPECT_EQ(code(with_format(Format::kRaw)), Code::kOk);
}

TEST_F(DatasetOpen, LetsTheBuilderOfAClaimedFormatSayWhatIsWrong) {
  store_.set("a.tar.gz", "x");
  EXPECT_EQ(code(), Code::kCorrupt);
  expect_message("a.tar.gz");
}

TEST_F(DatasetOpen, TellsLitDataFromMds) {
  store_.set("index.json", R"({"chunks": [], "config": {}})");
  EXPECT_NE(code(), Code::kOk);
  expect_message("data_format");
  EXPECT_EQ(code(with_format(Format::kMds)), Code::kCorrupt);
}

TEST_F(DatasetOpen, TakesAnythingElseAsRawFiles) {
  store_.set("x/b.bin", "bbbb");
  store_.set("a.bin", "aa");
  store_.set("x/empty", "");
  store_.set("x/.tmp", "no");
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->format(), Format::kRaw);
  EXPECT_EQ((*dataset)->sample_count(), 3U);
  EXPECT_EQ((*dataset)->stored_bytes(), 6U);
  EXPECT_EQ((*dataset)->columns()[0].name, "data");
  EXPECT_EQ((*dataset)->columns()[1].name, "key");
  auto samples = testing::read_all(store_, *pool_, **dataset);
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  EXPECT_EQ((*samples)[0][0].bytes, "aa");
  EXPECT_EQ((*samples)[0][1].bytes, "a.bin");
  EXPECT_EQ((*samples)[1][0].bytes, "bbbb");
  EXPECT_EQ((*samples)[2][1].bytes, "x/empty");
  EXPECT_TRUE((*samples)[2][0].present);
}

TEST_F(DatasetOpen, LaysRawFilesEndToEnd) {
  for (int i = 0; i < 20; ++i)
    store_.set("f" + std::to_string(100 + i), std::string(10'000, static_cast<char>('a' + i)));
  DatasetOptions options;
  options.block_bytes = 64 << 10;
  auto dataset = open(options);
  ASSERT_TRUE(dataset.has_value());
  ASSERT_EQ((*dataset)->block_count(), 4U);
  std::vector<Extent> extents;
  EXPECT_EQ((*dataset)->append_extents(1, 1, 4, extents), 30'000U);
  ASSERT_EQ(extents.size(), 3U);
  EXPECT_EQ(extents[2].target_offset_bytes, 20'000U);
  EXPECT_EQ(extents[0].key, "f106");
  EXPECT_EQ((*dataset)->block_of(19), 3U);
  EXPECT_EQ((*dataset)->largest_block_bytes(), 50'000U);
}

TEST_F(DatasetOpen, GivesAnEmptyDatasetNoBlocks) {
  store_.set("empty.tar", std::string(10240, '\0'));
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value());
  EXPECT_EQ((*dataset)->sample_count(), 0U);
  EXPECT_EQ((*dataset)->block_count(), 0U);
  EXPECT_EQ((*dataset)->largest_block_bytes(), 0U);
}

TEST_F(DatasetOpen, ReadsALargeIndexOfLitData) {
  // One chunk: u32 count, two u32 offsets, and a sample of a size and an int64.
  const std::uint32_t numbers[] = {1, 12, 24, 8, 7, 0};
  store_.set("a.bin", std::string(reinterpret_cast<const char*>(numbers), sizeof(numbers)));
  store_.set("index.json",
             R"({"chunks": [{"chunk_bytes": 24, "chunk_size": 1, "dim": null,)"
             R"( "filename": "a.bin"}], "config": {"compression": null, "data_format": ["int"],)"
             R"( "data_spec": "[1, {\"type\": null, \"context\": null, \"children_spec\": []}]",)"
             R"( "encryption": null, "item_loader": "PyTreeLoader"}})" +
                 std::string(std::size_t{65} << 20, ' '));
  for (const Format format : {Format::kAuto, Format::kLitData}) {
    auto dataset = open(with_format(format));
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    EXPECT_EQ((*dataset)->format(), Format::kLitData);
    EXPECT_EQ((*dataset)->sample_count(), 1U);
  }
}

// --- the stored index ---

TEST_F(DatasetOpen, NeedsTwoSmallRequestsWithAStoredIndex) {
  make_mds(store_, {.shard_count = 40, .samples_per_shard = 30});
  auto built = open();
  ASSERT_TRUE(built.has_value()) << built.error().message();
  store_index();
  const std::uint64_t before = store_.request_count();
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value());
  EXPECT_EQ(store_.request_count() - before, 2U);
  EXPECT_EQ((*dataset)->fingerprint(), (*built)->fingerprint());
  EXPECT_EQ((*dataset)->sample_count(), 1200U);
}

TEST_F(DatasetOpen, IgnoresAStaleStoredIndex) {
  make_mds(store_, {.shard_count = 2, .samples_per_shard = 3});
  store_index();
  make_mds(store_, {.shard_count = 3, .samples_per_shard = 3});
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->sample_count(), 9U);
}

TEST_F(DatasetOpen, IgnoresADamagedStoredIndexAndOneOfAnotherFormat) {
  make_mds(store_, {.shard_count = 2, .samples_per_shard = 3});
  store_.set("index.hri", "not an index");
  EXPECT_EQ(code(), Code::kOk);
  store_index(with_format(Format::kRaw));
  auto dataset = open(with_format(Format::kMds));
  ASSERT_TRUE(dataset.has_value());
  EXPECT_EQ((*dataset)->format(), Format::kMds);
}

TEST_F(DatasetOpen, RecomputesBlocksForAnotherBlockSize) {
  make_mds(store_, {.shard_count = 1, .samples_per_shard = 64, .sample_bytes = 10'000});
  store_index();
  DatasetOptions options;
  auto coarse = open(options);
  options.block_bytes = 64 << 10;
  auto fine = open(options);
  ASSERT_TRUE(coarse.has_value() && fine.has_value());
  EXPECT_EQ((*coarse)->block_count(), 1U);
  EXPECT_EQ((*fine)->block_count(), 10U);
  EXPECT_EQ((*coarse)->fingerprint(), (*fine)->fingerprint());
  options.block_bytes = 1;
  EXPECT_EQ(code(options), Code::kInvalidArgument);
}

TEST_F(DatasetOpen, FindsTheIndexOfAnEarlierOpenInTheCache) {
  const TemporaryDirectory directory;
  DatasetOptions options;
  options.index_cache_dir = directory.path() + "/not/yet/there";
  make_mds(store_, {.shard_count = 5, .samples_per_shard = 3});
  auto first = open(options);
  ASSERT_TRUE(first.has_value());
  const std::uint64_t before = store_.request_count();
  auto second = open(options);
  ASSERT_TRUE(second.has_value());
  EXPECT_LE(store_.request_count() - before, 3U)
      << "index.hri (missing) and the version of index.json at once, then index.json";
  EXPECT_EQ((*first)->fingerprint(), (*second)->fingerprint());
  make_mds(store_, {.shard_count = 6, .samples_per_shard = 3});
  auto changed = open(options);
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ((*changed)->shard_count(), 6U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(options.index_cache_dir), {}), 2);
}

TEST_F(DatasetOpen, UsesAStoredIndexUnlessAnOptionShapesIt) {
  make_mds(store_, {.shard_count = 1, .samples_per_shard = 3});
  auto index = build_index(store_, *pool_, {});
  ASSERT_TRUE(index.has_value());
  store_.set("index.hri", *index);
  const auto reads_shards = [this](const DatasetOptions& options) {
    const std::uint64_t before = store_.shared().get_count;
    EXPECT_EQ(code(options), Code::kOk);
    return store_.shared().get_count - before > 1;
  };
  DatasetOptions options;
  EXPECT_FALSE(reads_shards(options));
  options.columns = {"x"};  // MDS stores no column apart.
  options.lenient = true;
  EXPECT_FALSE(reads_shards(options));
  options.format = Format::kMds;
  EXPECT_FALSE(reads_shards(options));
  store_.shared().objects.clear();
  store_.set("a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
  index = build_index(store_, *pool_, {});
  ASSERT_TRUE(index.has_value());
  store_.set("index.hri", *index);
  options = DatasetOptions{};
  EXPECT_FALSE(reads_shards(options));
  options.columns = {"a"};
  EXPECT_TRUE(reads_shards(options));
}

TEST_F(DatasetOpen, WorksWithoutAWritableCache) {
  DatasetOptions options;
  options.index_cache_dir = "/proc/no/such/place";
  make_mds(store_, {.shard_count = 1, .samples_per_shard = 3});
  EXPECT_EQ(code(options), Code::kOk);
}

TEST_F(DatasetOpen, ReportsProgressUpToTheEnd) {
  make_mds(store_, {.shard_count = 7, .samples_per_shard = 3});
  std::vector<std::uint64_t> seen;
  DatasetOptions options;
  options.progress = [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_EQ(all, 7U);
    seen.push_back(done);
  };
  ASSERT_EQ(code(options), Code::kOk);
  EXPECT_EQ(seen.back(), 7U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST_F(DatasetOpen, StopsWhenAsked) {
  make_mds(store_, {.shard_count = 2, .samples_per_shard = 3});
  std::stop_source stop;
  stop.request_stop();
  auto dataset = Dataset::open(store_, *pool_, {}, {.stop = stop.get_token()});
  ASSERT_FALSE(dataset.has_value());
  EXPECT_EQ(dataset.error().code(), Code::kCancelled);
}

// --- damage ---

TEST_F(DatasetOpen, NamesATruncatedShardWithBothSizes) {
  for (const bool is_fixed : {false, true}) {
    make_mds(store_, {.shard_count = 3, .samples_per_shard = 30, .is_fixed = is_fixed});
    std::string bytes = store_.shared().objects["shard.00001.mds"].bytes;
    const std::size_t full = bytes.size();
    for (const std::size_t size : {full - 1, std::size_t{50}, std::size_t{9}}) {
      store_.set("shard.00001.mds", bytes.substr(0, size));
      EXPECT_EQ(code(), Code::kCorrupt);
      expect_message("shard.00001.mds");
      expect_message(std::to_string(size));
      expect_message(std::to_string(full));
    }
  }
}

TEST_F(DatasetOpen, NamesAMissingShard) {
  make_mds(store_, {.shard_count = 3, .samples_per_shard = 3});
  store_.shared().objects.erase("shard.00002.mds");
  EXPECT_EQ(code(), Code::kNotFound);
  expect_message("shard.00002.mds");
}

TEST_F(DatasetOpen, FindsTablesThatDoNotFit) {
  for (const bool is_fixed : {false, true}) {
    for (const std::size_t at : {0U, 4U}) {
      make_mds(store_, {.shard_count = 1, .samples_per_shard = 30, .is_fixed = is_fixed});
      std::string bytes = store_.shared().objects["shard.00000.mds"].bytes;
      bytes[at] = static_cast<char>(bytes[at] + 1);
      bytes[at + 2] = 1;
      store_.set("shard.00000.mds", bytes);
      EXPECT_EQ(code(), Code::kCorrupt) << at;
      expect_message("shard.00000.mds");
    }
  }
}

TEST_F(DatasetOpen, ReadsTablesInPiecesWhenThePoolIsSmall) {
  pool_ = make_pool(64 << 10);
  make_mds(store_, {.shard_count = 9, .samples_per_shard = 5000, .sample_bytes = 20});
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->sample_count(), 45'000U);
  EXPECT_LE(pool_->peak_bytes(), pool_->limit_bytes());
  for (std::uint64_t position = 0; position < 45'000; position += 3571) {
    auto sample = testing::read_one(store_, *pool_, **dataset, position);
    ASSERT_TRUE(sample.has_value());
    EXPECT_EQ((*sample)[0].bytes, testing::mds_text(position, 20));
  }
}

TEST_F(DatasetOpen, HoldsFewTablesAtOnceWhenThePoolIsSmall) {
  pool_ = make_pool(1 << 20);
  testing::make_mds(store_, {.shard_count = 8, .samples_per_shard = 15'000, .sample_bytes = 1});
  ASSERT_TRUE(open().has_value());
  // 120 KB of offsets a shard, of 256 KiB.
  EXPECT_EQ(store_.shared().most_in_flight, 2U);
}

TEST_F(DatasetOpen, ReadsChangedObjectsAsChanged) {
  make_mds(store_, {.shard_count = 1, .samples_per_shard = 3});
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value());
  store_.set("shard.00000.mds", store_.shared().objects["shard.00000.mds"].bytes);
  EXPECT_EQ(testing::read_one(store_, *pool_, **dataset, 0).error().code(), Code::kChanged);
}

TEST_F(DatasetOpen, FindsATarThatChangesWhileItIsIndexed) {
  store_.set("a.tar", make_tar({{"a.txt", "1"}}));
  store_.shared().after_list = [this] { store_.set("a.tar", make_tar({{"a.txt", "2"}})); };
  EXPECT_EQ(code(), Code::kChanged);
  expect_message("a.tar");
}

TEST_F(DatasetOpen, FindsAnEmptyTarFile) {
  store_.set("a.tar", "");
  EXPECT_EQ(code(), Code::kCorrupt);
  expect_message("a.tar");
}

TEST_F(DatasetOpen, SkipsOverLargeTarMembers) {
  pool_ = make_pool(1 << 20);
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < 6; ++i)
    members.emplace_back("s" + std::to_string(i) + ".bin", std::string(1 << 20, 'x'));
  store_.set("a.tar", make_tar(members));
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->sample_count(), 6U);
  EXPECT_LT(store_.shared().get_bytes, std::uint64_t{2} << 20);
}

TEST_F(DatasetOpen, LeavesSkippedMembersOutOfTheRun) {
  store_.set(
      "a.tar",
      make_tar(
          {{"a.txt", "1"}, {"__meta__", std::string(5000, 'm')}, {"b.txt", "2"}, {"README", "r"}}));
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value());
  std::vector<Extent> extents;
  EXPECT_EQ((*dataset)->append_extents(0, 0, 1, extents), 1024U);
  EXPECT_EQ((*dataset)->append_extents(0, 1, 2, extents), 1024U);
  EXPECT_EQ(extents[1].offset_bytes, 1024U + 512U + 5120U);
}

TEST_F(DatasetOpen, CutReportsBytesThatAreNotTheSample) {
  store_.set("a.tar", make_tar({{"a.txt", "1"}, {"b.txt", "2"}}));
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value());
  std::string bytes(2048, 'x');
  std::vector<ColumnBytes> columns((*dataset)->columns().size());
  const Status status = (*dataset)->cut({0, 0, 2, std::as_bytes(std::span(bytes))}, 1, columns);
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_NE(status.message().find("a.tar: sample 1"), std::string_view::npos) << status.message();
  EXPECT_EQ(
      (*dataset)->cut({0, 0, 2, std::as_bytes(std::span(bytes)).first(1500)}, 1, columns).code(),
      Code::kCorrupt);
}

TEST_F(DatasetOpen, CutChecksMdsSamples) {
  for (const bool is_fixed : {false, true}) {
    make_mds(store_, {.shard_count = 1, .samples_per_shard = 4, .is_fixed = is_fixed});
    auto dataset = open();
    ASSERT_TRUE(dataset.has_value());
    std::vector<Extent> extents;
    std::string bytes((*dataset)->append_extents(0, 0, 4, extents), '\xff');
    std::vector<ColumnBytes> columns((*dataset)->columns().size());
    const auto all = std::as_bytes(std::span(bytes));
    EXPECT_EQ((*dataset)->cut({0, 0, 4, all.first(all.size() - 1)}, 3, columns).code(),
              Code::kCorrupt);
    // Without sizes in the samples nothing else can be wrong.
    EXPECT_EQ((*dataset)->cut({0, 0, 4, all}, 3, columns).code(),
              is_fixed ? Code::kOk : Code::kCorrupt);
  }
}

}  // namespace
}  // namespace headrace
