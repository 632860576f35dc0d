#include "base/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/temporary_directory.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename());
  return names;
}

TEST(AtomicFile, WritesAndReplaces) {
  const TemporaryDirectory dir;
  const std::string path = dir.path() + "/x";
  ASSERT_TRUE(atomic_write_file(path, "one").ok());
  EXPECT_EQ(content_of(path), "one");
  ASSERT_TRUE(atomic_write_file(path, std::string_view("two\0!", 5)).ok());
  EXPECT_EQ(content_of(path), std::string_view("two\0!", 5));
  EXPECT_THAT(names_in(dir.path()), ::testing::ElementsAre("x"));
}

TEST(AtomicFile, ReportsAMissingDirectory) {
  const TemporaryDirectory dir;
  EXPECT_EQ(atomic_write_file(dir.path() + "/none/x", "1").code(), Code::kNotFound);
}

TEST(AtomicFile, FollowsTheUmask) {
  const TemporaryDirectory dir;
  const mode_t before = ::umask(027);
  ASSERT_TRUE(atomic_write_file(dir.path() + "/x", "1").ok());
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat((dir.path() + "/x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640U);
}

TEST(AtomicFile, PublishIfAbsentRefusesATakenName) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(atomic_write_file(dir.path() + "/x", "old").ok());
  {
    auto file = TemporaryFile::create(dir.path());
    ASSERT_TRUE(file);
    EXPECT_EQ(file->publish(dir.path() + "/x", true).code(), Code::kChanged);
    EXPECT_TRUE(file->publish(dir.path() + "/y", true).ok());
  }
  EXPECT_EQ(content_of(dir.path() + "/x"), "old");
  EXPECT_THAT(names_in(dir.path()), ::testing::UnorderedElementsAre("x", "y"));
}

TEST(AtomicFile, LeavesNothingWhenNotPublished) {
  const TemporaryDirectory dir;
  {
    auto file = TemporaryFile::create(dir.path());
    ASSERT_TRUE(file);
    EXPECT_TRUE(is_temporary_name(fs::path(file->path()).filename().string()));
    EXPECT_EQ(names_in(dir.path()).size(), 1U);
  }
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(AtomicFile, CleansUpAfterDeadWritersOnly) {
  const TemporaryDirectory dir;
  auto alive = TemporaryFile::create(dir.path());
  ASSERT_TRUE(alive);
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = TemporaryFile::create(dir.path());
    ::_exit(file ? 0 : 1);  // no destructors: as if killed
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(names_in(dir.path()).size(), 2U);
  remove_stale_temporaries(dir.path());
  EXPECT_THAT(names_in(dir.path()),
              ::testing::ElementsAre(fs::path(alive->path()).filename().string()));
}

TEST(AtomicFile, DoesNotTouchNamesOfOthers) {
  EXPECT_FALSE(is_temporary_name(".headrace-notes.tmp"));
  EXPECT_FALSE(is_temporary_name("x.tmp"));
  EXPECT_TRUE(is_temporary_name(".headrace-0123456789.tmp"));
}

TEST(AtomicFile, PrivateFilesAndDirectoriesAreTheirOwnersOnly) {
  const TemporaryDirectory directory;
  const auto mode_of = [](const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777U;
  };
  const std::string path = directory.path() + "/a/b/c";
  make_private_directories(path);
  EXPECT_EQ(mode_of(directory.path() + "/a"), 0700U);
  EXPECT_EQ(mode_of(path), 0700U);
  ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  make_private_directories(path);
  EXPECT_EQ(mode_of(path), 0755U);  // As its owner wants it.
  ASSERT_TRUE(atomic_write_private_file(path + "/x", "text").ok());
  EXPECT_EQ(mode_of(path + "/x"), 0600U);
}

}  // namespace
}  // namespace headrace
