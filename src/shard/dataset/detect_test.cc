#include "shard/dataset/detect.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "io/testing/fake_store.h"
#include "shard/testing/dataset_fixture.h"
#include "shard/testing/deflate.h"
#include "shard/testing/make_tar.h"
#include "shard/testing/read_dataset.h"
#include "shard/testing/reference.h"

namespace headrace::detail {
namespace {

class Detect : public testing::DatasetFixture {
 protected:
  Result<DataObjects> choose() {
    const BuildContext context{store_, *pool_, options_, call_};
    HEADRACE_TRY_ASSIGN(auto candidates, list_candidates(context));
    return choose_objects(context, std::move(candidates));
  }
  Format format() {
    auto found = choose();
    EXPECT_EQ(code_of(found), Code::kOk) << message_;
    return found ? found->format : Format::kAuto;
  }
  Code code() { return code_of(choose()); }
  std::vector<std::string> keys() {
    std::vector<std::string> out;
    auto found = choose();
    if (found) {
      for (const ObjectInfo& object : found->objects) out.push_back(object.key);
    }
    return out;
  }
  std::string reference(const std::string& path) {
    return testing::read_file(testing::reference_path(path));
  }

  DatasetOptions options_;
  const CallOptions call_{};
};

std::string first_file(const std::filesystem::path& dir, const std::string& ending) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (entry.path().string().ends_with(ending)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths.empty() ? "" : testing::read_file(paths.front());
}

TEST_F(Detect, FindsFormatsWithoutTheirNames) {
  const std::string tar = testing::make_tar({{"a.txt", "1"}});
  const std::string record = first_file(testing::reference_path("tfrecord"), ".tfrecord");
  const std::string parquet = first_file(testing::reference_path("parquet"), ".parquet");
  const std::string npy = std::string("\x93NUMPY\x01\0", 8) + std::string(100, ' ');
  const std::string lines = "{\"a\": 1}\n{\"a\": 2}\n";
  struct Case {
    std::string key, bytes;
    Format format;
  };
  const Case cases[] = {{"x/train-00000-of-00001", record, Format::kTfRecord},
                        {"table.bin", parquet, Format::kTable},
                        {"tars.data", tar, Format::kWebDataset},
                        {"packed", testing::deflate(Compression::kGzip, tar), Format::kWebDataset},
                        {"array.dat", npy, Format::kNumpy},
                        {"lines", lines, Format::kText},
                        {"lines.zst", testing::deflate(Compression::kZstd, lines), Format::kText},
                        {"photo.tar", "\xff\xd8\xff", Format::kWebDataset},  // Claimed.
                        {"photo.jpg", "\xff\xd8\xff", Format::kRaw},
                        {"notes.gz", "\x1f\x8b\x08 no gzip at all", Format::kRaw}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.key);
    ASSERT_FALSE(c.bytes.empty());
    store_.shared().objects.clear();
    store_.set(c.key, c.bytes);
    EXPECT_EQ(format(), c.format);
  }
}

// Lines that do not shrink much, so that compressed data begins with a large block.
std::string many_lines() {
  std::mt19937_64 random(1);
  std::string lines;
  while (lines.size() < 2'000'000) lines += fmt::format("{{\"a\": \"{:x}\"}}\n", random());
  return lines;
}

TEST_F(Detect, ReadsOnUntilCompressedDataSaysWhatItIs) {
  const std::string lines = many_lines();
  for (const Compression compression : {Compression::kBzip2, Compression::kZstd}) {
    store_.shared().objects.clear();
    store_.set("part-0", testing::deflate(compression, lines));
    EXPECT_EQ(format(), Format::kText);
  }
  // Nothing can be said of what ends before its first block does.
  const std::string cut = testing::deflate(Compression::kBzip2, lines).substr(0, 200'000);
  store_.set("part-0", cut);
  EXPECT_EQ(code(), Code::kUnsupported);
  EXPECT_NE(message_.find("part-0"), std::string::npos) << message_;
}

TEST_F(Detect, PassesOverSideFiles) {
  store_.set("a-0.data", testing::make_tar({{"a.txt", "1"}}));
  store_.set("a-1.data", testing::make_tar({{"b.txt", "1"}}));
  for (const char* key : {"a-0.idx", "info.json", "README", "README.md", "_SUCCESS", "a-0.data.crc",
                          "conf.yaml", ".hidden", "x/.git/data", "index.hri"}) {
    store_.set(key, "anything");
  }
  EXPECT_EQ(format(), Format::kWebDataset);
  EXPECT_EQ(keys(), (std::vector<std::string>{"a-0.data", "a-1.data"}));
}

TEST_F(Detect, AsksWhatFewOrLargeBinFilesAre) {
  store_.set("train.bin", std::string(256 << 10, 'x'));
  store_.set("val.bin", "x");
  EXPECT_EQ(code(), Code::kInvalidArgument);
  for (const char* part : {"train.bin", "format='tokens'", "format='raw'"})
    EXPECT_NE(message_.find(part), std::string::npos) << message_;
  options_.format = Format::kRaw;
  EXPECT_EQ(keys().size(), 2U);
  options_.format = Format::kAuto;
  store_.set("input.dat", std::string(200 << 10, 'x'));
  EXPECT_EQ(code(), Code::kInvalidArgument) << "what they were made of";
  EXPECT_NE(message_.find("train.bin"), std::string::npos) << message_;
  store_.set("input.dat", std::string(300 << 10, 'x'));
  EXPECT_EQ(format(), Format::kRaw);
}

TEST_F(Detect, ManySmallBinFilesAreSamples) {
  for (int i = 0; i < 17; ++i) store_.set(fmt::format("{:02}.bin", i), std::string(300 << 10, 'x'));
  EXPECT_EQ(format(), Format::kRaw);
  for (int i = 0; i < 17; ++i) store_.set(fmt::format("{:02}.bin", i), std::string(9 << 20, 'x'));
  EXPECT_EQ(code(), Code::kInvalidArgument);
}

TEST_F(Detect, NamesBothFormatsOfAMixture) {
  store_.set("a.one", testing::make_tar({{"a.txt", "1"}}));
  store_.set("b.two", "{\"a\": 1}\n{\"a\": 2}\n");
  EXPECT_EQ(code(), Code::kInvalidArgument);
  for (const char* part : {"a.one", "webdataset", "b.two", "text", "format="})
    EXPECT_NE(message_.find(part), std::string::npos) << message_;
  options_.format = Format::kText;
  EXPECT_EQ(keys(), std::vector<std::string>{"b.two"});
  options_.format = Format::kRaw;
  EXPECT_EQ(keys().size(), 2U);
}

TEST_F(Detect, FindsAMixtureUnderNamesOfOneKind) {
  store_.set("a-1.bin", testing::make_tar({{"a.txt", "1"}}));
  store_.set("a-2.bin", "{\"a\": 1}\n{\"a\": 2}\n");
  EXPECT_EQ(code(), Code::kInvalidArgument);
  EXPECT_NE(message_.find("a-2.bin"), std::string::npos) << message_;
}

TEST_F(Detect, FindsLinesAmongNothingButSideFiles) {
  store_.set("data.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
  store_.set("README.txt", "about");
  EXPECT_EQ(format(), Format::kText);
  EXPECT_EQ(keys(), std::vector<std::string>{"data.jsonl"});
}

TEST_F(Detect, KnowsMegatronByWhatLiesBeside) {
  store_.set("text.bin", std::string(100, '\7'));
  EXPECT_EQ(format(), Format::kRaw);
  store_.set("text.idx", std::string("MMIDIDX\0\0", 9) + std::string(40, '\1'));
  EXPECT_EQ(format(), Format::kTokens);
  EXPECT_EQ(keys(), std::vector<std::string>{"text.bin"});
}

TEST_F(Detect, KnowsAZipOfArraysFromOtherZips) {
  const auto zip = [](std::string_view name) {
    std::string head("PK\3\4", 4);
    head.append(22, '\0').push_back(static_cast<char>(name.size()));
    return head.append(3, '\0').append(name) + "content";
  };
  store_.set("a", zip("x.npy"));
  EXPECT_EQ(format(), Format::kNumpy);
  store_.set("a", zip("word/document.xml"));
  EXPECT_EQ(format(), Format::kRaw);
}

TEST_F(Detect, KnowsLanceByItsManifests) {
  store_.set("_versions/1.manifest", "x");
  store_.set("data/0.lance", "x");
  EXPECT_EQ(format(), Format::kTable);
  EXPECT_EQ(keys().size(), 2U);
}

TEST_F(Detect, TakesTheKeysGivenInTheirOrder) {
  for (int i = 0; i < 30; ++i)
    store_.set("d/" + std::to_string(i) + ".tar", testing::make_tar({{"a.txt", "1"}}));
  options_.keys = {"d/7.tar", "d/2.tar", "d/7.tar"};
  EXPECT_EQ(format(), Format::kWebDataset);
  EXPECT_EQ(keys(), options_.keys);
  for (int i = 0; i < 28; ++i) options_.keys.push_back("d/" + std::to_string(29 - i) + ".tar");
  EXPECT_EQ(keys(), options_.keys);
  EXPECT_GT(store_.shared().list_count, 0U);
  options_.keys.push_back("d/none.tar");
  EXPECT_EQ(code(), Code::kNotFound);
  EXPECT_NE(message_.find("d/none.tar"), std::string::npos);
  options_.keys = {"d/none.tar"};
  EXPECT_EQ(code(), Code::kNotFound);
}

TEST_F(Detect, LooksIntoFewOfManyObjects) {
  for (std::size_t i = 0; i < 200; ++i)
    store_.set("f" + std::to_string(i) + "." + std::string(1 + i % 40, 'e'), "content");
  EXPECT_EQ(format(), Format::kRaw);
  EXPECT_LE(store_.shared().get_count, 32U);
}

TEST_F(Detect, SaysThatNothingIsThere) {
  EXPECT_EQ(code(), Code::kNotFound);
  store_.set("x.txt", "x");
  options_.format = Format::kWebDataset;
  EXPECT_EQ(code(), Code::kNotFound);
}

TEST_F(Detect, LosesNoLinesBesideOtherLines) {
  const std::string lines = "{\"a\": 1}\n{\"a\": 2}\n";
  store_.set("a.jsonl", lines);
  store_.set("b.jsonl.gz", testing::deflate(Compression::kGzip, lines));
  store_.set("info.json", "{}");
  store_.set("notes.txt", "about these");
  store_.set("README.txt", "about these");
  EXPECT_EQ(format(), Format::kText);
  EXPECT_EQ(keys(), (std::vector<std::string>{"a.jsonl", "b.jsonl.gz"}));
  options_.format = Format::kText;
  EXPECT_EQ(code(), Code::kInvalidArgument);  // notes.txt may be text that was asked for.
  EXPECT_NE(message_.find("notes.txt"), std::string::npos) << message_;
  store_.shared().objects.erase("notes.txt");
  EXPECT_EQ(keys(), (std::vector<std::string>{"a.jsonl", "b.jsonl.gz"}));
}

TEST_F(Detect, LosesNoJsonBesideOtherJson) {
  const std::string lines = "{\"a\": 1}\n{\"a\": 2}\n";
  for (const char* name : {"b.json.gz", "b.jsonl", "b.ndjson"}) {
    SCOPED_TRACE(name);
    const bool is_gzip = std::string_view(name).ends_with(".gz");
    for (const std::string& json : {lines, std::string("[{\"a\": 1}]\n")}) {
      store_.shared().objects.clear();
      store_.set("a.json", lines);
      store_.set("c.json", json);
      store_.set("conf.json", "{\n  \"a\": 1\n}\n");
      store_.set("info.json", lines);
      store_.set("scores.json", "[1, 2]");
      store_.set("state.json", "{}");
      store_.set(name, is_gzip ? testing::deflate(Compression::kGzip, lines) : lines);
      for (const Format format : {Format::kAuto, Format::kText}) {
        options_.format = format;
        EXPECT_EQ(keys(), (std::vector<std::string>{"a.json", name, "c.json"}));
      }
      options_.format = Format::kAuto;
      // A sample or not?
      for (const char* one : {"{\"a\": 1}", "{\"a\": 1}\n\n"}) {
        store_.set("d.json", one);
        EXPECT_EQ(code(), Code::kInvalidArgument);
        for (const char* part : {"d.json", name, "pattern"})
          EXPECT_NE(message_.find(part), std::string::npos) << message_;
      }
    }
  }
  store_.shared().objects.clear();
  store_.set("a.json", lines);
  store_.set("b.log", "one\ntwo\n");
  options_.format = Format::kText;
  EXPECT_EQ(code(), Code::kInvalidArgument);
  for (const char* part : {"a.json", "b.log"})
    EXPECT_NE(message_.find(part), std::string::npos) << message_;
  store_.set("a.json", "{}");
  EXPECT_EQ(keys(), std::vector<std::string>{"b.log"});
  options_ = {.keys = {"c.jsonl", "b.jsonl"}};
  for (const char* key : {"a.json", "b.jsonl", "c.jsonl"}) store_.set(key, lines);
  EXPECT_EQ(keys(), options_.keys);
}

TEST_F(Detect, TakesEveryFileAsTextWhenAskedFor) {
  store_.set("a.txt", "one\n");
  store_.set("b.log", "two\n");
  store_.set("README", "about");
  options_.format = Format::kText;
  EXPECT_EQ(keys(), (std::vector<std::string>{"a.txt", "b.log"}));
}

TEST_F(Detect, ReadsNoOtherFormatAsTokensOrText) {
  const std::string tokens = "aabbccdd";
  const std::string npy = std::string("\x93NUMPY\x01\0", 8) + std::string(100, ' ');
  const std::string tar = testing::make_tar({{"a.txt", "1"}});
  struct Case {
    Format format;
    std::string key, bytes, what;
  };
  const Case cases[] = {
      {Format::kTokens, "a.bin.gz", testing::deflate(Compression::kGzip, tokens), "compressed"},
      {Format::kTokens, "a.npy", npy, "numpy"},
      {Format::kTokens, "a.parquet", "PAR1" + std::string(100, ' '), "table"},
      {Format::kText, "a.data", tar, "webdataset"},
      {Format::kText, "a.tar.gz", testing::deflate(Compression::kGzip, tar), "webdataset"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.key);
    store_.shared().objects.clear();
    options_ = {.format = c.format};
    store_.set(c.key, c.bytes);
    store_.set("b.bin", tokens);
    EXPECT_EQ(code(), Code::kInvalidArgument);
    for (const std::string& part : {c.key, c.what})
      EXPECT_NE(message_.find(part), std::string::npos) << message_;
    options_.keys = {c.key};
    EXPECT_EQ(code(), Code::kInvalidArgument);
    options_.keys = {"b.bin"};
    EXPECT_EQ(keys(), std::vector<std::string>{"b.bin"});
  }
  // What begins like a compressed file and is none may be tokens; CSV has no mark.
  store_.shared().objects.clear();
  options_ = {.format = Format::kTokens};
  store_.set("a.bin", "\x1f\x8b\x08 no gzip at all");
  EXPECT_EQ(format(), Format::kTokens);
  store_.shared().objects.clear();
  options_ = {.format = Format::kText};
  store_.set("a.csv", "a,b\n1,2\n");
  EXPECT_EQ(format(), Format::kText);
}

TEST_F(Detect, LeavesTextBesideATarAlone) {
  store_.set("a.tar", testing::make_tar({{"a.txt", "1"}}));
  store_.set("a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
  store_.set("a.txt", "one\n");
  EXPECT_EQ(format(), Format::kWebDataset);
  EXPECT_EQ(keys(), std::vector<std::string>{"a.tar"});
}

}  // namespace
}  // namespace headrace::detail
