// Data sets written by mosaicml-streaming itself (../shared/reference/mds), read through Dataset.
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

const std::filesystem::path kFolder = testing::reference_path("mds");

class MdsReference : public testing::ReferenceTest<::testing::TestWithParam<std::string>> {};

void expect_payloads(const json& expected, const Dataset& dataset,
                     const std::vector<testing::Sample>& samples) {
  ASSERT_EQ(samples.size(), expected["samples"].size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const json& columns = expected["samples"][i]["columns"];
    ASSERT_EQ(columns.size(), dataset.columns().size());
    for (std::size_t c = 0; c < dataset.columns().size(); ++c) {
      const json& payload = columns.at(dataset.columns()[c].name).at("payload");
      const testing::Value& value = samples[i][c];
      ASSERT_TRUE(value.present);
      ASSERT_EQ(value.bytes.size(), payload["length"].get<std::size_t>());
      ASSERT_EQ(detail::hex_digest("sha256", std::as_bytes(std::span(value.bytes))),
                payload["sha256"])
          << "sample " << i << " column " << dataset.columns()[c].name;
    }
  }
}

TEST_P(MdsReference, GivesTheSamePayloads) {
  FakeStore store;
  store.load(kFolder / GetParam());
  const auto pool = testing::make_pool();
  DatasetOptions options;
  options.allow_unsafe = GetParam() == "unsafe_pickle";
  auto dataset = Dataset::open(store, *pool, options);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  const json expected = json::parse(testing::read_file(kFolder / GetParam() / "expected.json"));
  EXPECT_EQ((*dataset)->format(), Format::kMds);
  for (const Column& column : (*dataset)->columns())
    EXPECT_EQ(column.encoding, expected["encodings"][column.name]);
  const auto& per_shard = expected["samples_per_shard"];
  ASSERT_EQ((*dataset)->shard_count(), per_shard.size());
  for (std::uint32_t s = 0; s < per_shard.size(); ++s)
    EXPECT_EQ((*dataset)->shard(s).sample_count, per_shard[s]);

  auto samples = testing::read_all(store, *pool, **dataset);
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  expect_payloads(expected, **dataset, *samples);
  for (std::uint64_t position = 0; position < samples->size(); position += 5) {
    auto sample = testing::read_one(store, *pool, **dataset, position);
    ASSERT_TRUE(sample.has_value()) << sample.error().message();
    for (std::size_t c = 0; c < sample->size(); ++c)
      EXPECT_EQ((*sample)[c].bytes, (*samples)[position][c].bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, MdsReference,
                         ::testing::Values("all_encodings", "bytes_bypass", "comp_br", "comp_br_5",
                                           "comp_bz2", "comp_bz2_1", "comp_gz", "comp_gz_3",
                                           "comp_none", "comp_snappy", "comp_zstd", "comp_zstd_19",
                                           "empty_columns", "every_hash", "golden", "merged",
                                           "merged_deep", "ndarray", "no_limit", "one_per_shard",
                                           "unsafe_pickle"),
                         [](const auto& test) { return test.param; });

class SplitReference : public MdsReference {};

// The value of a column in the words of expected.json.
void expect_text(const json& value, const std::string& encoding, const std::string& text) {
  if (value["type"] == "float") {
    EXPECT_EQ(encoding, "str_float");
    EXPECT_EQ(std::stod(text), std::stod(value["value"].get<std::string>()));
    return;
  }
  EXPECT_EQ(encoding, value["type"] == "int" ? "str_int" : "str");
  if (value.contains("value")) {
    EXPECT_EQ(text, value["value"].get<std::string>());
  } else {
    EXPECT_EQ(detail::hex_digest("sha256", std::as_bytes(std::span(text))), value["sha256"]);
  }
}

TEST_P(SplitReference, GivesTheSameValues) {
  FakeStore store;
  store.load(kFolder / GetParam());
  const auto pool = testing::make_pool();
  auto dataset = Dataset::open(store, *pool, {});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->format(), Format::kMds);
  const json expected = json::parse(testing::read_file(kFolder / GetParam() / "expected.json"));
  auto samples = testing::read_all(store, *pool, **dataset);
  ASSERT_TRUE(samples.has_value()) << samples.error().message();
  ASSERT_EQ(samples->size(), expected["samples"].size());
  for (std::size_t i = 0; i < samples->size(); ++i) {
    for (std::size_t c = 0; c < (*dataset)->columns().size(); ++c) {
      const Column& column = (*dataset)->columns()[c];
      ASSERT_TRUE((*samples)[i][c].present);
      expect_text(expected["samples"][i]["columns"].at(column.name).at("value"), column.encoding,
                  (*samples)[i][c].bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SplitReference,
                         ::testing::Values("split_csv", "split_csv_crlf", "split_csv_gz",
                                           "split_csv_zstd", "split_json", "split_json_crlf",
                                           "split_json_gz", "split_json_zstd", "split_tsv",
                                           "split_tsv_gz", "split_tsv_zstd", "split_xsv",
                                           "split_xsv_gz", "split_xsv_zstd"),
                         [](const auto& test) { return test.param; });

TEST_F(MdsReference, RefusesPicklesUnlessAllowed) {
  FakeStore store;
  store.load(kFolder / "unsafe_pickle");
  const auto pool = testing::make_pool();
  auto dataset = Dataset::open(store, *pool, {});
  ASSERT_FALSE(dataset.has_value());
  EXPECT_EQ(dataset.error().code(), Code::kUnsupported);
  EXPECT_NE(dataset.error().message().find("pkl"), std::string_view::npos);
}

TEST_F(MdsReference, FindsTheTurnedBit) {
  FakeStore store;
  store.load(kFolder / "bad_hash");
  const auto pool = testing::make_pool();
  auto dataset = Dataset::open(store, *pool, {});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  for (std::uint32_t s = 0; s < (*dataset)->shard_count(); ++s) {
    const auto shard = (*dataset)->shard(s);
    std::uint32_t block = 0;
    while ((*dataset)->block(block).shard != s) ++block;
    const std::string& bytes = store.shared().objects.at(std::string(shard.key)).bytes;
    const Status status = (*dataset)->verify(block, std::as_bytes(std::span(bytes)));
    EXPECT_EQ(status.code(), shard.key == "shard.00002.mds" ? Code::kCorrupt : Code::kOk)
        << status.message();
  }
}

TEST(MdsSplit, ReadsFewLargeMetaFilesAtOnce) {
  const std::filesystem::path root = kFolder / "split_json";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no reference cases here";
  FakeStore store;
  store.load(root);
  constexpr std::uint64_t kMetaBytes = std::uint64_t{3} << 20;
  json index = json::parse(testing::read_file(root / "index.json"));
  for (json& shard : index["shards"]) {
    const std::string name = shard["raw_meta"]["basename"];
    std::string meta = testing::read_file(root / name);
    meta.resize(kMetaBytes);
    store.set(name, meta);
    shard["raw_meta"]["bytes"] = kMetaBytes;
    shard["raw_meta"]["hashes"] = json::object();
  }
  ASSERT_GE(index["shards"].size(), 3U);
  store.set("index.json", index.dump());
  const auto pool = testing::make_pool(std::uint64_t{16} << 20);
  DatasetOptions options;
  std::uint64_t first_bytes = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t) {
    if (done == 1) first_bytes = store.shared().get_bytes;
  };
  auto dataset = Dataset::open(store, *pool, options);
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_GE(first_bytes, kMetaBytes);
  EXPECT_LT(first_bytes, 2 * kMetaBytes);  // A quarter of the pool holds one.
}

TEST(MdsSplit, ChecksTheHashesOfMetaFiles) {
  const std::filesystem::path root = kFolder / "split_json";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no reference cases here";
  FakeStore store;
  store.load(root);
  const auto pool = testing::make_pool(std::uint64_t{16} << 20);
  json index = json::parse(testing::read_file(root / "index.json"));
  const auto open_with = [&](const std::string& digest) {
    index["shards"][1]["raw_meta"]["hashes"] = {{"sha1", digest}};
    store.set("index.json", index.dump());
    return Dataset::open(store, *pool, {});
  };
  const std::string name = index["shards"][1]["raw_meta"]["basename"];
  const std::string meta = testing::read_file(root / name);
  const auto good = open_with(detail::hex_digest("sha1", std::as_bytes(std::span(meta))));
  EXPECT_TRUE(good.has_value()) << good.error().message();
  const auto bad = open_with(std::string(40, 'a'));
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code(), Code::kCorrupt);
  EXPECT_NE(bad.error().message().find("its meta file"), std::string_view::npos)
      << bad.error().message();
}

}  // namespace
}  // namespace headrace
