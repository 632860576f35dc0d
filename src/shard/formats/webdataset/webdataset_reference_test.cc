// Tar files and names with webdataset's own verdicts (../shared/reference/wds), read through
// Dataset.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "io/testing/fake_store.h"
#include "shard/codec/digest.h"
#include "shard/formats/webdataset/member_name.h"
#include "shard/testing/read_dataset.h"
#include "shard/testing/reference.h"

namespace headrace {
namespace {

using nlohmann::json;
using testing::FakeStore;

const std::filesystem::path kFolder = testing::reference_path("wds");

// Where we report what the reference passes over in silence (or fails for another reason).
const std::map<std::string, Code>& deviations() {
  static const std::map<std::string, Code> kCases = {
      {"bad-checksum.tar", Code::kCorrupt},
      {"zero-then-more.tar", Code::kCorrupt},
      {"end-then-more.tar", Code::kCorrupt},
      {"truncated-header.tar", Code::kCorrupt},
  };
  return kCases;
}

constexpr std::string_view kTwoMembers = "groups-two-members.tar.gz";

Code expected_code(const std::string& name, const json& verdict) {
  // webdataset stops behind the first member of a gzip file; GNU tar and we read on.
  if (name == kTwoMembers) return Code::kOk;
  if (const auto found = deviations().find(name); found != deviations().end()) return found->second;
  return verdict.contains("error") ? Code::kCorrupt : Code::kOk;
}

void expect_sample(const json& expected, const Dataset& dataset, const testing::Sample& sample) {
  EXPECT_EQ(sample[0].bytes, expected["key"]);
  std::size_t present = 0;
  for (std::size_t c = 1; c < sample.size(); ++c) {
    if (!sample[c].present) continue;
    ++present;
    const json& field = expected["fields"].at(dataset.columns()[c].name);
    EXPECT_EQ(sample[c].bytes.size(), field["length"]);
    EXPECT_EQ(detail::hex_digest("sha256", std::as_bytes(std::span(sample[c].bytes))),
              field["sha256"]);
  }
  EXPECT_EQ(present, expected["fields"].size());
}

class WebDatasetReference : public testing::ReferenceTest<> {};

TEST_F(WebDatasetReference, GivesTheSameSamplesOrSaysWhy) {
  const json cases = json::parse(testing::read_file(kFolder / "expected.json"));
  for (const auto& [name, own_verdict] : cases["files"].items()) {
    SCOPED_TRACE(name);
    const json& verdict = name == kTwoMembers ? cases["files"]["groups.tar.gz"] : own_verdict;
    FakeStore store;
    store.set(name, testing::read_file(kFolder / name));
    const auto pool = testing::make_pool();
    auto dataset = Dataset::open(store, *pool, {});
    const Code code = expected_code(name, verdict);
    ASSERT_EQ(dataset ? Code::kOk : dataset.error().code(), code)
        << (dataset ? "" : dataset.error().message());
    if (!dataset) {
      EXPECT_NE(dataset.error().message().find(name), std::string_view::npos)
          << dataset.error().message();
      continue;
    }
    auto samples = testing::read_all(store, *pool, **dataset);
    ASSERT_TRUE(samples.has_value()) << samples.error().message();
    ASSERT_EQ(samples->size(), verdict["samples"].size());
    for (std::size_t i = 0; i < samples->size(); ++i) {
      expect_sample(verdict["samples"][i], **dataset, (*samples)[i]);
      auto alone = testing::read_one(store, *pool, **dataset, i);
      ASSERT_TRUE(alone.has_value()) << alone.error().message();
      expect_sample(verdict["samples"][i], **dataset, *alone);
    }
  }
}

TEST_F(WebDatasetReference, GivesWhatWebDatasetGivesInSilenceWhenLenient) {
  const json cases = json::parse(testing::read_file(kFolder / "expected.json"));
  for (const auto& [name, code] : deviations()) {
    SCOPED_TRACE(name);
    FakeStore store;
    store.set(name, testing::read_file(kFolder / name));
    const auto pool = testing::make_pool();
    DatasetOptions options;
    options.lenient = true;
    auto dataset = Dataset::open(store, *pool, options);
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
    auto samples = testing::read_all(store, *pool, **dataset);
    ASSERT_TRUE(samples.has_value()) << samples.error().message();
    const json& expected = cases["files"][name]["samples"];
    ASSERT_EQ(samples->size(), expected.size());
    for (std::size_t i = 0; i < samples->size(); ++i)
      expect_sample(expected[i], **dataset, (*samples)[i]);
  }
}

TEST_F(WebDatasetReference, SplitsNamesTheSameWay) {
  const json cases = json::parse(testing::read_file(kFolder / "names.json"));
  for (const auto& [name, verdict] : cases["names"].items()) {
    SCOPED_TRACE(name);
    const auto split = detail::split_member_name(name);
    ASSERT_EQ(split.has_value(), !verdict["samples"].empty());
    if (!split) continue;
    EXPECT_EQ(split->key, verdict["samples"][0]["key"]);
    EXPECT_TRUE(
        detail::is_same_suffix(split->suffix, verdict["samples"][0]["fields"].begin().key()));
  }
}

TEST_F(WebDatasetReference, OpensManyFilesInOrder) {
  FakeStore store;
  for (const char* name :
       {"written-0000.tar", "written-0001.tar", "written-0002.tar", "written-0000.idx"}) {
    store.set(name, testing::read_file(kFolder / name));
  }
  const auto pool = testing::make_pool();
  auto dataset = Dataset::open(store, *pool, {});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  EXPECT_EQ((*dataset)->shard_count(), 3U);
  EXPECT_EQ((*dataset)->sample_count(), 16U);
  auto samples = testing::read_all(store, *pool, **dataset);
  ASSERT_TRUE(samples.has_value());
  EXPECT_EQ(samples->front()[0].bytes, "a.b/c/s00000");
  EXPECT_EQ(samples->back()[0].bytes, "s00015");
}

TEST(MemberName, FollowsTheTableOfBehaviour) {
  struct Case {
    const char* name;
    const char* key;  // nullptr: ignored or skipped.
    const char* suffix;
  };
  const Case cases[] = {
      {"a.jpg", "a", "jpg"},
      {"d.x/a.y", "d.x/a", "y"},
      {"a.seg.png", "a", "seg.png"},
      {"d/.x", "d/", "x"},
      {"d/a.b.c", "d/a", "b.c"},
      {"d/.a.b", "d/", "a.b"},
      {"d.x/.y", nullptr, ""},
      {"noext", nullptr, ""},
      {"d.x/noext", nullptr, ""},
      {"a.", "a", ""},
      {"A.JPG", "A", "JPG"},
      {".hidden", nullptr, ""},
      {"a..b", "a", ".b"},
      {"__m__/a.b", nullptr, ""},
      {"__m__x.y", "__m__x", "y"},
      {"__meta__", nullptr, ""},
      {"__init__.py", "__init__", "py"},
      {"x/__y__/z.txt", "x/__y__/z", "txt"},
      {"a.b//.c", "a.b//", "c"},
      {"/.x", "/", "x"},
      {"", nullptr, ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto split = detail::split_member_name(c.name);
    ASSERT_EQ(split.has_value(), c.key != nullptr);
    if (!split) continue;
    EXPECT_EQ(split->key, c.key);
    EXPECT_EQ(split->suffix, c.suffix);
  }
}

}  // namespace
}  // namespace headrace
