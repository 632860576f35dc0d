// Lines of text and of JSON, through their builder; the reading of JSON against nlohmann-json.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/endian.h"
#include "base/random.h"
#include "shard/codec/json_text.h"
#include "shard/formats/text/array_scan.h"
#include "shard/formats/text/line_cutter.h"
#include "shard/formats/text/line_scan.h"
#include "shard/formats/text/text_driver.h"
#include "shard/testing/build_dataset.h"
#include "shard/testing/deflate.h"
#include "shard/testing/drive_scan.h"
#include "shard/testing/read_dataset.h"

namespace headrace::detail {
namespace {

using nlohmann::json;
using testing::FakeStore;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class TextTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const Dataset>> open(std::vector<std::string> columns = {}) {
    DatasetOptions options;
    options.columns = std::move(columns);
    return testing::build_dataset(store_, *pool_, options, build_text_index, make_text_dataset);
  }
  // Values of the first column of all samples.
  std::vector<std::string> first_column() {
    std::vector<std::string> values;
    auto dataset = open();
    EXPECT_TRUE(dataset.has_value()) << dataset.error().message();
    if (!dataset) return values;
    auto samples = testing::read_all(store_, *pool_, **dataset);
    EXPECT_TRUE(samples.has_value()) << samples.error().message();
    if (!samples) return values;
    for (const auto& sample : *samples) values.push_back(sample[0].bytes);
    return values;
  }
  FakeStore store_;
  std::unique_ptr<SlabPool> pool_ = testing::make_pool();
};

using Values = std::vector<std::string>;

TEST_F(TextTest, EveryLineOfTextIsASample) {
  store_.set("a.txt", "one\ntwo\r\n\nlast");
  store_.set("b.txt", "");
  store_.set("c.txt", "\n");
  EXPECT_EQ(first_column(), (Values{"one", "two", "", "last", ""}));
}

TEST_F(TextTest, ReadsCompressedFilesOfSeveralMembers) {
  store_.set("a.gz",
             testing::deflate_zlib("one\ntw", 31) + testing::deflate_zlib("o\nthree\n", 31));
  EXPECT_EQ(first_column(), (Values{"one", "two", "three"}));
}

TEST_F(TextTest, FilesWaitWhileOthersAreInflated) {
  pool_ = testing::make_pool(4 << 20);
  std::mt19937_64 random(1);
  Values expected{"plain"};
  store_.set("00", "plain\n");
  // Each takes several reads, so that more are begun than may be inflated at once.
  for (int file = 1; file < 20; ++file) {
    std::string lines;
    for (int i = 0; i < 20'000; ++i) {
      expected.push_back(fmt::format("{:016x}", random()));
      lines += expected.back() + "\n";
    }
    store_.set(fmt::format("{:02}", file), testing::deflate_zlib(lines, 31));
  }
  EXPECT_EQ(first_column(), expected);
}

TEST_F(TextTest, FewSamplesFitWhereThereIsLittleMemory) {
  pool_ = testing::make_pool(4 << 20);
  std::string lines;
  for (int i = 0; i < 200'000; ++i) lines += "x\n";
  store_.set("a.txt.gz", testing::deflate_zlib(lines, 31));
  const auto bomb = open();
  ASSERT_FALSE(bomb.has_value());
  EXPECT_EQ(bomb.error().code(), Code::kExhausted);
  for (const char* part : {"a.txt.gz", "memory="})
    EXPECT_NE(bomb.error().message().find(part), std::string::npos) << bomb.error().message();
  // Stored as it is, the file is larger than what is kept of it.
  store_.shared().objects.clear();
  store_.set("a.txt", lines);
  EXPECT_TRUE(open().has_value());
}

TEST_F(TextTest, BlankLinesOfJsonAreNoSamples) {
  store_.set("a.jsonl", "\n \n{\"a\": \"x\"}\n\n\t\r\n{\"a\": \"y\"}\n\n");
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->sample_count(), 2U);
  EXPECT_EQ(first_column(), (Values{"x", "y"}));
  auto whole = open({"json"});
  auto samples = testing::read_all(store_, *pool_, **whole);
  ASSERT_TRUE(samples.has_value());
  EXPECT_EQ((*samples)[0][0].bytes, "{\"a\": \"x\"}");
}

TEST_F(TextTest, FieldsBecomeColumnsOfTheirKinds) {
  store_.set("a", R"({"s": "a\n\u00e9\ud83d\ude00", "i": -7, "f": 1, "b": true, "n": {"x": [1]}})"
                  "\n"
                  R"({"f": 2.5, "s": "plain", "b": null, "late": 1, "n": "}\"]"})"
                  "\n");
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  std::string names;
  for (const Column& column : (*dataset)->columns())
    names += column.name + ":" + column.encoding + " ";
  EXPECT_EQ(names, "b:bool f:float64 i:int64 late:int64 n:json s:str ");
  auto samples = testing::read_all(store_, *pool_, **dataset);
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  const auto& first = (*samples)[0];
  EXPECT_EQ(first[0].bytes, std::string(1, '\1'));
  EXPECT_EQ(load_le<std::int64_t>(bytes_of(first[2].bytes).data()), -7);
  EXPECT_FALSE(first[3].present);
  EXPECT_EQ(first[4].bytes, R"({"x": [1]})");
  EXPECT_EQ(first[5].bytes, "a\n\xc3\xa9\xf0\x9f\x98\x80");
  const auto& second = (*samples)[1];
  EXPECT_FALSE(second[0].present);
  double value = 0;
  std::memcpy(&value, second[1].bytes.data(), sizeof(value));
  EXPECT_EQ(value, 2.5);
  EXPECT_FALSE(second[2].present);
  EXPECT_EQ(second[4].bytes, R"("}\"]")");
}

