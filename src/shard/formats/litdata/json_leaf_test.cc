#include "shard/formats/litdata/json_leaf.h"

#include <gtest/gtest.h>

#include <string>

#include "base/strings.h"

namespace headrace::detail {
namespace {

std::string text_of(std::string_view hex) {
  std::string leaf;
  EXPECT_TRUE(from_hex(hex, leaf)) << hex;
  ColumnBytes cell{.bytes = std::as_bytes(std::span(leaf)), .present = true};
  if (!make_json_cell(cell)) return "broken";
  std::string text(cell.size(), '?');
  cell.write_to(std::as_writable_bytes(std::span(text)));
  return text;
}

// The hex is what litdata 0.2.76's _nested_dumps() makes of the value.
TEST(JsonLeaf, GivesTheTextOfWhatLitdataWrites) {
  EXPECT_EQ(text_of("0102000000010000006104000000c3bc0a22"), "[\"a\",\"ü\\u000a\\\"\"]");
  EXPECT_EQ(text_of("02020000000100000000000000feffffffffffffff"), "[1,-2]");
  EXPECT_EQ(text_of("0303000000000000000000f03f9c7500883ce4377e000000000000f87f"),
            "[1.0,1e+300,NaN]");
  EXPECT_EQ(text_of("04020000000100"), "[true,false]");
  EXPECT_EQ(text_of("0501000000010000006b060200000002000000010000006101000000621201000000000000001"
                    "0110100000078130000000000000440"),
            R"({"k":[{"a":1,"b":null},{"a":"x","b":2.5}]})");
  EXPECT_EQ(text_of("0100000000"), "[]");
  EXPECT_EQ(text_of("0503000000010000006e0b010000007400050000005b312c325d0100000064050100000001000"
                    "000650a00"),
            R"({"n":null,"t":[1,2],"d":{"e":false}})");
  EXPECT_EQ(text_of("00070000005b312c2278225d"), R"([1,"x"])");
}

TEST(JsonLeaf, PassesOldJsonTextOn) { EXPECT_EQ(text_of("7b2261223a317d"), R"({"a":1})"); }

TEST(JsonLeaf, RefusesBrokenLeaves) {
  for (const char* hex : {"", "0c", "1f", "01", "0102000000", "01010000000500000061",
                          "02010000000100", "0701000000", "0b0b", "0a", "0501000000",
                          // Records without keys take no bytes: any number of rows.
                          "060000ffff00000000", "0601000000010000000100000061ff"}) {
    EXPECT_EQ(text_of(hex), "broken") << hex;
  }
}

TEST(JsonLeaf, BoundsNesting) {
  std::string hex;
  for (int i = 0; i < 100; ++i) hex += "05010000000100000061";
  EXPECT_EQ(text_of(hex + "0b"), "broken");
}

TEST(JsonLeaf, BoundsTextOfRecordsWithLongKeys) {
  // A key of 64 KiB and as many rows of one byte mean 4 GiB of text.
  std::string leaf("\6\0\0\1\0\1\0\0\0\0\0\1\0", 13);
  leaf += std::string(65536, 'k') + std::string(65536, '\x10');
  EXPECT_FALSE(json_leaf_text_bytes(std::as_bytes(std::span(leaf))).has_value());
}

}  // namespace
}  // namespace headrace::detail
