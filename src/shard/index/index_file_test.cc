#include "shard/index/index_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_directory.h"

namespace headrace::detail {
namespace {

std::string text_of(const IndexBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
}

TEST(IndexFile, ReadsWhatWasPublished) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a/b/index";
  ASSERT_TRUE(publish_file(path, "first").ok());
  auto first = IndexBytes::read(path);
  ASSERT_TRUE(first.has_value());
  // Replacing a file leaves the mapping of the old one as it was.
  ASSERT_TRUE(publish_file(path, "second, and longer").ok());
  EXPECT_EQ(text_of(*first), "first");
  EXPECT_EQ(text_of(*IndexBytes::read(path)), "second, and longer");
}

TEST(IndexFile, DoesNotMindWhatHappensToTheFileLater) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/index";
  const std::string content(100'000, 'x');
  ASSERT_TRUE(publish_file(path, content).ok());
  auto bytes = IndexBytes::read(path);
  ASSERT_TRUE(bytes.has_value());
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(text_of(*bytes), content);  // SIGBUS, were it mapped.
}

TEST(IndexFile, ReadsAllOfWhatIsNoIndex) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/index";
  ASSERT_TRUE(publish_file(path, "ten bytes.").ok());
  EXPECT_EQ(text_of(*IndexBytes::read(path, 9)), "ten bytes.");
  EXPECT_EQ(text_of(*IndexBytes::read(path, 10)), "ten bytes.");
  const std::string content(100'000, 'x');
  ASSERT_TRUE(publish_file(path, content).ok());
  EXPECT_EQ(text_of(*IndexBytes::read(path, 9)), content);
}

TEST(IndexFile, KeepsItsBytesWhenMoved) {
  IndexBytes owned(std::string("short"));
  const auto before = owned.bytes();
  const IndexBytes moved(std::move(owned));
  EXPECT_EQ(moved.bytes().data(), before.data());
  IndexBytes assigned;
  assigned = IndexBytes(std::string("other"));
  EXPECT_EQ(text_of(assigned), "other");
}

TEST(IndexFile, SaysWhatIsMissing) {
  const TemporaryDirectory directory;
  auto none = IndexBytes::read(directory.path() + "/none");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), Code::kNotFound);
  EXPECT_NE(none.error().message().find("none"), std::string_view::npos);
  ASSERT_TRUE(publish_file(directory.path() + "/empty", "").ok());
  EXPECT_FALSE(IndexBytes::read(directory.path() + "/empty").has_value());
  EXPECT_FALSE(publish_file("/proc/none/at/all", "x").ok());
}

TEST(IndexFile, NamesDifferWithUrlAndManifest) {
  const std::string a = cached_index_path("/d", "s3://b/x", "1");
  EXPECT_EQ(a.size(), std::string("/d/").size() + 32 + 4);
  EXPECT_EQ(a, cached_index_path("/d", "s3://b/x", "1"));
  EXPECT_NE(a, cached_index_path("/d", "s3://b/y", "1"));
  EXPECT_NE(a, cached_index_path("/d", "s3://b/x", "2"));
  EXPECT_NE(cached_index_path("/d", "ab", "c"), cached_index_path("/d", "a", "bc"));
}

}  // namespace
}  // namespace headrace::detail
