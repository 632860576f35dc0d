// Separated values through their builder, and records in pieces of any size.
#include <gtest/gtest.h>

#include "base/random.h"
#include "shard/formats/csv/csv_driver.h"
#include "shard/formats/csv/csv_layout.h"
#include "shard/formats/csv/csv_scan.h"
#include "shard/formats/csv/csv_text.h"
#include "shard/formats/text/text_driver.h"
#include "shard/testing/build_dataset.h"
#include "shard/testing/deflate.h"
#include "shard/testing/drive_scan.h"
#include "shard/testing/read_dataset.h"

namespace headrace::detail {
namespace {

using testing::FakeStore;
using Row = std::vector<std::string>;

class CsvTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Dataset>> open(std::vector<std::string> columns = {}) {
    DatasetOptions options;
    options.columns = std::move(columns);
    return testing::build_dataset(store_, *pool_, options, build_csv_index, make_text_dataset);
  }
  std::vector<Row> rows() {
    std::vector<Row> out;
    auto dataset = open();
    EXPECT_TRUE(dataset.has_value()) << dataset.error().message();
    if (!dataset) return out;
    auto samples = testing::read_all(store_, *pool_, **dataset);
    EXPECT_TRUE(samples.has_value()) << samples.error().message();
    if (!samples) return out;
    for (const testing::Sample& sample : *samples) {
      Row& row = out.emplace_back();
      for (const testing::Value& value : sample) {
        EXPECT_TRUE(value.present);
        row.push_back(value.bytes);
      }
    }
    return out;
  }
  Status refusal() {
    auto dataset = open();
    EXPECT_FALSE(dataset.has_value());
    return dataset ? Status() : std::move(dataset).error();
  }

  FakeStore store_;
  std::unique_ptr<SlabPool> pool_ = testing::make_pool();
};

TEST_F(CsvTest, ReadsQuotesAndLineEndsAsRfc4180SaysThem) {
  store_.set(
      "a.csv",
      "\xef\xbb\xbf\"na\"\"me\",text\r\n1,\"a, \"\"b\"\"\r\nc\"\r\n\r\n2,\r\"\",x\"y\n\n\"\",\"\"");
  EXPECT_EQ(rows(), (std::vector<Row>{{"1", "a, \"b\"\r\nc"}, {"2", ""}, {"", "x\"y"}, {"", ""}}));
  auto dataset = open();
  EXPECT_EQ((*dataset)->format(), Format::kCsv);
  EXPECT_EQ((*dataset)->columns()[0].name, "na\"me");
  EXPECT_EQ((*dataset)->columns()[1].encoding, "str");
}

TEST_F(CsvTest, FilesOfOneHeaderAreOneDataset) {
  store_.set("a.tsv", "x\ty\n1\t2\n");
  store_.set("b.tsv", "");
  store_.set("c.tsv", "x\ty");
  store_.set("d.tsv.gz", testing::deflate_zlib("x\ty\n3\t4\n", 31));
  EXPECT_EQ(rows(), (std::vector<Row>{{"1", "2"}, {"3", "4"}}));
  store_.set("e.tsv", "x\tz\n1\t2\n");
  const Status status = refusal();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("e.tsv: its header is x,z, that of a.tsv is x,y"),
            std::string_view::npos)
      << status.message();
}

