// Labels of folders and manifests of raw files, through Dataset::open.
#include <gtest/gtest.h>

#include "base/endian.h"
#include "io/testing/fake_store.h"
#include "shard/formats/raw/manifest.h"
#include "shard/testing/dataset_fixture.h"
#include "shard/testing/read_dataset.h"

namespace headrace::detail {
namespace {

class RawTest : public testing::DatasetFixture {
 protected:
  Result<std::shared_ptr<const Dataset>> open() { return DatasetFixture::open(options_); }
  std::vector<testing::Sample> samples() {
    auto dataset = open();
    EXPECT_TRUE(dataset.has_value()) << dataset.error().message();
    if (!dataset) return {};
    auto found = testing::read_all(store_, *pool_, **dataset);
    EXPECT_TRUE(found.has_value()) << found.error().message();
    return found ? *std::move(found) : std::vector<testing::Sample>();
  }
  Code code() { return code_of(open()); }

  DatasetOptions options_;
};

TEST_F(RawTest, LabelsAreThePositionsOfSortedFolders) {
  // Keys sort "a-b/" before "a/", folders the other way round.
  store_.set("a-b/1.jpg", "x");
  store_.set("a/2.jpg", "yy");
  store_.set("a/deep/3.jpg", "");
  store_.set("b/4.jpg", "z");
  store_.set("README", "no class");
  options_.labels = "folder";
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  const Column& label = (*dataset)->columns()[2];
  EXPECT_EQ(label.classes, (std::vector<std::string>{"a", "a-b", "b"}));
  EXPECT_EQ(label.dtype, "int64");
  const auto found = samples();
  ASSERT_EQ(found.size(), 4U);
  std::string seen;
  for (const auto& sample : found) {
    std::int64_t value = 0;
    std::memcpy(&value, sample[2].bytes.data(), sizeof(value));
    seen += sample[1].bytes + "=" + std::to_string(value) + " ";
  }
  EXPECT_EQ(seen, "a-b/1.jpg=1 a/2.jpg=0 a/deep/3.jpg=0 b/4.jpg=2 ");
  EXPECT_EQ(found[1][0].bytes, "yy");
}

TEST_F(RawTest, LabelsAreKeptInTheIndexBesideTheFiles) {
  store_.set("a/1", "x");
  store_.set("b/1", "y");
  options_.labels = "folder";
  auto index = build_index(store_, *pool_, options_);
  ASSERT_TRUE(index.has_value()) << index.error().message();
  const std::string fingerprint = (*open())->fingerprint();
  store_.set("index.hri", *index);
  const std::uint64_t lists = store_.shared().list_count;
  EXPECT_EQ((*open())->fingerprint(), fingerprint);
  EXPECT_EQ(store_.shared().list_count, lists);
  // One without labels does not do.
  options_.labels = "";
  options_.use_stored_index = false;
  index = build_index(store_, *pool_, options_);
  store_.set("index.hri", *index);
  options_.labels = "folder";
  options_.use_stored_index = true;
  EXPECT_EQ((*open())->fingerprint(), fingerprint);
  EXPECT_NE(store_.shared().list_count, lists);
}

TEST_F(RawTest, LabelsWantFolders) {
  store_.set("a.jpg", "x");
  options_.labels = "folder";
  EXPECT_EQ(code(), Code::kInvalidArgument);
  options_.labels = "name";
  EXPECT_EQ(code(), Code::kInvalidArgument);
  options_.labels = "folder";
  options_.format = Format::kText;
  EXPECT_EQ(code(), Code::kInvalidArgument);
  EXPECT_NE(message_.find("belongs to raw files"), std::string::npos) << message_;
}

TEST_F(RawTest, AManifestOfLinesNamesTheSamples) {
  store_.set("train/a.jpg", "A");
  store_.set("train/b.jpg", "B");
  store_.set("train/sub/c.jpg", "C");
  store_.set("train/metadata.jsonl",
             "{\"file_name\": \"sub/c.jpg\", \"text\": \"one \\\"c\\\"\", \"n\": 1}\n"
             "\n{\"file_name\": \"./a.jpg\", \"text\": null, \"n\": 2}\n"
             "{\"file_name\": \"a.jpg\", \"text\": \"again\"}\n");
  options_.manifest = "train/metadata.jsonl";
  auto dataset = open();
  ASSERT_TRUE(dataset.has_value()) << dataset.error().message();
  std::string names;
  for (const Column& column : (*dataset)->columns()) names += column.name + " ";
  EXPECT_EQ(names, "data key n text ");
  const auto found = samples();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0][0].bytes, "C");
  EXPECT_EQ(found[0][1].bytes, "train/sub/c.jpg");
  EXPECT_EQ(found[0][3].bytes, "one \"c\"");
  EXPECT_EQ(found[1][0].bytes, "A");
  EXPECT_FALSE(found[1][3].present);
  EXPECT_EQ(found[2][0].bytes, "A");
  EXPECT_FALSE(found[2][2].present);
  // Another manifest, another dataset.
  const std::string fingerprint = (*dataset)->fingerprint();
  store_.set("train/metadata.jsonl", "{\"file_name\": \"b.jpg\", \"text\": \"\", \"n\": 3}\n");
  const std::string other = (*open())->fingerprint();
  EXPECT_NE(other, fingerprint);
  store_.set("train/metadata.jsonl", "{\"file_name\": \"b.jpg\", \"text\": \"\", \"n\": 4}\n");
  EXPECT_NE((*open())->fingerprint(), other) << "as long, and another value";
  store_.set("train/metadata.jsonl", "{\"file_name\": \"b.jpg\", \"text\": \"\", \"n\": 3}\n");
  EXPECT_EQ((*open())->fingerprint(), other) << "another version of the same content";
}

