#include "shard/formats/table/table_record.h"

#include <gtest/gtest.h>

#include "shard/formats/table/table_layout.h"

namespace headrace::detail {
namespace {

TableRecord example() {
  ParquetChunk chunk;
  chunk.begin_bytes = 1'000'000;
  chunk.length_bytes = 500;
  chunk.uncompressed_bytes = 900;
  chunk.value_count = 77;
  chunk.dictionary_bytes = 30;
  chunk.codec = 6;
  chunk.encodings = {0, 3, 8};
  TableRecord record;
  record.head = 3;
  record.first_row = std::uint64_t{1} << 40;
  record.row_groups.push_back({.row_count = 77, .chunks = {chunk, chunk}});
  record.messages = {{8, 100}, {108, 1}};
  return record;
}

TEST(TableRecord, ComesBack) {
  const auto record = parse_table_record(write_table_record(example()));
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ((*record).head, 3U);
  EXPECT_EQ((*record).first_row, std::uint64_t{1} << 40);
  ASSERT_EQ((*record).row_groups.size(), 1U);
  ASSERT_EQ((*record).row_groups[0].chunks.size(), 2U);
  const ParquetChunk& chunk = (*record).row_groups[0].chunks[1];
  EXPECT_EQ(chunk.begin_bytes, 1'000'000U);
  EXPECT_EQ(chunk.dictionary_bytes, 30U);
  EXPECT_EQ(chunk.encodings, (std::vector<std::uint8_t>{0, 3, 8}));
  ASSERT_EQ((*record).messages.size(), 2U);
  EXPECT_EQ((*record).messages[1].offset_bytes, 108U);
}

TEST(TableRecord, RefusesDamage) {
  const std::string good = write_table_record(example());
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(parse_table_record(good.substr(0, length)).has_value()) << length;
  EXPECT_FALSE(parse_table_record(good + "x").has_value());
  TableRecord record = example();
  record.messages[0].offset_bytes = ~std::uint64_t{0};
  EXPECT_FALSE(parse_table_record(write_table_record(record)).has_value());
}

TEST(FetchPlan, JoinsNeighboursAndSkipsGaps) {
  const std::uint64_t far = 10 * kMostGapBytes;
  const FetchPlan plan =
      plan_fetch(std::vector<TableRange>{{far, 10}, {100, 50}, {150, 0}, {160, 5}});
  ASSERT_EQ(plan.reads.size(), 2U);
  EXPECT_EQ(plan.reads[0].offset_bytes, 99U);
  EXPECT_EQ(plan.reads[0].length_bytes, 66U);
  EXPECT_EQ(plan.reads[1].offset_bytes, far);
  EXPECT_EQ(plan.reads[1].target_bytes, 66U);
  EXPECT_EQ(plan.targets, (std::vector<std::uint64_t>{66, 1, 0, 61}));
  EXPECT_EQ(plan.buffer_bytes, 76U);
}

TEST(FetchPlan, TakesOverlaps) {
  const FetchPlan plan = plan_fetch(std::vector<TableRange>{{100, 50}, {100, 200}, {120, 10}});
  ASSERT_EQ(plan.reads.size(), 1U);
  EXPECT_EQ(plan.buffer_bytes, 201U);
  EXPECT_EQ(plan.targets, (std::vector<std::uint64_t>{1, 1, 21}));
  EXPECT_EQ(plan_fetch(std::vector<TableRange>{{0, 5}}).buffer_bytes, 5U);
}

TEST(TableLayout, ReadsHivePartitions) {
  const std::string key = "year=2024/town=S%C3%A3o%20P/x=/part-0.parquet";
  EXPECT_EQ(partition_names(key), (std::vector<std::string>{"year", "town", "x"}));
  std::string value;
  EXPECT_TRUE(partition_value(key, "year", value));
  EXPECT_EQ(value, "2024");
  EXPECT_TRUE(partition_value(key, "town", value));
  EXPECT_EQ(value, "S\xc3\xa3o P");
  EXPECT_TRUE(partition_value(key, "x", value));
  EXPECT_EQ(value, "");
  EXPECT_FALSE(partition_value("a=__HIVE_DEFAULT_PARTITION__/p", "a", value));
  EXPECT_FALSE(partition_value(key, "month", value));
  EXPECT_TRUE(partition_value("a=%/p", "a", value));
  EXPECT_EQ(value, "%");
  EXPECT_TRUE(partition_names("a=b.parquet").empty());
}

TEST(TableLayout, RefusesDamage) {
  for (const char* text :
       {"", "{}", R"({"kind":"x","heads":[],"partitions":[]})",
        R"({"kind":"parquet","heads":[{}],"partitions":[]})",
        R"({"kind":"ipc","heads":[{"head":"0","spec":"","leaves":[]}],"partitions":[]})",
        R"({"kind":"ipc","heads":[{"head":"","spec":"","leaves":[0]}],"partitions":[]})",
        R"({"kind":"ipc","heads":[],"partitions":[1]})"}) {
    EXPECT_FALSE(parse_table_layout(text).has_value()) << text;
  }
  TableLayout layout;
  layout.kind = TableKind::kIpc;
  layout.heads.push_back(
      {.bytes = std::string("\0\xff", 2), .spec = "{\"a\"}", .chosen = {}, .leaves = {}});
  layout.partitions = {"p"};
  auto again = parse_table_layout(write_table_layout(layout));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->heads[0].bytes, layout.heads[0].bytes);
  EXPECT_EQ(again->heads[0].spec, layout.heads[0].spec);
  EXPECT_EQ(again->partitions, layout.partitions);
}

TEST(TableLayout, TellsFiltersApart) {
  TableLayout layout;
  const std::string plain = write_table_layout(layout);
  layout.where = "[[\"x\", \">\", 1]]";
  const std::string one = write_table_layout(layout);
  layout.where = "[[\"x\", \">\", 2]]";
  EXPECT_NE(one, plain);
  EXPECT_NE(write_table_layout(layout), one);
  EXPECT_TRUE(parse_table_layout(one).has_value());
}

}  // namespace
}  // namespace headrace::detail
