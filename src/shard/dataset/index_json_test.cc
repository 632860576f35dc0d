#include "shard/dataset/index_json.h"

#include <gtest/gtest.h>

namespace headrace::detail {
namespace {

Format format_of_owner(const FormatDriver* owner) {
  return owner == nullptr ? Format::kAuto : owner->id;
}

TEST(IndexJson, TellsDatasetsApart) {
  const auto owner = [](std::string_view json) {
    return format_of_owner(owner_of_index_json(json));
  };
  EXPECT_EQ(owner(R"({"shards": []})"), Format::kMds);
  EXPECT_EQ(owner(R"({"chunks": []})"), Format::kLitData);
  EXPECT_EQ(owner(R"({"a": 1})"), Format::kAuto);
  EXPECT_EQ(owner("[1]"), Format::kAuto);
  EXPECT_EQ(owner("text"), Format::kAuto);
}

TEST(IndexJson, TellsDatasetsApartByTheirFirstBytes) {
  const auto owner = [](std::string_view head) {
    return format_of_owner(owner_of_index_json_head(head));
  };
  EXPECT_EQ(owner(R"({"version": 2, "shards": [{)"), Format::kMds);
  EXPECT_EQ(owner(R"({"config": {"shards": 1}, "chunks": [)"), Format::kLitData);
  EXPECT_EQ(owner("text"), Format::kAuto);
}

}  // namespace
}  // namespace headrace::detail
