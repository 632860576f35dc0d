#include "shard/formats/mds/mds_lines.h"

#include <gtest/gtest.h>

namespace headrace::detail {
namespace {

std::vector<Column> columns(const std::vector<std::string>& names) {
  std::vector<Column> out;
  for (const std::string& name : names)
    out.push_back({.name = name, .encoding = "str", .dtype = {}, .shape = {}});
  return out;
}

// Values joined by '|', or the code of the error.
std::string cut(const MdsSplit& split, const std::vector<std::string>& names,
                const std::string& line) {
  const MdsLineCutter cutter(split, columns(names));
  std::vector<ColumnBytes> cells(names.size());
  const Status status = cutter.cut(std::as_bytes(std::span(line)), cells);
  if (!status.ok()) return status.code() == Code::kCorrupt ? "corrupt" : "other";
  std::string out;
  for (const ColumnBytes& cell : cells) {
    std::string value(cell.size(), '\0');
    cell.write_to(std::as_writable_bytes(std::span(value)));
    out += value + "|";
  }
  return out;
}

MdsSplit xsv(const std::string& separator, const std::string& newline = "\n") {
  return {MdsSplit::Kind::kXsv, separator, newline};
}
const MdsSplit kJson{MdsSplit::Kind::kJson, "", "\n"};

TEST(MdsLines, CutsAtTheSeparatorWithoutQuotes) {
  EXPECT_EQ(cut(xsv(","), {"a", "b", "c"}, "1,\"x,2.5\n"), "1|\"x|2.5|");
  EXPECT_EQ(cut(xsv("||", "\r\n"), {"a", "b"}, "1|2||\r\n"), "1|2||");
  EXPECT_EQ(cut(xsv(","), {"a"}, "\n"), "|");
  EXPECT_EQ(cut(xsv(","), {"a"}, "no newline"), "no newline|");
  EXPECT_EQ(cut(xsv(","), {"a", "b"}, "1\n"), "corrupt");
  EXPECT_EQ(cut(xsv(","), {"a", "b"}, "1,2,3\n"), "corrupt");
  EXPECT_EQ(cut(xsv(","), {"a", "b"}, "1,2,\n"), "corrupt");
}

TEST(MdsLines, FindsFieldsOfAnObject) {
  EXPECT_EQ(cut(kJson, {"a", "b"}, "{\"b\": -1e-9, \"other\": [1, {\"a\": 2}], \"a\": \"x\"}\n"),
            "x|-1e-9|");
  EXPECT_EQ(cut(kJson, {"a"}, "{\"a\": \"t\\tq\\\"u\\u00e9\\ud83d\\ude42\"}"),
            "t\tq\"u\xc3\xa9\xf0\x9f\x99\x82|");
  EXPECT_EQ(cut(kJson, {"a\"b"}, "{\"a\\\"b\": NaN}"), "NaN|");
  for (const char* line : {"", "[]", "{\"a\": 1", "{\"a\" 1}", "{\"a\": 1}x", "{\"b\": 1}", "{}",
                           "{\"a\": \"\\x\"}", "{\"a\": 1,}", "{\"a\": \"x}"}) {
    EXPECT_EQ(cut(kJson, {"a"}, line), "corrupt") << line;
  }
}

}  // namespace
}  // namespace headrace::detail
