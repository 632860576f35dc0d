// Data sets written by litdata itself, before and since 0.2.74 (../shared/reference/litdata), read
// through Dataset. Sets whose rows are Arrow need pyarrow and are in tests/python/test_litdata.py.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/testing/fake_store.h"
#include "shard/codec/digest.h"
#include "shard/testing/read_dataset.h"
#include "shard/testing/reference.h"

namespace headrace {
namespace {

using nlohmann::json;
using testing::FakeStore;

const std::filesystem::path kFolder = testing::reference_path("litdata");

std::string sha256(std::string_view bytes) {
  return detail::hex_digest("sha256", std::as_bytes(std::span(bytes)));
}

std::string hex_big_endian(std::string_view bytes) {
  std::string hex;
  for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned char>(*byte));
    hex += text;
  }
  return hex;
}

// The expectation of a leaf by the name of its column ("a", "b.0").
const json& expectation(const json& sample, const std::string& column) {
  const json* at = &sample;
  std::string_view path = column;
  if (sample["type"] != "dict" && sample["type"] != "list" && sample["type"] != "tuple")
    return sample;
  while (!path.empty()) {
    const std::string part(path.substr(0, path.find('.')));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    const json& items = (*at)["items"];
    at = items.is_array() ? &items.at(std::stoul(part)) : &items.at(part);
  }
  return *at;
}

// Bytes of the array behind a header: u32 dtype, u32 rank, u32 dims.
std::string_view behind_header(std::string_view bytes, bool is_big_endian) {
  const auto last = static_cast<unsigned char>(bytes.at(is_big_endian ? 7 : 4));
  return bytes.substr(8 + 4 * static_cast<std::size_t>(last));
}

// A json value as expected.json describes it.
json describe(const json& value) {
  if (value.is_null()) return {{"type", "null"}};
  if (value.is_boolean()) return {{"type", "bool"}, {"value", value}};
  if (value.is_number_integer())
    return {{"type", "int"}, {"value", std::to_string(value.get<std::int64_t>())}};
  if (value.is_number_float()) return {{"type", "float"}, {"number", value}};
  if (value.is_string()) return {{"type", "str"}, {"value", value}};
  json items = value.is_array() ? json::array() : json::object();
  for (const auto& [key, item] : value.items()) {
    if (value.is_array()) {
      items.push_back(describe(item));
    } else {
      items[key] = describe(item);
    }
  }
  return {{"type", value.is_array() ? "list" : "dict"}, {"items", items}};
}

void expect_same(const json& described, const json& expected) {
  ASSERT_EQ(described["type"], expected["type"]);
  if (described.contains("number")) {
    const double number = described["number"];
    std::string bytes(sizeof(number), '\0');
    std::memcpy(bytes.data(), &number, sizeof(number));
    EXPECT_EQ(hex_big_endian(bytes), expected["bits"]);
  } else if (described.contains("items")) {
    ASSERT_EQ(described["items"].size(), expected["items"].size());
    for (const auto& [key, item] : described["items"].items()) {
      const bool is_list = described["items"].is_array();
      expect_same(item, is_list ? expected["items"][std::stoul(key)] : expected["items"][key]);
    }
  } else if (expected.contains("value")) {
    EXPECT_EQ(described["value"], expected["value"]);
  }
}

void expect_value(const std::string& encoding, const std::string& bytes, const json& expected) {
  if (encoding == "int") {
    std::int64_t number = 0;
    ASSERT_EQ(bytes.size(), sizeof(number));
    std::memcpy(&number, bytes.data(), sizeof(number));
    EXPECT_EQ(std::to_string(number), expected["value"]);
  } else if (encoding == "float") {
    EXPECT_EQ(hex_big_endian(bytes), expected["bits"]);
  } else if (encoding == "bool") {
    EXPECT_EQ(bytes, std::string(1, expected["value"].get<bool>() ? '\1' : '\0'));
  } else if (encoding == "str" && expected.contains("value")) {
    EXPECT_EQ(bytes, expected["value"]);
  } else if (encoding == "json") {
    expect_same(describe(json::parse(bytes)), expected);
  } else if (encoding == "litdata:tensor" || encoding == "litdata:numpy") {
    EXPECT_EQ(sha256(behind_header(bytes, encoding == "litdata:tensor")), expected["sha256"]);
  } else if (encoding == "pil") {
    // u32 width, height and length of the mode; mode; pixels.
    EXPECT_EQ(
        sha256(std::string_view(bytes).substr(12 + expected["mode"].get<std::string>().size())),
        expected["sha256"]);
  } else {
    EXPECT_EQ(sha256(bytes), expected["sha256"]) << encoding;
  }
}

