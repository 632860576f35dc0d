#include "tier/pins.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/temporary_directory.h"
#include "tier/sealed_file.h"

namespace headrace::tier {
namespace {

class PinsTest : public ::testing::Test {
 protected:
  PinsTest() : root_(::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}
  Pins pins() const { return {directory_.path(), root_.get()}; }

  const TemporaryDirectory directory_;
  const Fd root_;
};

TEST_F(PinsTest, AreSeenByOthersAtOnceAndSurvive) {
  Pins first = pins();
  Pins second = pins();
  EXPECT_FALSE(second.look());
  ASSERT_TRUE(first.add("s3://b/x/").ok());
  ASSERT_TRUE(first.add("s3://a").ok());
  ASSERT_TRUE(first.add("s3://a").ok());
  ASSERT_TRUE(second.look());
  EXPECT_TRUE(second.covers("s3://b/x/y"));
  EXPECT_FALSE(second.covers("s3://b/x"));
  EXPECT_EQ(*pins().list(), (std::vector<std::string>{"s3://a", "s3://b/x/"}));
  EXPECT_TRUE(*second.remove("s3://b/x/"));
  EXPECT_FALSE(*second.remove("s3://b/x/"));
  ASSERT_TRUE(first.look());
  EXPECT_FALSE(first.covers("s3://b/x/y"));
  EXPECT_TRUE(*first.remove("s3://a"));
  EXPECT_FALSE(second.look());
}

TEST_F(PinsTest, FindTheUrlOfAnExtentInItsFile) {
  const std::string url = "s3://b/x/object";
  const ExtentInfo info{
      .name = {object_id({}, url, "e"), 0, 3}, .object_size_bytes = 3, .url = url, .etag = "e"};
  const std::string bucket = bucket_name(bucket_of(info.name.object));
  std::filesystem::create_directory(directory_.path() + "/" + bucket);
  const Fd folder(::openat(root_.get(), bucket.c_str(), O_RDONLY | O_DIRECTORY));
  const std::string data = "abc";
  const auto bytes = std::as_bytes(std::span(data));
  ASSERT_TRUE(publish_extent(folder.get(), info.name, SealedFile(info, bytes)).ok());
  Pins pins = this->pins();
  ASSERT_TRUE(pins.add("s3://b/y").ok());
  ASSERT_TRUE(pins.look());
  EXPECT_FALSE(pins.covers(info.name));
  // What is known of the object goes with the pins that it was learned under.
  ASSERT_TRUE(pins.add("s3://b/x").ok());
  ASSERT_TRUE(pins.look());
  EXPECT_TRUE(pins.covers(info.name));
  ExtentName other = info.name;
  other.offset_bytes = 7;
  EXPECT_TRUE(pins.covers(other)) << "all extents of an object";
  EXPECT_FALSE(pins.covers(ExtentName{object_id({}, "s3://gone", "e"), 0, 3}));
}

TEST_F(PinsTest, RefuseWhatIsNone) {
  Pins pins = this->pins();
  EXPECT_EQ(pins.add("").code(), Code::kInvalidArgument);
  EXPECT_EQ(pins.add(std::string(5000, 'x')).code(), Code::kInvalidArgument);
  // A damaged one pins nothing, least of all everything.
  ASSERT_TRUE(pins.add("s3://b").ok());
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path() + "/pins"))
    std::ofstream(entry.path(), std::ios::trunc).flush();
  EXPECT_TRUE(this->pins().list()->empty());
}

}  // namespace
}  // namespace headrace::tier
