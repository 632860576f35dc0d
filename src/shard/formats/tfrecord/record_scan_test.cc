#include "shard/formats/tfrecord/record_scan.h"

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/endian.h"
#include "shard/formats/tfrecord/example_cutter.h"
#include "shard/formats/tfrecord/record.h"
#include "shard/testing/drive_scan.h"
#include "shard/testing/proto_field.h"
#include "wire/message.h"

namespace headrace::detail {
namespace {

using testing::field;
using testing::varint;

// An Example with feature "x" of `count` int64.
std::string example(std::size_t count, std::size_t padding_bytes = 0) {
  const std::string values = field(3, field(1, std::string(count, '\1')));
  std::string features = field(1, field(1, "x") + field(2, values));
  if (padding_bytes > 0) {
    const std::string padding = field(1, field(1, std::string(padding_bytes, 'p')));
    features += field(1, field(1, "p") + field(2, padding));
  }
  return field(1, features);
}
std::string le(auto value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }
std::string record(const std::string& payload) {
  const auto sum = [](const std::string& text) {
    return le(mask_crc(crc32c(std::as_bytes(std::span(text)))));
  };
  const std::string length = le(std::uint64_t{payload.size()});
  return length + sum(length) + payload + sum(payload);
}

// Columns of the file, read in pieces.
std::vector<Column> columns(const std::string& file, std::uint64_t piece_bytes,
                            RecordScanOptions options = {}) {
  RecordScan scan(options);
  EXPECT_TRUE(testing::drive_scan(scan, std::as_bytes(std::span(file)), piece_bytes).ok());
  auto facts = RecordFacts::from_text(scan.take().facts);
  EXPECT_TRUE(facts.has_value());
  auto layout = facts->schema.layout({});
  EXPECT_TRUE(layout.has_value());
  return example_columns(*layout);
}

TEST(RecordScan, CountsTheValuesOfLaterRecordsToo) {
  // Beyond what was looked at once: record 30, and larger than 64 KiB.
  std::string file;
  for (int i = 0; i < 30; ++i) file += record(example(2, 1));
  EXPECT_EQ(columns(file, 4096)[1].shape, std::vector<std::uint64_t>{2});
  file += record(example(5, 200'000));
  for (const std::uint64_t piece : {std::uint64_t{512}, std::uint64_t{100'000}, file.size()})
    EXPECT_EQ(columns(file, piece)[1].encoding, "ndarray:int64") << piece;
}

TEST(RecordScan, AKeyThatComesAgainWithoutAValueIsNoFeature) {
  const std::string value = field(2, field(3, field(1, "\1")));
  const std::string kept = field(1, field(1, "x") + value);
  const std::string emptied = field(1, field(1, "y") + value) + field(1, field(1, "y"));
  const std::string file = record(field(1, kept + emptied));
  const std::vector<Column> found = columns(file, file.size());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "x");

  ExampleSchema schema;
  std::string why;
  const std::string first = field(1, kept);
  ASSERT_TRUE(schema.add(std::as_bytes(std::span(first)), why)) << why;
  auto layout = schema.layout({});
  ASSERT_TRUE(layout.has_value());
  const ExampleCutter cutter(*layout);
  std::vector<ColumnBytes> cells(1);
  const std::string payload = field(1, kept + emptied);
  EXPECT_TRUE(cutter.cut(std::as_bytes(std::span(payload)), cells).ok());
  EXPECT_TRUE(cells[0].present);
  const std::string unknown = field(1, kept + emptied + field(1, field(1, "z") + value));
  EXPECT_EQ(cutter.cut(std::as_bytes(std::span(unknown)), cells).code(), Code::kCorrupt);
}

TEST(RecordScan, NamesOfColumnsAreTheSameWhicheverAreChosen) {
  const std::string value = field(3, field(1, "\1"));
  const std::string context = field(1, field(1, "a") + field(2, value));
  const std::string list = field(1, field(1, "b") + field(2, field(1, value)));
  const std::string payload = field(1, context) + field(2, list);
  ExampleSchema schema;
  std::string why;
  ASSERT_TRUE(schema.add(std::as_bytes(std::span(payload)), why)) << why;
  for (const char* name : {"context.a", "seq.b"}) {
    auto layout = schema.layout({name});
    ASSERT_TRUE(layout.has_value()) << layout.error().message();
    auto again = parse_example_layout(layout_to_json(*layout));
    ASSERT_TRUE(again.has_value()) << again.error().message();
    for (const ExampleLayout& each : {*layout, *again}) {
      const std::vector<Column> found = example_columns(each);
      ASSERT_EQ(found.size(), 1U);
      EXPECT_EQ(found[0].name, name);
    }
  }
}

TEST(RecordScan, AListHasOneShapeWhereAllItsFeaturesDo) {
  const auto payload = [](std::initializer_list<std::size_t> steps) {
    std::string list;
    for (const std::size_t count : steps)
      list += field(1, field(3, field(1, std::string(count, '\1'))));
    return field(2, field(1, field(1, "b") + field(2, list)));
  };
  const auto step_count = [&](std::initializer_list<std::size_t> first,
                              std::initializer_list<std::size_t> second) {
    ExampleSchema schema;
    std::string why;
    for (const std::string& one : {payload(first), payload(second)})
      EXPECT_TRUE(schema.add(std::as_bytes(std::span(one)), why)) << why;
    return schema.layout({})->columns.front().step_count;
  };
  EXPECT_EQ(step_count({2, 2}, {2, 2, 2}), 2);
  EXPECT_EQ(step_count({2, 2}, {2, 3}), -1);
  EXPECT_EQ(step_count({2, 2}, {3}), -1);
}

TEST(WireReader, RefusesWhatIsCutOff) {
  const std::string value = varint(std::uint64_t{1} << 40);
  for (std::size_t length = 0; length <= value.size(); ++length) {
    const auto bytes = std::as_bytes(std::span(value)).first(length);
    std::uint64_t number = 0;
    WireReader reader(bytes);
    EXPECT_EQ(reader.read_varint(number), length == value.size()) << length;
    std::uint32_t tag = 0, type = 0;
    EXPECT_FALSE(WireReader(bytes).read_tag(tag, type)) << "no tag is as large";
    std::span<const std::byte> inner;
    EXPECT_FALSE(WireReader(bytes).read_bytes(inner)) << "nor are there as many bytes";
  }
}

TEST(RecordScan, FixesNoCountWhenARecordWasPassedOver) {
  std::string file;
  for (int i = 0; i < 30; ++i) file += record(example(2, 1));
  file += record(example(2, 5000));
  RecordScanOptions options;
  options.whole_bytes = 1000;
  for (const std::uint64_t piece : {std::uint64_t{512}, file.size()})
    EXPECT_EQ(columns(file, piece, options)[1].encoding, "ndarray:int64") << piece;
  options.whole_bytes = 10'000;
  EXPECT_EQ(columns(file, 512, options)[1].shape, std::vector<std::uint64_t>{2});
}

}  // namespace
}  // namespace headrace::detail