TEST_F(TextTest, SaysWhichColumnsThereAre) {
  store_.set("a.jsonl", "{\"a\": 1}\n");
  auto dataset = open({"b"});
  ASSERT_FALSE(dataset.has_value());
  EXPECT_EQ(dataset.error().code(), Code::kInvalidArgument);
  EXPECT_NE(dataset.error().message().find("there are: a, json"), std::string::npos);
}

TEST_F(TextTest, ReportsAValueThatIsNotAsTheFirstLinesHadIt) {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "{\"a\": 1}\n";
  for (const char* odd : {"{\"a\": \"x\"}", "{\"a\": 1.5}", "[1]", "{\"a\": 1", "{\"a\" 1}",
                          "{\"a\": 1} 2", "{\"a\": 1,}", "{\"a\": }", "{\"a\": 1}}"}) {
    SCOPED_TRACE(odd);
    store_.set("a.jsonl", lines + odd + "\n");
    auto dataset = open();
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    auto samples = testing::read_all(store_, *pool_, **dataset);
    ASSERT_FALSE(samples.has_value());
    EXPECT_EQ(samples.error().code(), Code::kCorrupt);
    EXPECT_NE(samples.error().message().find("sample 200"), std::string::npos)
        << samples.error().message();
  }
}

TEST_F(TextTest, LinesThatAreNoObjectsAreOneColumn) {
  store_.set("a.jsonl", "[1, 2]\n\"x\"\n");
  EXPECT_EQ(first_column(), (Values{"[1, 2]", "\"x\""}));
}

TEST_F(TextTest, TheFirstLineDecidesWhetherLinesAreObjects) {
  store_.set("a.jsonl", "[1, 2]\n{\"a\": 1}\n{\"a\"\n");
  store_.set("b.jsonl", "{\"a\": 2}\n");
  EXPECT_EQ(first_column(), (Values{"[1, 2]", "{\"a\": 1}", "{\"a\"", "{\"a\": 2}"}));
}

TEST_F(TextTest, ALineThatIsNoObjectAmongObjectsIsNamed) {
  const std::string right = "{\"a\": 1}\n";
  for (const std::string& odd :
       {std::string("{\"a\": \"cut"), std::string("[1]\n"), std::string("{\"a\": 01}\n"),
        std::string("{\"a\": 1}\0\n", 10), std::string("{\"a\": \"\xff\"}\n"),
        std::string("{\"\xff\": 1}\n"), "{\"a\": 1} " + right,
        "{\"a\":" + std::string(65, '[') + std::string(65, ']') + "}\n"}) {
    SCOPED_TRACE(odd);
    store_.set("a.jsonl", right);
    store_.set("b.jsonl", right + "\n" + odd);
    auto dataset = open();
    ASSERT_FALSE(dataset.has_value());
    EXPECT_EQ(dataset.error().code(), Code::kCorrupt);
    const std::string message(dataset.error().message());
    EXPECT_NE(message.find("b.jsonl: line 3 "), std::string::npos) << message;
    auto whole = open({"json"});
    ASSERT_TRUE(whole.has_value()) << whole.error().message();
    EXPECT_EQ((*whole)->sample_count(), 3U);
  }
}

