// Indexes that parse, but are not what the reader of their format can cut from.
#include <gtest/gtest.h>

#include <vector>

#include "shard/dataset/indexed_dataset.h"
#include "shard/index/block_table.h"

namespace headrace::detail {
namespace {

class HostileIndex : public ::testing::Test {
 protected:
  void add(Compression compression, std::uint32_t frame_count, std::uint64_t first_frame = 0) {
    ShardRecord shard;
    shard.sample_count = 3;
    shard.stored_bytes = shard.raw_bytes = 100;
    shard.first_object = writer_.object_count();
    shard.compression = compression;
    shard.has_bounds = compression == Compression::kNone;
    shard.frame_count = frame_count;
    shard.first_frame = first_frame;
    if (shard.has_bounds)
      shard.bounds = writer_.bounds().append(std::vector<std::uint64_t>{0, 10, 20, 100});
    writer_.add_object("a", "\"e\"", 100);
    writer_.add_shard(shard);
  }
  static std::vector<Column> columns(std::size_t count) {
    std::vector<Column> out(count);
    for (Column& column : out) column.encoding = "bytes";
    return out;
  }
  Result<std::shared_ptr<const Dataset>> open(Format format, std::size_t column_count,
                                              std::string layout = "") {
    DatasetParts parts;
    parts.bytes = IndexBytes(writer_.finish({.format = format,
                                             .columns = columns(column_count),
                                             .source = {"a", "\"e\"", 100},
                                             .block_bytes = 0,
                                             .layout = std::move(layout)}));
    writer_ = IndexWriter();
    HEADRACE_TRY_ASSIGN(parts.view, IndexView::parse(parts.bytes.bytes()));
    HEADRACE_TRY_ASSIGN(parts.blocks, make_blocks(parts.view, 0));
    return make_dataset(std::move(parts), {});
  }
  Code code(Format format, std::size_t column_count = 1, std::string layout = "") {
    auto dataset = open(format, column_count, std::move(layout));
    return dataset ? Code::kOk : dataset.error().code();
  }
  static std::vector<Frame> one_frame() { return {{0, 100, 0, 100, 0}}; }

  IndexWriter writer_;
};

TEST_F(HostileIndex, OfArrayRecordsHasChunks) {
  writer_.add_frames(one_frame());
  add(Compression::kOwn, 1);
  EXPECT_EQ(code(Format::kArrayRecord), Code::kOk);
  writer_.add_frames(one_frame());
  add(Compression::kOwn, 1);
  EXPECT_EQ(code(Format::kArrayRecord, 2), Code::kCorrupt);
  for (const Compression compression :
       {Compression::kNone, Compression::kZstd, Compression::kOwn}) {
    add(compression, 0, 1'000'000);
    EXPECT_EQ(code(Format::kArrayRecord), Code::kCorrupt);
  }
  writer_.add_frames(one_frame());
  add(Compression::kZstd, 1);
  EXPECT_EQ(code(Format::kArrayRecord), Code::kCorrupt);
}

TEST_F(HostileIndex, HasNoFrameOutOfRange) {
  writer_.add_frames(one_frame());
  add(Compression::kZstd, 1);
  const std::string bytes =
      writer_.finish({.format = Format::kMds, .columns = columns(1), .source = {}});
  auto view = IndexView::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(view.has_value()) << view.error().message();
  EXPECT_EQ(view->frame_of(view->shards()[0], 0).raw_bytes, 100U);
  EXPECT_EQ(view->frame_of(view->shards()[0], 1).raw_bytes, 0U);
  ShardRecord wild;
  wild.first_frame = ~std::uint64_t{0} / 2;
  EXPECT_EQ(view->frame_of(wild, 0).raw_bytes, 0U);
}

TEST_F(HostileIndex, OfATableIsDecoded) {
  const std::string layout = R"({"kind":"ipc","heads":[],"partitions":[]})";
  for (const Compression compression :
       {Compression::kNone, Compression::kZstd, Compression::kOwn}) {
    add(compression, 0);
    EXPECT_EQ(code(Format::kTable, 1, layout), Code::kCorrupt);
  }
  add(Compression::kUnpacked, 0);
  auto dataset = open(Format::kTable, 1, layout);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  std::vector<ColumnBytes> cells(1);
  EXPECT_EQ((*dataset)->cut({0, 0, 3, {}, nullptr}, 0, cells).code(), Code::kCorrupt);
}

TEST_F(HostileIndex, SharesNoFramesBetweenShards) {
  for (const std::uint64_t second : {0U, 1U}) {
    writer_.add_frames(one_frame());
    writer_.add_frames(one_frame());
    add(Compression::kOwn, 1, 0);
    add(Compression::kOwn, 1, second);
    EXPECT_EQ(code(Format::kArrayRecord), second == 0 ? Code::kCorrupt : Code::kOk);
  }
  writer_.add_frames(one_frame());
  writer_.add_frames(one_frame());
  add(Compression::kOwn, 1, 1);
  add(Compression::kOwn, 1, 0);
  EXPECT_EQ(code(Format::kArrayRecord), Code::kCorrupt);
}

TEST_F(HostileIndex, OfAnArrayHasValuesOfOneSize) {
  const auto code_of = [&](const std::vector<std::uint64_t>& bounds) {
    IndexWriter writer;
    ShardRecord shard;
    shard.sample_count = bounds.size() - 1;
    shard.stored_bytes = shard.raw_bytes = 100;
    shard.has_bounds = true;
    shard.bounds = writer.bounds().append(bounds);
    writer.add_object("a", "\"e\"", 100);
    writer.add_shard(shard);
    Column column;
    column.encoding = "bytes";
    column.fixed_size_bytes = 20;
    DatasetParts parts;
    parts.bytes =
        IndexBytes(writer.finish({.format = Format::kNumpy, .columns = {column}, .source = {}}));
    auto view = IndexView::parse(parts.bytes.bytes());
    EXPECT_TRUE(view.has_value());
    parts.view = *view;
    parts.blocks = *make_blocks(parts.view, 0);
    auto dataset = make_dataset(std::move(parts), {});
    return dataset ? Code::kOk : dataset.error().code();
  };
  EXPECT_EQ(code_of({0, 20, 40, 60, 80, 100}), Code::kOk);
  EXPECT_EQ(code_of({0, 20, 40, 70, 80, 100}), Code::kCorrupt);
  EXPECT_EQ(code_of({0, 25, 50, 75, 100}), Code::kCorrupt);
}

TEST_F(HostileIndex, OfLinesHasTheFieldsOfItsKind) {
  struct Case {
    std::size_t column_count;
    const char* layout;
    Code code;
  };
  const Case cases[] = {{1, R"({"lines":"text","fields":[]})", Code::kOk},
                        {1, R"({"lines":"json","fields":[["","json"]]})", Code::kOk},
                        {2, R"({"lines":"text","fields":[["a","int"]]})", Code::kCorrupt},
                        {0, R"({"lines":"json","fields":[]})", Code::kCorrupt},
                        {1, R"({"lines":"other","fields":[]})", Code::kCorrupt}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.layout);
    add(Compression::kNone, 0);
    EXPECT_EQ(code(Format::kText, c.column_count, c.layout), c.code);
  }
}

}  // namespace
}  // namespace headrace::detail