TEST_F(RawTest, AManifestOfSeparatedValuesNamesTheSamples) {
  store_.set("x/1", "one");
  store_.set("x/2", "two");
  store_.set("files.csv", "label,path\n\"a,\r\nb\",x/2\nc,x/1\n");
  options_.manifest = "files.csv";
  const auto found = samples();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0][0].bytes, "two");
  EXPECT_EQ(found[0][2].bytes, "a,\r\nb");
  EXPECT_EQ(found[1][1].bytes, "x/1");
  store_.set("files.csv", "file\nx/1\n");
  EXPECT_EQ((*open())->columns().size(), 2U);
  EXPECT_EQ(samples()[0][0].bytes, "one");
}

TEST_F(RawTest, SaysWhatIsWrongWithAManifest) {
  store_.set("a", "A");
  struct Case {
    const char* key;
    const char* text;
    Code code;
    const char* words;
  };
  const Case cases[] = {
      {"m.csv", "file\nb\n", Code::kNotFound, "/b: not there; record 0 of m.csv"},
      {"m.csv", "name\na\n", Code::kInvalidArgument, "name no file"},
      {"m.csv", "file\n../a\n", Code::kCorrupt, "record 0: names '../a'"},
      {"m.csv", "file\n", Code::kInvalidArgument, "no records"},
      {"m.csv", "", Code::kInvalidArgument, "no records"},
      {"m.csv", "file,key\na,1\n", Code::kUnsupported, "a field 'key'"},
      {"m.csv", "file,x\na\n", Code::kCorrupt, "1 fields"},
      {"m.jsonl", "[1]\n", Code::kInvalidArgument, "no JSON objects"},
      {"m.jsonl", "{\"file\": 1}\n", Code::kInvalidArgument, "name no file"},
      {"m.jsonl", "{\"file\": \"a\"}\n{\"x\": 1}\n", Code::kCorrupt, "record 1: names no file"},
      {"m.txt", "a\n", Code::kInvalidArgument, "a manifest is"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    store_.set(c.key, c.text);
    options_.manifest = c.key;
    EXPECT_EQ(code(), c.code);
    EXPECT_NE(message_.find(c.words), std::string::npos) << message_;
    EXPECT_NE(message_.find(c.key), std::string::npos) << message_;
  }
  options_.manifest = "none.csv";
  EXPECT_EQ(code(), Code::kNotFound);
  options_.labels = "folder";
  EXPECT_EQ(code(), Code::kInvalidArgument);
}

TEST_F(RawTest, RefusesAManifestThatBreaksBehindTheLinesThatMadeItsColumns) {
  store_.set("a", "A");
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"file\": \"a\", \"n\": 1}\n";
  store_.set("m.jsonl", lines + "{\"file\": \"a\", \"n\": \"x\"}\n");
  options_.manifest = "m.jsonl";
  EXPECT_EQ(code(), Code::kCorrupt);
  EXPECT_NE(message_.find("record 100"), std::string::npos) << message_;
}

}  // namespace
}  // namespace headrace::detail
