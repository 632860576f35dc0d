#include "shard/dataset/empty_shard.h"

#include <gtest/gtest.h>

#include "io/testing/fake_store.h"
#include "shard/testing/dataset_fixture.h"
#include "shard/testing/deflate.h"
#include "shard/testing/make_tar.h"
#include "shard/testing/read_dataset.h"

namespace headrace::detail {
namespace {

class EmptyShard : public testing::DatasetFixture {
 protected:
  const std::string lines_ = "{\"a\": 1}\n{\"a\": 2}\n";
};

TEST_F(EmptyShard, IsAnErrorThatNamesIt) {
  const std::string tar = testing::make_tar({{"a.txt", "1"}});
  const std::string npy = "\x93NUMPY\x01" + std::string("\0", 1) + std::string(100, ' ');
  const std::string packed = testing::deflate(Compression::kGzip, lines_);
  const std::pair<std::string, std::string> cases[] = {
      {".tar", tar},         {".tfrecord", ""},     {".tfrecord.gz", ""}, {".parquet", ""},
      {".arrow", ""},        {".jsonl.gz", packed}, {".npy", npy},        {".csv", "a,b\n1,2\n"},
      {".array_record", ""}, {".tar.gz", ""}};
  for (const auto& [ending, good] : cases) {
    SCOPED_TRACE(ending);
    store_.shared().objects.clear();
    store_.set("part-0" + ending, good);
    store_.set("part-1" + ending, "");
    store_.set("part-2" + ending, good);
    EXPECT_EQ(code(), Code::kCorrupt);
    expect_message("part-" + std::string(good.empty() ? "0" : "1") + ending);
  }
}

TEST_F(EmptyShard, IsNoneWhereItsFormatSaysSo) {
  store_.set("a.jsonl", lines_);
  store_.set("b.jsonl", "");
  EXPECT_EQ(code(), Code::kOk);
  store_.set("c.jsonl.gz", testing::deflate(Compression::kGzip, lines_));
  EXPECT_EQ(code(), Code::kOk);
  store_.set("c_$folder$", "");  // Hadoop's mark of a directory.
  EXPECT_EQ(code(), Code::kOk);
  store_.shared().objects.clear();
  store_.set("a.jpg", "x");
  store_.set("b.jpg", "");
  EXPECT_EQ(code(), Code::kOk);
}

TEST_F(EmptyShard, IsFoundAmongCompressedFilesWithoutNamesOfTheirs) {
  store_.set("part-0", testing::deflate(Compression::kZstd, lines_));
  store_.set("part-1", "");
  store_.set("part-2", testing::deflate(Compression::kZstd, lines_));
  EXPECT_EQ(code(), Code::kCorrupt);
  expect_message("part-1");
}

TEST_F(EmptyShard, CountsUnderAnotherName) {
  store_.set("a.tar", testing::make_tar({{"a.txt", "1"}}));
  store_.set("b.dat", "");
  EXPECT_EQ(code(), Code::kCorrupt);
  expect_message("b.dat");
}

TEST_F(EmptyShard, IsAnEmptyRecordFileToTheLenient) {
  store_.set("a.tfrecord", "");
  DatasetOptions lenient;
  lenient.lenient = true;
  EXPECT_EQ(code(), Code::kCorrupt);
  expect_message("lenient");
  EXPECT_EQ(code(lenient), Code::kOk);
}

TEST_F(EmptyShard, OfTokensNeedsAnIndexThatSaysSo) {
  store_.set("a.bin", std::string(64, '\1'));
  store_.set("b.bin", "");
  DatasetOptions tokens;
  tokens.format = Format::kTokens;
  tokens.tokens_per_sample = 8;
  EXPECT_EQ(code(tokens), Code::kCorrupt);
  expect_message("b.bin");
}

}  // namespace
}  // namespace headrace::detail
