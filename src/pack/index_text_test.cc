#include "pack/index_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace headrace::pack_detail {
namespace {

TEST(IndexText, OfLitDataNamesTheCacheByTheContent) {
  const std::string config = R"({"chunk_bytes": 9, "compression": "zstd:7"})";
  std::vector<ShardFacts> facts(2);
  facts[0].name = "chunk-0-0.zstd.bin";
  facts[0].sample_count = 3;
  facts[0].raw_bytes = 8;
  facts[0].content = "x";
  const auto index = nlohmann::json::parse(index_text("litdata", config, facts));
  EXPECT_EQ(index["config"]["compression"], "zstd");
  EXPECT_EQ(index["chunks"][0],
            nlohmann::json::parse(R"({"chunk_bytes": 8, "chunk_size": 3, "dim": null,
                                      "filename": "chunk-0-0.zstd.bin"})"));
  const std::string before = index["updated_at"];
  EXPECT_TRUE(before.ends_with(".0"));
  facts[0].content = {};
  facts[1].content = "x";
  const auto other = nlohmann::json::parse(index_text("litdata", config, facts));
  EXPECT_NE(other["updated_at"], before);
}

TEST(IndexText, OfOtherFormatsIsNone) {
  for (const char* format : {"webdataset", "tfrecord", "parquet"})
    EXPECT_EQ(index_text(format, "{}", {}), "");
}

}  // namespace
}  // namespace headrace::pack_detail
