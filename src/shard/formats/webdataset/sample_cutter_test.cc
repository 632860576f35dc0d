#include "shard/formats/webdataset/sample_cutter.h"

#include <gtest/gtest.h>

#include "shard/testing/make_tar.h"

namespace headrace::detail {
namespace {

using headrace::testing::tar_member;

class SampleCutterTest : public ::testing::Test {
 protected:
  SampleCutterTest() : cutter_(columns()) {}
  static std::vector<Column> columns() {
    std::vector<Column> out;
    for (const char* name : {"__key__", "cls", "jpg", "json"}) out.emplace_back().name = name;
    return out;
  }
  Status cut(std::string run) {
    run_ = std::move(run);
    return cutter_.cut(std::as_bytes(std::span(run_)), out_);
  }
  std::string value(std::size_t c) const {
    std::string text(out_[c].size(), '\0');
    out_[c].write_to(std::as_writable_bytes(std::span(text)));
    return text;
  }

  SampleCutter cutter_;
  std::string run_;  // What the values look into.
  ColumnBytes out_[4];
};

TEST_F(SampleCutterTest, FindsFieldsInAnyOrder) {
  ASSERT_TRUE(cut(tar_member("d/a.json", "{}") + tar_member("d/a.CLS", "7")).ok());
  EXPECT_EQ(value(0), "d/a");
  EXPECT_EQ(value(1), "7");
  EXPECT_FALSE(out_[2].present);
  EXPECT_EQ(value(3), "{}");
}

TEST_F(SampleCutterTest, PassesOverWhatIsNoField) {
  const std::string run = tar_member("a.cls", "1") + tar_member("dir/", "", '5') +
                          tar_member("__meta__", "m") + tar_member("noext", "n") +
                          tar_member("a.jpg", "");
  ASSERT_TRUE(cut(run).ok());
  EXPECT_TRUE(out_[2].present);
  EXPECT_TRUE(out_[2].bytes.empty());
}

TEST_F(SampleCutterTest, JoinsAKeyInTwoPieces) {
  const std::string run =
      tar_member("a.cls", "1", '0', "long/prefix") + tar_member("long/prefix/a.jpg", "2");
  ASSERT_TRUE(cut(run).ok());
  EXPECT_EQ(value(0), "long/prefix/a");
  ASSERT_TRUE(
      cut(tar_member("meta", "x") + tar_member("d/a.cls", "1") + tar_member("a.jpg", "2", '0', "d"))
          .ok());
  EXPECT_EQ(value(0), "d/a");
  EXPECT_EQ(cut(tar_member("a.cls", "1", '0', "d") + tar_member("a.jpg", "2", '0', "e")).code(),
            Code::kCorrupt);
}

TEST_F(SampleCutterTest, RefusesWhatTheIndexDidNotSee) {
  const std::string first = tar_member("a.cls", "1");
  EXPECT_EQ(cut(first + tar_member("b.jpg", "2")).code(), Code::kCorrupt);
  EXPECT_EQ(cut(first + tar_member("a.cls", "2")).code(), Code::kCorrupt);
  EXPECT_EQ(cut(first + tar_member("a.png", "2")).code(), Code::kCorrupt);
  EXPECT_EQ(cut(first + std::string(512, '\0')).code(), Code::kCorrupt);
  EXPECT_EQ(cut(first.substr(0, 512)).code(), Code::kCorrupt);
  EXPECT_EQ(cut(first.substr(0, 300)).code(), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace::detail
