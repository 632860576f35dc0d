#include "shard/index/hri.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/random.h"
#include "shard/dataset/fingerprint.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/index/block_table.h"

namespace headrace::detail {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<Column> columns(std::string_view encoding = "bytes") {
  return {{.name = "x", .encoding = std::string(encoding), .dtype = {}, .shape = {}},
          {.name = "n", .encoding = "int", .dtype = "int64", .shape = {}, .fixed_size_bytes = 8}};
}

IndexWriter::Summary summary() {
  return {.format = Format::kMds,
          .columns = columns(),
          .source = {"index.json", "\"e\"", 10},
          .block_bytes = 1 << 20};
}

// A shard of samples that end at `ends`, beginning at `first`.
void add_shard(IndexWriter& writer, std::string_view key,
               const std::vector<std::uint64_t>& bounds) {
  ShardRecord shard;
  shard.sample_count = bounds.size() - 1;
  shard.stored_bytes = shard.raw_bytes = bounds.back();
  shard.first_object = writer.object_count();
  shard.bounds = writer.bounds().append(bounds);
  writer.add_object(key, "\"etag\"", bounds.back());
  writer.add_shard(shard);
}

std::vector<std::uint64_t> random_bounds(Random& random, std::uint64_t most_samples) {
  std::vector<std::uint64_t> bounds{random.below(1000)};
  const std::uint64_t count = random.below(most_samples);
  const std::uint64_t spread = 1 + random.below(300'000);
  for (std::uint64_t i = 0; i < count; ++i) {
    bounds.push_back(bounds.back() + (random.below(10) == 0 ? 0 : random.below(spread)));
  }
  return bounds;
}

TEST(Index, ReadsBackWhatWasWritten) {
  IndexWriter writer;
  add_shard(writer, "a/b.mds", {10, 20, 50, 51});
  add_shard(writer, "a/c.mds", {7});
  ShardRecord zipped;
  zipped.sample_count = 5;
  zipped.stored_bytes = 100;
  zipped.raw_bytes = 300;
  zipped.compression = Compression::kZstd;
  zipped.hashes = "sha1=00ff";
  zipped.first_object = writer.object_count();
  writer.add_object("a/d.mds.zstd", "", 100);
  writer.add_shard(zipped);
  writer.add_key(1, "first");
  writer.add_key(6, "second");
  const std::string bytes = writer.finish(summary());
  auto view = IndexView::parse(as_bytes(bytes));
  ASSERT_TRUE(view.has_value()) << view.error().message();
  EXPECT_EQ(view->format(), Format::kMds);
  EXPECT_EQ(view->sample_count(), 8U);
  EXPECT_EQ(view->stored_bytes(), 158U);
  EXPECT_EQ(view->object_count(), 3U);
  EXPECT_EQ(view->object(0).key, "a/b.mds");
  EXPECT_EQ(view->object(0).etag, "\"etag\"");
  EXPECT_EQ(view->object(2).etag, "");
  EXPECT_EQ(view->object(3).key, "");
  ASSERT_EQ(view->shards().size(), 3U);
  EXPECT_EQ(view->begin_of(view->shards()[0], 1), 20U);
  EXPECT_EQ(view->end_of(view->shards()[0], 1), 50U);
  EXPECT_EQ(view->shards()[2].first_sample, 3U);
  EXPECT_EQ(view->shards()[2].hashes, "sha1=00ff");
  EXPECT_EQ(view->key_of(1), "first");
  EXPECT_EQ(view->key_of(6), "second");
  EXPECT_EQ(view->key_of(2), "");
  EXPECT_EQ(view->source().key, "index.json");
  ASSERT_EQ(view->columns().size(), 2U);
  EXPECT_EQ(view->columns()[1].dtype, "int64");
  EXPECT_EQ(view->columns()[1].fixed_size_bytes, 8U);
}

TEST(Index, FindsEveryTurnedBit) {
  IndexWriter writer;
  add_shard(writer, "a.mds", {10, 20, 50, 51});
  const std::string good = writer.finish(summary());
  std::size_t found = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    auto view = IndexView::parse(as_bytes(bad));
    if (!view) {
      ++found;
      EXPECT_TRUE(view.error().code() == Code::kCorrupt ||
                  view.error().code() == Code::kUnsupported);
    }
  }
  // Bytes between sections carry nothing.
  EXPECT_GE(found, good.size() - 7 * 7);
}

TEST(Index, RefusesEveryCut) {
  IndexWriter writer;
  add_shard(writer, "a.mds", {10, 20, 50, 51});
  const std::string good = writer.finish(summary());
  for (std::size_t size = 0; size < good.size(); ++size) {
    auto view = IndexView::parse(as_bytes(good).first(size));
    ASSERT_FALSE(view.has_value()) << size;
    EXPECT_EQ(view.error().code(), Code::kCorrupt);
  }
}

TEST(Index, SaysThatAnOlderOrNewerVersionIsUnsupported) {
  IndexWriter writer;
  for (const char version : {'\1', '\4'}) {
    std::string bytes = writer.finish(summary());
    bytes[8] = version;
    const auto view = IndexView::parse(as_bytes(bytes));
    ASSERT_FALSE(view.has_value());
    EXPECT_EQ(view.error().code(), Code::kUnsupported);
  }
}

std::string without(const std::vector<BrokenShard>& broken) {
  IndexWriter writer;
  add_shard(writer, "a.mds", {10, 20, 50});
  writer.add_object("b.mds", "\"b\"", 7);
  writer.add_shard(broken_record(5, 1));
  IndexWriter::Summary s = summary();
  s.broken = broken;
  return writer.finish(s);
}

BrokenShard broken_shard() {
  return {.key = "b.mds",
          .etag = "\"b\"",
          .size_bytes = 7,
          .code = Code::kUnsupported,
          .message = "no \"table\"",
          .first_sample = 2,
          .sample_count = 5};
}

TEST(Index, SaysWhatItDoesWithout) {
  const std::string bytes = without({broken_shard()});
  auto view = IndexView::parse(as_bytes(bytes));
  ASSERT_TRUE(view.has_value()) << view.error().message();
  ASSERT_EQ(view->broken().size(), 1U);
  const BrokenShard& found = view->broken()[0];
  EXPECT_EQ(found.key, "b.mds");
  EXPECT_EQ(found.etag, "\"b\"");
  EXPECT_EQ(found.size_bytes, 7U);
  EXPECT_EQ(found.code, Code::kUnsupported);
  EXPECT_EQ(found.message, "no \"table\"");
  EXPECT_FALSE(view->shards()[0].is_broken);
  EXPECT_TRUE(view->shards()[1].is_broken);
  const std::string whole = without({});
  EXPECT_NE(view->fingerprint(), IndexView::parse(as_bytes(whole))->fingerprint());
  EXPECT_NE(content_fingerprint(*view), content_fingerprint(*IndexView::parse(as_bytes(whole))));
}

TEST(Index, IsNeverTakenForTheWholeByAnOlderBuild) {
  std::string bytes = without({broken_shard()});
  EXPECT_EQ(bytes[8], '\3');
  bytes[8] = '\2';  // Such a build does not look for what is missing.
  auto view = IndexView::parse(as_bytes(bytes), false);
  ASSERT_FALSE(view.has_value());
  EXPECT_EQ(view.error().code(), Code::kCorrupt);
}

TEST(Index, RefusesBrokenShardsThatAreNoneOfIts) {
  BrokenShard elsewhere = broken_shard();
  elsewhere.first_sample = 3;
  BrokenShard longer = broken_shard();
  longer.sample_count = 6;
  BrokenShard whole = broken_shard();
  whole.first_sample = 0;
  whole.sample_count = 2;
  for (const BrokenShard& wrong : {elsewhere, longer, whole}) {
    const std::string bytes = without({wrong});
    EXPECT_EQ(IndexView::parse(as_bytes(bytes)).error().code(), Code::kCorrupt);
  }
}

TEST(Index, KnowsWhatMayBeWrongWithAShard) {
  for (const Code code : {Code::kCorrupt, Code::kUnsupported, Code::kNotFound, Code::kDenied}) {
    BrokenShard shard = broken_shard();
    shard.code = code;
    const std::string bytes = without({shard});
    auto view = IndexView::parse(as_bytes(bytes));
    ASSERT_EQ(view.has_value(), code != Code::kDenied);
    if (view) {
      EXPECT_EQ(view->broken()[0].code, code);
    }
  }
}

TEST(Index, KeepsWhatWasPassedOver) {
  IndexWriter writer;
  IndexWriter::Summary s = summary();
  s.cut_ends = {{"a.tar", 12}, {"c.tar", 7}};
  const std::string bytes = writer.finish(s);
  auto view = IndexView::parse(as_bytes(bytes));
  ASSERT_TRUE(view.has_value()) << view.error().message();
  ASSERT_EQ(view->cut_ends().size(), 2U);
  EXPECT_EQ(view->cut_ends()[1].key, "c.tar");
  EXPECT_EQ(view->cut_ends()[1].cut_bytes, 7U);
}

TEST(Index, KeepsTheLayoutAndCountsItIntoTheFingerprint) {
  std::string seen;
  for (const std::string layout : {"", "{\"a\": \"\u00e9\\n\"}", "{\"a\": 2}"}) {
    IndexWriter writer;
    IndexWriter::Summary s = summary();
    s.layout = layout;
    const std::string bytes = writer.finish(s);
    auto view = IndexView::parse(as_bytes(bytes));
    ASSERT_TRUE(view.has_value());
    EXPECT_EQ(view->layout(), layout);
    EXPECT_NE(view->fingerprint(), seen);
    seen = view->fingerprint();
  }
}

TEST(Index, OpensABillionSamplesOfFixedSizeFromAFewKilobytes) {
  IndexWriter writer;
  constexpr std::uint64_t kPerShard = 1'000'000;
  constexpr std::uint64_t kSampleBytes = 2050;
  for (int s = 0; s < 1000; ++s) {
    ShardRecord shard;
    shard.sample_count = kPerShard;
    shard.raw_bytes = shard.stored_bytes = 4'000'100 + kPerShard * kSampleBytes;
    shard.first_object = writer.object_count();
    shard.bounds =
        writer.bounds().append(std::vector<std::uint64_t>{4'000'100, 4'000'100 + kSampleBytes});
    writer.add_object("shard." + std::to_string(s) + ".mds", "\"etag\"", shard.raw_bytes);
    writer.add_shard(shard);
  }
  const std::string bytes = writer.finish(summary());
  EXPECT_LT(bytes.size(), 200'000U);
  auto view = IndexView::parse(as_bytes(bytes));
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->sample_count(), 1'000'000'000U);
  auto blocks = make_blocks(*view, 8 << 20);
  ASSERT_TRUE(blocks.has_value());
  EXPECT_EQ(blocks->size(), 245'000U);
  EXPECT_EQ(view->end_of(view->shards()[999], kPerShard - 1), view->shards()[999].raw_bytes);
}

TEST(BlockTable, HoldsEachSampleInExactlyOneBlock) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    IndexWriter writer;
    const std::uint64_t shards = random.below(5);
    for (std::uint64_t s = 0; s < shards; ++s) add_shard(writer, "s", random_bounds(random, 2000));
    const std::string bytes = writer.finish(summary());
    auto view = IndexView::parse(as_bytes(bytes));
    ASSERT_TRUE(view.has_value()) << view.error().message();
    const std::uint64_t block_bytes = kSmallestBlockBytes + random.below(4 << 20);
    auto blocks = make_blocks(*view, block_bytes);
    ASSERT_TRUE(blocks.has_value());
    std::uint64_t position = 0;
    for (const Block& block : *blocks) {
      ASSERT_EQ(block.first_sample, position);
      ASSERT_GT(block.sample_count, 0U);
      const ShardRecord& shard = view->shards()[block.shard];
      ASSERT_GE(position, shard.first_sample);
      ASSERT_LE(position + block.sample_count, shard.first_sample + shard.sample_count);
      const std::uint64_t first = position - shard.first_sample;
      const std::uint64_t last = first + block.sample_count - 1;
      ASSERT_EQ(block.stored_bytes, view->end_of(shard, last) - view->begin_of(shard, first));
      ASSERT_EQ(block.raw_bytes, block.stored_bytes);
      // At most one sample above the aim.
      ASSERT_LE(view->begin_of(shard, last) - view->begin_of(shard, first), block_bytes);
      position += block.sample_count;
    }
    EXPECT_EQ(position, view->sample_count());
  }
}

TEST(BlockTable, CutsAShardInEvenParts) {
  IndexWriter writer;
  std::vector<std::uint64_t> bounds{0};
  for (int i = 0; i < 9000; ++i) bounds.push_back(bounds.back() + 1000);
  add_shard(writer, "s", bounds);
  const std::string bytes = writer.finish(summary());
  auto view = IndexView::parse(as_bytes(bytes));
  auto blocks = make_blocks(*view, 8 << 20);
  ASSERT_EQ(blocks->size(), 2U);
  EXPECT_EQ((*blocks)[0].sample_count, 4500U);
}

TEST(BlockTable, RefusesSizesOutOfRangeAndTooManyBlocks) {
  IndexWriter writer;
  add_shard(writer, "s", {0, 1 << 20, 2 << 20, 3 << 20});
  const std::string bytes = writer.finish(summary());
  auto view = IndexView::parse(as_bytes(bytes));
  EXPECT_EQ(make_blocks(*view, kSmallestBlockBytes - 1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(make_blocks(*view, kLargestBlockBytes + 1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(make_blocks(*view, 1 << 20, 2).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(make_blocks(*view, 1 << 20, 3).has_value());
}

struct Ingredients {
  std::string key = "k";
  std::string etag = "\"e\"";
  std::uint64_t sample_count = 10;
  std::uint64_t sample_bytes = 100;
  std::string encoding = "bytes";
  Format format = Format::kMds;
  std::uint64_t block_bytes = 1 << 20;
  IndexSource source{"index.json", "\"s\"", 5};
  std::string hashes = {};
  bool is_content = false;
};

std::string fingerprint(const Ingredients& in) {
  IndexWriter writer;
  ShardRecord shard;
  shard.sample_count = in.sample_count;
  shard.stored_bytes = shard.raw_bytes = 1000 + in.sample_bytes * 10;
  shard.bounds = writer.bounds().append(std::vector<std::uint64_t>{0, in.sample_bytes});
  shard.hashes = in.hashes;
  writer.add_object(in.key, in.etag, shard.stored_bytes);
  writer.add_shard(shard);
  const std::string bytes = writer.finish({.format = in.format,
                                           .columns = columns(in.encoding),
                                           .source = in.source,
                                           .block_bytes = in.block_bytes});
  auto view = IndexView::parse(as_bytes(bytes));
  EXPECT_TRUE(view.has_value());
  return !view ? "" : in.is_content ? content_fingerprint(*view) : view->fingerprint();
}

TEST(Fingerprint, OfTheContentKnowsDigestsAndNoVersions) {
  Ingredients in{.is_content = true};
  const std::string base = fingerprint(in);
  EXPECT_EQ(base.size(), 32U);
  Ingredients same = in;
  same.etag = "\"f\"";
  same.block_bytes = 1 << 22;
  same.source = {"elsewhere", "\"x\"", 6};
  EXPECT_EQ(fingerprint(same), base);
  std::vector<Ingredients> changes(6, in);
  changes[0].key = "k2";
  changes[1].sample_count = 11;
  changes[2].sample_bytes = 101;
  changes[3].encoding = "str";
  changes[4].format = Format::kWebDataset;
  changes[5].hashes = "xxh64=0123456789abcdef";
  for (const Ingredients& change : changes) EXPECT_NE(fingerprint(change), base);
}

TEST(Fingerprint, OfTheVersionsChangesWithTheDataAndNothingElse) {
  const std::string base = fingerprint({});
  EXPECT_EQ(base.size(), 32U);
  Ingredients other;
  other.block_bytes = 1 << 22;
  other.source = {"elsewhere", "\"x\"", 6};
  EXPECT_EQ(fingerprint(other), base);
  const Ingredients changes[] = {{.key = "k2"},        {.etag = "\"f\""},
                                 {.sample_count = 11}, {.sample_bytes = 101},
                                 {.encoding = "str"},  {.format = Format::kWebDataset}};
  for (const Ingredients& change : changes) EXPECT_NE(fingerprint(change), base);
  // Where one text ends and the next begins counts too.
  Ingredients shifted;
  shifted.key = "k\"";
  shifted.etag = "e\"";
  EXPECT_NE(fingerprint(shifted), base);
}

}  // namespace
}  // namespace headrace::detail
