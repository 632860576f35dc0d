// Lines of text and of JSON, through their builder; the reading of JSON against nlohmann-json.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/endian.h"
#include "base/random.h"
#include "shard/testing/build_dataset.h"
#include "shard/testing/deflate.h"
#include "shard/testing/drive_scan.h"
#include "shard/testing/read_dataset.h"
#include "shard/text/json_text.h"
#include "shard/text/line_cutter.h"
#include "shard/text/line_scan.h"

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
  ASSERT_TRUE(seen.add(R"({"a": 1, "b": "x", "": 2})"));
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