TEST_F(TextTest, AFileThatIsNoTextAmongObjectsIsNamed) {
  store_.set("a.jsonl.gz", testing::deflate_zlib("{\"a\": 1}\n", 31));
  store_.set("b.jsonl.gz", testing::deflate_zlib(std::string("\x80\0\x01\n\xff", 5), 31));
  auto dataset = open();
  ASSERT_FALSE(dataset.has_value());
  const std::string message(dataset.error().message());
  EXPECT_NE(message.find("b.jsonl.gz: line 1 "), std::string::npos) << message;
}

TEST_F(TextTest, AByteOrderMarkIsPassedOver) {
  for (const char* front : {"\xef\xbb\xbf", "\n\xef\xbb\xbf", "\xef\xbb\xbf "}) {
    store_.set("a.jsonl", std::string(front) + "{\"a\": \"x\"}\n{\"a\": \"y\"}\n");
    store_.set("b.jsonl", std::string(front) + "{\"a\": \"z\"}");
    EXPECT_EQ(first_column(), (Values{"x", "y", "z"}));
  }
}

TEST_F(TextTest, TheFirstLineOfTheFirstFileMayBeCutOff) {
  store_.set("a.jsonl", "{\"a\": \"cut");
  store_.set("b.jsonl", "{\"a\": 1}\n");
  auto dataset = open();
  ASSERT_FALSE(dataset.has_value());
  const std::string message(dataset.error().message());
  EXPECT_NE(message.find("a.jsonl: line 1 "), std::string::npos) << message;
}

// Each line is one that others write, and costs no other column.
TEST_F(TextTest, ALineThatCanBeCutMakesColumns) {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  for (const std::string& value : {std::string("NaN"), std::string("Infinity"),
                                   std::string("-Infinity"), std::string("36893488147419103232"),
                                   std::string("1e400"), deep, std::string("\"\\ud83d\"")}) {
    SCOPED_TRACE(value);
    store_.set("a.jsonl", "{\"a\": " + value + ", \"b\": 1}\n");
    auto dataset = open();
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    ASSERT_EQ((*dataset)->columns().size(), 2U);
    const bool is_float = value.ends_with("NaN") || value.ends_with("Infinity");
    const bool is_text = value.starts_with('"');
    EXPECT_EQ((*dataset)->columns()[0].encoding, is_float ? "float64" : is_text ? "str" : "json");
    auto samples = testing::read_all(store_, *pool_, **dataset);
    ASSERT_TRUE(samples.has_value()) << samples.error().message();
    const std::string& found = (*samples)[0][0].bytes;
    EXPECT_EQ(found, is_float ? found : is_text ? "\xef\xbf\xbd" : value);
  }
}

TEST_F(TextTest, FloatsMayBeNoNumbers) {
  store_.set("a.jsonl", "{\"a\": 1}\n{\"a\": NaN}\n{\"a\": -Infinity}\n{\"a\": Infinity}\n");
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  auto samples = testing::read_all(store_, *pool_, **dataset);
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  const auto value = [&](std::size_t i) {
    double number = 0;
    std::memcpy(&number, (*samples)[i][0].bytes.data(), sizeof(number));
    return number;
  };
  EXPECT_EQ(value(0), 1);
  EXPECT_TRUE(std::isnan(value(1)));
  EXPECT_EQ(value(2), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(value(3), std::numeric_limits<double>::infinity());
}

TEST(LineScan, FindsTheSameLinesWhateverThePieces) {
  Random random(3);
  for (const TextKind kind : {TextKind::kText, TextKind::kJson}) {
    std::string text;
    for (int i = 0; i < 300; ++i) {
      const std::uint64_t shape = random.below(4);
      if (shape == 0) text += "  \r";
      if (shape > 1) text += "{\"k\": \"" + std::string(random.below(200), 'v') + "\"}";
      text += "\n";
    }
    LineScan whole(kind, true);
    ASSERT_TRUE(testing::drive_scan(whole, bytes_of(text), text.size()).ok());
    const FileSamples expected = whole.take();
    for (const std::uint64_t piece : {1U, 7U, 100U, 5000U}) {
      LineScan scan(kind, true);
      ASSERT_TRUE(testing::drive_scan(scan, bytes_of(text), piece).ok());
      const FileSamples found = scan.take();
      EXPECT_EQ(found.bounds, expected.bounds);
      EXPECT_EQ(found.facts, expected.facts);
    }
  }
}

TEST(JsonText, ReadsStringsAsNlohmannDoes) {
  Random random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string value;
    for (std::uint64_t i = random.below(12); i > 0; --i) {
      const char* parts[] = {
          "\"", "\\", "/", "\n", "\t", "\x01", "a", "\xc3\xa9", "\xf0\x9f\x98\x80", "{", "]"};
      value += parts[random.below(std::size(parts))];
    }
    const std::string text = json(value).dump(-1, ' ', random.below(2) == 0);
    JsonText reader(text);
    std::string_view inner;
    ASSERT_TRUE(reader.take_string(inner)) << text;
    const auto length = unescaped_bytes(inner);
    ASSERT_TRUE(length.has_value()) << text;
    std::string out(*length, '\0');
    unescape(inner, std::as_writable_bytes(std::span(out)));
    EXPECT_EQ(out, value) << text;
  }
  std::string lone(3, '\0');
  ASSERT_EQ(unescaped_bytes("\\ud800"), 3U);
  unescape("\\ud800", std::as_writable_bytes(std::span(lone)));
  EXPECT_EQ(lone, "\xef\xbf\xbd");
  EXPECT_FALSE(unescaped_bytes("\\x").has_value());
  EXPECT_FALSE(unescaped_bytes("\\u12g4").has_value());
  EXPECT_FALSE(unescaped_bytes("\\").has_value());
}

