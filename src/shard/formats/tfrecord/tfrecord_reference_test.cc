// TFRecord files and tf.train.Examples with the verdicts of google-crc32c and protobuf
// (../shared/reference/tfrecord).
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/endian.h"
#include "base/strings.h"
#include "shard/codec/digest.h"
#include "shard/formats/tfrecord/example_cutter.h"
#include "shard/formats/tfrecord/record.h"
#include "shard/formats/tfrecord/tfrecord_driver.h"
#include "shard/testing/build_dataset.h"
#include "shard/testing/read_dataset.h"
#include "shard/testing/reference.h"

namespace headrace {
namespace {

using nlohmann::json;
using testing::FakeStore;

const std::filesystem::path kFolder = testing::reference_path("tfrecord");

json load(const char* name) { return json::parse(testing::read_file(kFolder / name)); }

class TfRecordReference : public testing::ReferenceTest<> {
 protected:
  Result<std::shared_ptr<const Dataset>> open(const DatasetOptions& options) {
    return testing::build_dataset(store_, *pool_, options, detail::build_tfrecord_index,
                                  detail::make_tfrecord_dataset);
  }
  FakeStore store_;
  std::unique_ptr<SlabPool> pool_ = testing::make_pool();
};

TEST_F(TfRecordReference, GivesTheSameRecordsOrSaysWhy) {
  const json cases = load("expected.json");
  for (const auto& [name, verdict] : cases["files"].items()) {
    SCOPED_TRACE(name);
    store_ = FakeStore();
    store_.set(name, testing::read_file(kFolder / name));
    DatasetOptions options;
    options.columns = {"record"};
    auto dataset = open(options);
    if (verdict.contains("error")) {
      ASSERT_FALSE(dataset.has_value());
      EXPECT_EQ(dataset.error().code(), Code::kCorrupt);
      const std::string number = std::to_string(verdict["records"].size());
      EXPECT_NE(dataset.error().message().find(name + ": record " + number), std::string::npos)
          << dataset.error().message();
      continue;
    }
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    auto samples = testing::read_all(store_, *pool_, **dataset);
    ASSERT_TRUE(samples.has_value()) << samples.error().message();
    ASSERT_EQ(samples->size(), verdict["records"].size());
    for (std::size_t i = 0; i < samples->size(); ++i) {
      const std::string& bytes = (*samples)[i][0].bytes;
      EXPECT_EQ(bytes.size(), verdict["records"][i]["length"]);
      EXPECT_EQ(detail::hex_digest("sha256", std::as_bytes(std::span(bytes))),
                verdict["records"][i]["sha256"]);
    }
  }
}

TEST_F(TfRecordReference, EndsAFileBeforeACutRecordWhenLenient) {
  for (const char* name : {"cut-01.tfrecord", "cut-11.tfrecord", "cut-12.tfrecord",
                           "cut-13.tfrecord", "cut-20.tfrecord"}) {
    SCOPED_TRACE(name);
    store_ = FakeStore();
    store_.set(name, testing::read_file(kFolder / name));
    DatasetOptions options;
    options.lenient = true;
    auto dataset = open(options);
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    EXPECT_EQ((*dataset)->sample_count(), 2U);
  }
  store_ = FakeStore();
  store_.set("a", testing::read_file(kFolder / "bad-data.tfrecord"));
  DatasetOptions options;
  options.lenient = true;
  EXPECT_EQ(open(options).error().code(), Code::kCorrupt);
}

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  EXPECT_TRUE(from_hex(hex, bytes)) << hex;
  return bytes;
}

// The bytes that a column of an Example's feature delivers.
std::string expected_bytes(const json& feature) {
  std::string out;
  const auto append = [&out](auto value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  if (feature["kind"] == "bytes") {
    const json& values = feature["values"];
    if (values.size() == 1) return bytes_of(values[0]["hex"]);
    append(std::uint32_t{0});
    append(static_cast<std::uint32_t>(values.size()));
    for (const json& value : values) append(value["length"].get<std::uint32_t>());
    for (const json& value : values) out += bytes_of(value["hex"]);
    return out;
  }
  const bool is_float = feature["kind"] == "float";
  const json& values = feature[is_float ? "bits" : "values"];
  if (values.empty()) {  // Of varying length then: an array of MDS with its head.
    out = std::string("\x06\0\0\0\0", 5);
  }
  for (const json& value : values) {
    if (is_float) {
      append(static_cast<std::uint32_t>(std::stoul(value.get<std::string>(), nullptr, 16)));
    } else {
      append(static_cast<std::int64_t>(std::stoll(value.get<std::string>())));
    }
  }
  return out;
}

TEST_F(TfRecordReference, ReadsExamplesAsProtobufDoes) {
  const json cases = load("examples.json");
  for (const json& example : cases["examples"]) {
    SCOPED_TRACE(example["name"].get<std::string>());
    const std::string message = bytes_of(example["hex"]);
    const auto bytes = std::as_bytes(std::span(message));
    detail::ExampleSchema schema;
    std::string why;
    const json& features = example["features"];
    const bool is_refused = features.contains("error");
    ASSERT_EQ(schema.add(bytes, why), !is_refused) << why;
    if (is_refused) continue;
    auto layout = schema.layout({});
    ASSERT_TRUE(layout.has_value());
    const std::vector<Column> columns = detail::example_columns(*layout);
    const detail::ExampleCutter cutter(*layout);
    std::vector<ColumnBytes> out(columns.size());
    const Status status = cutter.cut(bytes, out);
    ASSERT_TRUE(status.ok()) << status.message();
    const testing::Sample sample = testing::copy_sample(out);
    std::size_t kinds = 0;
    for (const auto& [name, feature] : features.items()) {
      if (feature["kind"].is_null()) continue;
      const auto found =
          std::find_if(columns.begin(), columns.end(),
                       [&wanted = name](const Column& c) { return c.name == wanted; });
      ASSERT_NE(found, columns.end()) << name;
      const auto c = static_cast<std::size_t>(found - columns.begin());
      EXPECT_TRUE(sample[c].present);
      EXPECT_EQ(sample[c].bytes, expected_bytes(feature));
      ++kinds;
    }
    EXPECT_EQ(columns.size(), kinds);
  }
}

TEST_F(TfRecordReference, BreaksOffWhereProtobufDoesWhenCutting) {
  // A cutter that knows the features still refuses the messages that protobuf refuses.
  const json cases = load("examples.json");
  detail::ExampleLayout layout{.is_records = false, .is_complete = false, .columns = {}};
  layout.columns.push_back({.feature = "a", .kind = detail::FeatureKind::kInt64});
  const detail::ExampleCutter ints(layout);
  layout.columns[0].kind = detail::FeatureKind::kFloat;
  const detail::ExampleCutter floats(layout);
  for (const json& example : cases["examples"]) {
    if (!example["features"].contains("error") || example["name"] == "key not utf-8") continue;
    SCOPED_TRACE(example["name"].get<std::string>());
    const std::string message = bytes_of(example["hex"]);
    ColumnBytes out[1];
    EXPECT_EQ(ints.cut(std::as_bytes(std::span(message)), out).code(), Code::kCorrupt);
    EXPECT_EQ(floats.cut(std::as_bytes(std::span(message)), out).code(), Code::kCorrupt);
  }
}

std::vector<std::string> names_of(const Dataset& dataset) {
  std::vector<std::string> names;
  for (const Column& column : dataset.columns()) names.push_back(column.name);
  return names;
}

TEST_F(TfRecordReference, RefusesAFeatureOfTwoKindsUnlessItIsLeftOut) {
  // The records of this file give most of their features kinds at random.
  store_.set("examples.tfrecord", testing::read_file(kFolder / "examples.tfrecord"));
  auto refused = open({});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  EXPECT_NE(refused.error().message().find("different kinds"), std::string::npos);
  DatasetOptions options;
  options.columns = {"k1", "b"};
  auto dataset = open(options);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->sample_count(), 12U);
  EXPECT_EQ(names_of(**dataset), options.columns);
  auto samples = testing::read_all(store_, *pool_, **dataset);
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  const json cases = load("expected.json");
  for (std::size_t i = 0; i < 12; ++i) {
    const json& features = cases["files"]["examples.tfrecord"]["examples"][i];
    EXPECT_EQ((*samples)[i][0].present, features.contains("k1"));
    EXPECT_EQ((*samples)[i][1].present, features.contains("b"));
  }
  options.columns = {"lable"};
  EXPECT_EQ(open(options).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