TEST_F(CsvTest, ChoosesColumnsInTheOrderAskedFor) {
  store_.set("a.csv", "a,b,,d\n1,\"\"\"2\",3,4\n");
  auto dataset = open({"d", "unnamed_2", "b"});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  auto samples = testing::read_all(store_, *pool_, **dataset);
  ASSERT_TRUE(samples.has_value());
  EXPECT_EQ((*samples)[0][0].bytes, "4");
  EXPECT_EQ((*samples)[0][1].bytes, "3");
  EXPECT_EQ((*samples)[0][2].bytes, "\"2");
  EXPECT_EQ(open({"z"}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(open({"a", "a"}).error().code(), Code::kInvalidArgument);
}

TEST_F(CsvTest, SaysWhereAFileIsBroken) {
  struct Case {
    const char* text;
    Code code;
    const char* words;
  };
  const Case cases[] = {
      {"a,b\n1,2\n3\n", Code::kCorrupt, "at byte 8: csv: record 1: 1 fields, the header has 2"},
      {"a,b\n1,2,3\n", Code::kCorrupt, "record 0: 3 fields"},
      {"a,b\n1,\"2\" \n", Code::kCorrupt, "field 2 goes on behind its closing quote"},
      {"a,b\n1,\"2\n3,4\n", Code::kCorrupt, "the file ends inside the quotes of field 2"},
      {"a,a\n1,2\n", Code::kUnsupported, "'a' twice"},
      {"\xff,a\n1,2\n", Code::kUnsupported, "not UTF-8"},
      {"\n\n", Code::kCorrupt, "no header"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    store_.set("a.csv", c.text);
    const Status status = refusal();
    EXPECT_EQ(status.code(), c.code);
    EXPECT_NE(status.message().find(c.words), std::string_view::npos) << status.message();
  }
  store_.set("a.csv", "a\n\xff\n");
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value());
  EXPECT_EQ(testing::read_all(store_, *pool_, **dataset).error().code(), Code::kCorrupt);
}

TEST_F(CsvTest, RefusesFilesSeparatedByDifferentCharacters) {
  store_.set("a.csv", "a\n1\n");
  store_.set("b.tsv", "a\n1\n");
  EXPECT_EQ(refusal().code(), Code::kInvalidArgument);
}

// The writer of RFC 4180 is three lines: what it writes is what is read.
std::string written(const std::vector<Row>& rows, std::string_view line_end) {
  std::string out;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::string quoted;
      for (const char c : row[i]) quoted += c == '"' ? "\"\"" : std::string(1, c);
      const bool needs_quotes = row[i].find_first_of(",\"\r\n") != std::string::npos ||
                                (row[i].empty() && row.size() == 1);
      out += (i == 0 ? "" : ",") + (needs_quotes ? "\"" + quoted + "\"" : row[i]);
    }
    out += line_end;
  }
  return out;
}

TEST(CsvScan, FindsTheSameRecordsInPiecesOfAnySize) {
  Random random(17);
  for (int round = 0; round < 200; ++round) {
    const std::size_t width = 1 + random.below(4);
    std::vector<Row> rows(2 + random.below(6));
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t c = 0; c < width; ++c) {
        std::string& value =
            rows[r].emplace_back(r == 0 ? std::string(1, static_cast<char>('a' + c)) : "");
        constexpr std::string_view kAlphabet = "ab,\"\r\n";
        for (std::size_t n = r == 0 ? 0 : random.below(6); n > 0; --n)
          value += kAlphabet[random.below(kAlphabet.size())];
      }
    }
    const char* ends[] = {"\n", "\r\n", "\r"};
    const std::string text = written(rows, ends[random.below(3)]);
    for (const std::uint64_t piece : {1U, 2U, 5U, 1000U}) {
      CsvScan scan(',');
      const Status status = testing::drive_scan(scan, std::as_bytes(std::span(text)), piece);
      ASSERT_TRUE(status.ok()) << status.message() << text;
      const FileSamples samples = scan.take();
      ASSERT_EQ(samples.sample_count(), rows.size() - 1) << text;
      EXPECT_EQ(*header_from_text(samples.facts), rows[0]);
      EXPECT_EQ(samples.bounds.back(), text.size());
      for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
        const std::string_view record = std::string_view(text).substr(
            samples.bounds[i], samples.bounds[i + 1] - samples.bounds[i]);
        CsvText fields(trim_csv_record(record), ',');
        Row found;
        CsvField field;
        while (fields.take(field)) {
          std::string& value = found.emplace_back(field.value_bytes(), '\0');
          field.write_to(value);
        }
        EXPECT_FALSE(fields.is_broken());
        EXPECT_EQ(found, rows[i + 1]);
      }
    }
  }
}

TEST(CsvLayout, TellsTheDelimiterByTheName) {
  EXPECT_EQ(csv_delimiter_of("a/b.csv"), ',');
  EXPECT_EQ(csv_delimiter_of("b.tsv.zst"), '\t');
  EXPECT_EQ(csv_delimiter_of("b.tab"), '\t');
  EXPECT_EQ(csv_delimiter_of("b.txt"), std::nullopt);
  EXPECT_EQ(csv_delimiter_of("b.csv.zst.gz"), std::nullopt) << "compressed once is what is read";
}

TEST(CsvLayout, RefusesWhatItDidNotWrite) {
  auto layout = make_csv_layout('\t', {"a", "b"}, {"b"});
  ASSERT_TRUE(layout.has_value());
  const std::string json = layout_to_json(*layout);
  EXPECT_TRUE(is_csv_layout(json));
  EXPECT_EQ(parse_csv_layout(json)->columns, layout->columns);
  for (const char* bad : {R"({"columns":[2],"delimiter":",","header":["a"]})", "{\"columns\":[]}",
                          R"({"columns":[0],"delimiter":"","header":["a"]})"})
    EXPECT_EQ(parse_csv_layout(bad).error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace::detail