TEST(TextLayout, SurvivesItsJson) {
  TextFields seen;
  ASSERT_TRUE(seen.add(R"({"a": 1, "b": "x", "": 2})", 1));
  auto layout = make_text_layout(TextKind::kJson, seen, {"b", "json"});
  ASSERT_TRUE(layout.has_value());
  auto again = parse_text_layout(layout_to_json(*layout));
  ASSERT_TRUE(again.has_value());
  ASSERT_EQ(again->fields.size(), 2U);
  EXPECT_EQ(again->fields[0].name, "b");
  EXPECT_EQ(again->fields[0].kind, FieldKind::kString);
  EXPECT_EQ(again->fields[1].name, "");
  EXPECT_EQ(parse_text_layout("{}").error().code(), Code::kCorrupt);
  EXPECT_EQ(TextFields::from_text("[]").error().code(), Code::kCorrupt);
}

TEST(LooksLikeJsonLines, AsksForAnObject) {
  for (const char* yes : {"{\"a\": 1}\n", "\n {\"a\": {\"b\": [1", "{}\n", "\xef\xbb\xbf{\"a\":"})
    EXPECT_TRUE(looks_like_json_lines(bytes_of(yes))) << yes;
  for (const char* no : {"", "text", "{a}", "{ x", "[1]\n", "{\"a\": 1} x\n", "{\"a\"\n"})
    EXPECT_FALSE(looks_like_json_lines(bytes_of(no))) << no;
}

TEST(LooksLikeJsonArray, AsksForAnObjectInIt) {
  for (const char* yes :
       {"[{\"a\": 1}]", "\n [\n {\"a\": {\"b\": [1", "[{}", "\xef\xbb\xbf[{\"a\":"})
    EXPECT_TRUE(looks_like_json_array(bytes_of(yes))) << yes;
  for (const char* no : {"", "[", "[]", "[1]", "[[{", "{\"a\": [{", "[{a}", "[{\"a\"}", "text"})
    EXPECT_FALSE(looks_like_json_array(bytes_of(no))) << no;
}