struct Case {
  std::string name;
  std::uint64_t tokens_per_sample = 0;
};

class LitDataReference : public testing::ReferenceTest<::testing::TestWithParam<Case>> {};

TEST_P(LitDataReference, GivesTheSameValues) {
  FakeStore store;
  const std::filesystem::path root = kFolder / GetParam().name;
  store.load(root);
  const auto pool = testing::make_pool();
  DatasetOptions options;
  options.tokens_per_sample = GetParam().tokens_per_sample;
  auto dataset = Dataset::open(store, *pool, options);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->format(), Format::kLitData);
  const json expected = json::parse(testing::read_file(root / "expected.json"));
  auto samples = testing::read_all(store, *pool, **dataset);
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  ASSERT_EQ(samples->size(), expected["samples"].size());
  const auto& columns = (*dataset)->columns();
  for (std::size_t i = 0; i < samples->size(); ++i) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const testing::Value& value = (*samples)[i][c];
      ASSERT_TRUE(value.present);
      SCOPED_TRACE("sample " + std::to_string(i) + " column " + columns[c].name);
      expect_value(columns[c].encoding, value.bytes,
                   expectation(expected["samples"][i], columns[c].name));
    }
  }
  for (std::uint64_t position = 0; position < samples->size(); position += 5) {
    auto sample = testing::read_one(store, *pool, **dataset, position);
    ASSERT_TRUE(sample.has_value()) << sample.error().message();
    for (std::size_t c = 0; c < sample->size(); ++c)
      EXPECT_EQ((*sample)[c].bytes, (*samples)[position][c].bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LitDataReference,
    ::testing::Values(Case{"classic/arrays"}, Case{"classic/image"}, Case{"classic/ints"},
                      Case{"classic/mixed"}, Case{"classic/mixed_bytes"},
                      Case{"classic/mixed_zstd"}, Case{"classic/text"}, Case{"classic/text_zstd"},
                      Case{"classic/tokens", 16}, Case{"classic/tokens_u16", 16},
                      Case{"classic/tokens_zstd", 16}, Case{"classic/tuple"},
                      Case{"classic/vector"}, Case{"classic/workers"}, Case{"current/arrays"},
                      Case{"current/image"}, Case{"current/ints"}, Case{"current/mixed"},
                      Case{"current/mixed_bytes"}, Case{"current/mixed_zstd"},
                      Case{"current/mixed_zstd_batch4"}, Case{"current/mixed_zstd_chunk"},
                      Case{"current/mixed_zstd_sample"}, Case{"current/nested_with_array"},
                      Case{"current/tokens", 16}, Case{"current/tokens_u16", 16},
                      Case{"current/tokens_zstd", 16}, Case{"current/tuple"},
                      Case{"current/vector"}, Case{"current/workers"}),
    [](const auto& test) {
      std::string name = test.param.name;
      std::replace(name.begin(), name.end(), '/', '_');
      return name;
    });

TEST_F(LitDataReference, ArrowRowsAskForPyarrow) {
  for (const char* name : {"current/text", "current/nested", "current/text_zstd"}) {
    FakeStore store;
    store.load(kFolder / name);
    const auto pool = testing::make_pool();
    auto dataset = Dataset::open(store, *pool, {});
    ASSERT_FALSE(dataset.has_value());
    EXPECT_EQ(dataset.error().code(), Code::kUnsupported);
    EXPECT_NE(dataset.error().message().find("pyarrow"), std::string_view::npos)
        << dataset.error().message();
  }
}

TEST_F(LitDataReference, TokensAskForTheirLength) {
  FakeStore store;
  store.load(kFolder / "current/tokens");
  const auto pool = testing::make_pool();
  auto dataset = Dataset::open(store, *pool, {});
  ASSERT_FALSE(dataset.has_value());
  EXPECT_EQ(dataset.error().code(), Code::kInvalidArgument);
  EXPECT_NE(dataset.error().message().find("tokens_per_sample"), std::string_view::npos);
}

}  // namespace
}  // namespace headrace
