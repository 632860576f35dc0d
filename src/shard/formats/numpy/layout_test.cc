// The texts in an index that say where arrays of .npz lie: none that does not fit its index is
// taken.
#include <gtest/gtest.h>

#include <optional>

#include "shard/formats/numpy/packed_layout.h"
#include "shard/formats/numpy/row_layout.h"

namespace headrace::detail {
namespace {

/// Two objects of 100 bytes, each with three rows of two columns of 8 bytes.
class NpzLayout : public ::testing::Test {
 protected:
  NpzLayout() {
    IndexWriter writer;
    for (const char* key : {"a.npz", "b.npz"}) {
      ShardRecord shard;
      shard.sample_count = 3;
      shard.stored_bytes = shard.raw_bytes = 100;
      shard.first_object = writer.object_count();
      shard.bounds = writer.bounds().append(std::vector<std::uint64_t>{0, 16, 32, 48});
      writer.add_object(key, "\"e\"", 100);
      writer.add_shard(shard);
    }
    const auto column = [](const char* name) {
      return Column{
          .name = name, .encoding = "int", .dtype = "int64", .shape = {}, .fixed_size_bytes = 8};
    };
    IndexWriter::Summary summary;
    summary.format = Format::kNumpy;
    summary.columns = {column("x"), column("y")};
    bytes_ = writer.finish(summary);
    auto view = IndexView::parse(std::as_bytes(std::span(bytes_)));
    EXPECT_TRUE(view) << view.error().message();
    if (view) view_ = *std::move(view);
  }
  Code rows(const std::string& columns) {
    const auto layout = parse_row_layout("{\"columns\":" + columns + "}", *view_);
    return layout ? Code::kOk : layout.error().code();
  }
  Code packed(const std::string& members) {
    const auto layout = parse_packed_layout("{\"members\":" + members + "}", *view_);
    return layout ? Code::kOk : layout.error().code();
  }

  std::string bytes_;
  std::optional<IndexView> view_;
};

TEST_F(NpzLayout, OfRowsIsReadBack) {
  const RowLayout layout = {{0, 76}, {10, 40}};
  const auto read = parse_row_layout(format_row_layout(layout), *view_);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, layout);
}

TEST_F(NpzLayout, OfRowsThatDoesNotFitIsRefused) {
  ASSERT_EQ(rows("[[0,76],[10,40]]"), Code::kOk);
  for (const char* bad : {"{}", "[]", "[[0,76]]", "[[0,76],[10,40],[0,0]]", "[[0,76],[10]]",
                          "[[0,76,1],[10,40]]", "[[0,77],[10,40]]", "[[0,-1],[10,40]]",
                          "[[0,\"1\"],[10,40]]", "[0,[10,40]]", "[[0,76],[10,40]"})
    EXPECT_EQ(rows(bad), Code::kCorrupt) << bad;
}

TEST_F(NpzLayout, OfPackedMembersIsReadBack) {
  const PackedMember member{.stored_bytes = 60, .raw_bytes = 50, .header_bytes = 26, .crc32 = 7};
  PackedMember second = member;
  second.offset_bytes = 40;
  second.is_deflated = true;
  const std::string text = format_packed_layout({{member, second}, {second, member}});
  EXPECT_TRUE(is_packed_layout(text));
  const auto read = parse_packed_layout(text, *view_);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(format_packed_layout(*read), text);
}

TEST_F(NpzLayout, OfPackedMembersThatDoesNotFitIsRefused) {
  const std::string good = "[0,60,50,26,7,0]", two = "[" + good + "," + good + "]";
  ASSERT_EQ(packed("[" + two + "," + two + "]"), Code::kOk);
  for (const char* bad : {"[41,60,50,26,7,0]", "[0,101,50,26,7,0]", "[0,60,50,25,7,0]",
                          "[0,60,49,26,7,0]", "[0,60,50,26,7]", "[0,60,50,26,7,0,0]", "7"})
    EXPECT_EQ(packed("[" + two + ",[" + good + "," + bad + "]]"), Code::kCorrupt) << bad;
  EXPECT_EQ(packed("[" + two + "]"), Code::kCorrupt);
  EXPECT_EQ(packed("[" + two + "," + two + "," + two + "]"), Code::kCorrupt);
  EXPECT_EQ(packed("[" + two + ",[" + good + "]]"), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace::detail