TEST(ArrayScan, FindsTheElementsHoweverTheBytesCome) {
  const std::string file =
      "\xef\xbb\xbf [ {\"a\": \"]},[\\\"\"} ,\n{\"a\": [1, {\"b\": 2}]},{},1 , \"x,\" ]\n";
  const std::vector<std::string> expected = {"{\"a\": \"]},[\\\"\"}", "{\"a\": [1, {\"b\": 2}]}",
                                             "{}", "1", "\"x,\""};
  for (std::uint64_t piece = 1; piece <= file.size(); ++piece) {
    ArrayScan scan(true);
    ASSERT_TRUE(testing::drive_scan(scan, bytes_of(file), piece).ok());
    const FileSamples found = scan.take();
    ASSERT_TRUE(found.has_gaps);
    ASSERT_EQ(found.sample_count(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::uint64_t begin = found.bounds[2 * i];
      EXPECT_EQ(file.substr(begin, found.bounds[2 * i + 1] - begin), expected[i]);
    }
  }
}

TEST(ArrayScan, RefusesWhatIsNoWholeArray) {
  for (const char* bad :
       {"[", "[{}", "[{},", "[{},]", "[,{}]", "[{}{}]", "[{}] x", "{}", "[{\"a]", "[[1]"}) {
    ArrayScan scan(true);
    EXPECT_EQ(testing::drive_scan(scan, bytes_of(bad), 3).code(), Code::kCorrupt) << bad;
  }
  ArrayScan empty(true);
  EXPECT_TRUE(testing::drive_scan(empty, bytes_of("[ ]"), 1).ok());
  EXPECT_EQ(empty.take().sample_count(), 0U);
}

TEST_F(TextTest, EmptyArraysSayNothingOfTheOtherFiles) {
  store_.set("a.json", "\xef\xbb\xbf [ ]\n");
  store_.set("b.json", "");
  EXPECT_EQ(first_column(), Values{});
  store_.set("c.json", R"([{"a": "x"}, {"a": "y"}])");
  EXPECT_EQ(first_column(), (Values{"x", "y"}));
}

TEST_F(TextTest, ArraysOfOtherThanObjectsAreNoLines) {
  store_.set("a.json", "[1, 2]");
  const auto dataset = open();
  ASSERT_FALSE(dataset.has_value());
  EXPECT_EQ(dataset.error().code(), Code::kInvalidArgument);
  EXPECT_NE(dataset.error().message().find("a.json"), std::string::npos);
  store_.shared().objects.clear();
  store_.set("a.txt", "[1, 2]");
  EXPECT_EQ(first_column(), Values{"[1, 2]"});
  store_.shared().objects.clear();
  store_.set("a.json", "[");
  EXPECT_EQ(open().error().code(), Code::kCorrupt);
}

TEST_F(TextTest, NamesBothFilesOfAMixtureOfArraysAndObjects) {
  const std::string array = R"([{"a": 1}])", lines = "{\"a\": 1}\n{\"a\": 2}\n";
  const std::string config = "{\n  \"a\": 1\n}\n";
  const std::pair<std::string, std::string> mixtures[] = {{array, lines}, {array, config},
                                                          {lines, array}, {config, array},
                                                          {lines, "[]"},  {"[]", lines}};
  for (const auto& [first, second] : mixtures) {
    SCOPED_TRACE(first + " and " + second);
    store_.set("a.json", first);
    store_.set("b.json", second);
    const auto dataset = open();
    ASSERT_FALSE(dataset.has_value());
    EXPECT_EQ(dataset.error().code(), Code::kInvalidArgument);
    for (const char* part : {"a.json", "b.json"})
      EXPECT_NE(dataset.error().message().find(part), std::string::npos)
          << dataset.error().message();
  }
  // What begins as neither is damaged.
  store_.set("a.json", array);
  store_.set("b.json", "x");
  EXPECT_EQ(open().error().code(), Code::kCorrupt);
}

TEST_F(TextTest, ChecksWhatItTakes) {
  struct Case {
    const char* line;
    bool is_right;
  };
  const Case cases[] = {
      {R"({"n": 1.5, "s": "x"})", true},      {R"({"n": -0.5e+3, "s": ""})", true},
      {R"({"n": 0, "s": "x"})", true},        {R"({"n": 007, "s": "x"})", false},
      {R"({"n": 1., "s": "x"})", false},      {R"({"n": .5, "s": "x"})", false},
      {R"({"n": 1e, "s": "x"})", false},      {R"({"n": -, "s": "x"})", false},
      {R"({"n": +1, "s": "x"})", false},      {R"({"n": inf, "s": "x"})", false},
      {R"({"n": nan, "s": "x"})", false},     {R"({"n": -NaN, "s": "x"})", false},
      {R"({"n": NaN, "s": "x"})", true},

      {"{\"n\": 1, \"s\": \"\x01\"}", false}, {"{\"n\": 1, \"s\": \"a\tb\"}", false},
      {"{\"n\": 1, \"s\": \"\xff\"}", false}, {"{\"n\": 1, \"s\": \"\xc3\xa9\"}", true}};
  const LineCutter cutter(
      {.kind = TextKind::kJson, .fields = {{"n", FieldKind::kFloat}, {"s", FieldKind::kString}}});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.line);
    std::vector<ColumnBytes> cells(2);
    const Status status = cutter.cut(bytes_of(std::string(c.line)), cells);
    EXPECT_EQ(status.ok(), c.is_right) << status.message();
  }
}

}  // namespace
}  // namespace headrace::detail
