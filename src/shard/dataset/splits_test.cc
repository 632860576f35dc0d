#include "shard/dataset/splits.h"

#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "io/testing/fake_store.h"
#include "shard/testing/make_tar.h"
#include "shard/testing/read_dataset.h"

namespace headrace::detail {
namespace {

// tests/python/test_splits.py compares with Hugging Face's own resolver on random names.
class Splits : public ::testing::Test {
 protected:
  void add(const std::vector<std::string>& names) {
    for (const std::string& name : names) store_.set(name, testing::make_tar({{"a.txt", name}}));
  }
  Result<std::shared_ptr<const Dataset>> open(const std::string& split = "") {
    DatasetOptions options;
    options.split = split;
    options.index_cache_dir = cache_.path();
    auto dataset = Dataset::open(store_, *pool_, options);
    message_ = dataset ? "" : std::string(dataset.error().message());
    return dataset;
  }
  std::vector<std::string> keys(const std::string& split) {
    std::vector<std::string> out;
    auto dataset = open(split);
    EXPECT_TRUE(dataset.has_value()) << message_;
    for (std::uint32_t s = 0; dataset && s < (*dataset)->shard_count(); ++s)
      out.emplace_back((*dataset)->shard(s).key);
    return out;
  }
  Code code(const std::string& split = "") {
    auto dataset = open(split);
    return dataset ? Code::kOk : dataset.error().code();
  }
  using Keys = std::vector<std::string>;

  const TemporaryDirectory cache_;
  testing::FakeStore store_;
  std::unique_ptr<SlabPool> pool_ = testing::make_pool(16 << 20);
  std::string message_;
};

TEST_F(Splits, HaveToBeChosen) {
  add({"train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"});
  store_.set("README.md", "---\n");
  store_.set("dataset_infos.json", "{}");
  EXPECT_EQ(code(), Code::kInvalidArgument);
  EXPECT_NE(message_.find("train (2 files), test (1 file)"), std::string::npos) << message_;
  EXPECT_EQ(keys("train"), (Keys{"train-00000-of-00002", "train-00001-of-00002"}));
  EXPECT_EQ(keys("test"), Keys{"test-00000-of-00001"});
  EXPECT_EQ(keys("all").size(), 3U);
  EXPECT_EQ(code(), Code::kInvalidArgument);  // Not the index of all that is cached by now.
  EXPECT_EQ(code("validation"), Code::kNotFound);
  EXPECT_NE(message_.find("train (2 files)"), std::string::npos) << message_;
}

TEST_F(Splits, AreFoldersBeforeTheyAreNamesOfFiles) {
  add({"train/test-1.tar", "train/2.tar", "my_val/1.tar"});
  EXPECT_EQ(code(), Code::kInvalidArgument);
  EXPECT_EQ(keys("train"), (Keys{"train/2.tar", "train/test-1.tar"}));
  EXPECT_EQ(keys("validation"), Keys{"my_val/1.tar"});
  EXPECT_EQ(keys("val"), Keys{"my_val/1.tar"});
  EXPECT_EQ(code("test"), Code::kNotFound);
}

TEST_F(Splits, HaveAnyNameAsShardsOfData) {
  add({"data/clean-00000-of-00002.tar", "data/clean-00001-of-00002.tar",
       "data/other-00000-of-00001.tar", "extra/train.tar"});
  EXPECT_EQ(code(), Code::kInvalidArgument);
  EXPECT_EQ(keys("clean").size(), 2U);
  EXPECT_EQ(keys("other"), Keys{"data/other-00000-of-00001.tar"});
}

TEST_F(Splits, AreWholeWordsOnly) {
  add({"training.tar", "contest-1.tar", "latest.tar", "evals.tar", "devices-1.tar"});
  EXPECT_EQ(code(), Code::kOk);
  add({"a_eval_1.tar"});
  EXPECT_EQ(code(), Code::kInvalidArgument);
}

TEST_F(Splits, MayBeOfJsonBesideOtherJson) {
  const std::string lines = "{\"a\": 1}\n{\"a\": 2}\n";
  store_.set("train.json", lines);
  store_.set("test.jsonl", lines);
  store_.set("notes.md", "about train and validation");
  EXPECT_EQ(code(), Code::kInvalidArgument);
  EXPECT_NE(message_.find("train (1 file), test (1 file)"), std::string::npos) << message_;
  EXPECT_EQ(keys("train"), Keys{"train.json"});
  EXPECT_EQ(keys("test"), Keys{"test.jsonl"});
  EXPECT_EQ(keys("all"), (Keys{"test.jsonl", "train.json"}));
  EXPECT_EQ(code("validation"), Code::kNotFound);
}

TEST_F(Splits, AreNoneWhereNothingSpeaksOfThem) {
  add({"0.tar", "1.tar"});
  EXPECT_EQ(code(), Code::kOk);
  EXPECT_EQ(code("train"), Code::kNotFound);
  add({"train.tar"});
  EXPECT_EQ(keys("").size(), 3U);  // One split: nothing to choose, and nothing is left out.
}

TEST_F(Splits, AreNotFoundInTheWordsOfAnyFile) {
  store_.set("train of thought.jpg", "x");
  store_.set("my test drive.jpg", "x");
  EXPECT_EQ(code(), Code::kInvalidArgument);
  store_.set("beach.jpg", "x");
  EXPECT_EQ(code(), Code::kOk);
  DatasetOptions raw;
  raw.format = Format::kRaw;
  store_.set("train/1.jpg", "x");
  store_.set("test/1.jpg", "x");
  EXPECT_EQ(code(), Code::kInvalidArgument);
  EXPECT_TRUE(Dataset::open(store_, *pool_, raw).has_value());
}

TEST_F(Splits, AreChosenAmongGivenKeys) {
  add({"train-0.tar", "train-1.tar", "test-0.tar"});
  DatasetOptions options;
  options.keys = {"train-1.tar", "test-0.tar"};
  auto both = Dataset::open(store_, *pool_, options);
  ASSERT_TRUE(both.has_value()) << both.error().message();
  EXPECT_EQ((*both)->shard_count(), 2U);
  options.split = "train";
  auto one = Dataset::open(store_, *pool_, options);
  ASSERT_TRUE(one.has_value()) << one.error().message();
  EXPECT_EQ((*one)->shard(0).key, "train-1.tar");
  EXPECT_EQ((*one)->shard_count(), 1U);
}

TEST_F(Splits, AreNotThoseOfAnIndexOfAll) {
  add({"train-0.tar", "test-0.tar"});
  DatasetOptions options;
  options.split = "test";
  auto index = build_index(store_, *pool_, options);
  ASSERT_TRUE(index.has_value()) << index.error().message();
  store_.set("index.hri", *index);
  EXPECT_EQ(keys(""), Keys{"test-0.tar"});  // What was indexed is the dataset.
  EXPECT_EQ(keys("train"), Keys{"train-0.tar"});
}

}  // namespace
}  // namespace headrace::detail
