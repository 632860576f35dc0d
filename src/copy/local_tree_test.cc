#include "copy/local_tree.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/temporary_directory.h"
#include "headrace/memory.h"

namespace {

/// What was brought to the disk, newest last.
std::vector<std::string>& synced() {
  static std::vector<std::string> paths;
  return paths;
}

}  // namespace

// In the place of the C library's: nothing else tells what would survive a power failure.
extern "C" int fsync(int fd) {
  synced().push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace headrace::copy_detail {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class LocalTreeTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string content(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void make(const std::string& name, std::string_view text = "") const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(directory_.path())) {
      if (!entry.is_directory()) found.push_back(fs::relative(entry, directory_.path()));
    }
    return found;
  }
  Result<std::unique_ptr<PartialFile>> open(const std::string& version = "v1",
                                            std::uint64_t size_bytes = 10) {
    return PartialFile::open(
        tree_, {.key = "d/x", .size_bytes = size_bytes, .part_bytes = 4, .version = version}, {});
  }

  TemporaryDirectory directory_;
  LocalTree tree_{directory_.path()};
};

TEST_F(LocalTreeTest, NamesAreSyncedWithTheirFiles) {
  SmallFileWriter writer(tree_);
  ASSERT_TRUE(writer.write("d/small", bytes_of("1"), {}).ok());
  EXPECT_THAT(synced(), IsEmpty());
  ASSERT_TRUE(writer.write("d/small", bytes_of("1"), {.is_synced = true}).ok());
  ASSERT_THAT(synced(), SizeIs(2));
  EXPECT_EQ(synced()[1], path("d")) << "once the file has its name there";
  auto large = open();
  ASSERT_TRUE(large);
  ASSERT_TRUE((*large)->publish({.is_synced = true}).ok());
  ASSERT_THAT(synced(), SizeIs(4));
  EXPECT_EQ(synced()[3], path("d"));
  synced().clear();
}

TEST_F(LocalTreeTest, SmallFilesAppearWholeAndReplaceWhatWasThere) {
  SmallFileWriter writer(tree_);
  ASSERT_TRUE(writer.write("a/b/x", bytes_of("one"), {}).ok());
  ASSERT_TRUE(writer.write("a/b/x", bytes_of("two"), {.modified_unix_s = 1'000'000'000}).ok());
  ASSERT_TRUE(writer.write("y", {}, {.is_synced = true}).ok());
  EXPECT_EQ(content("a/b/x"), "two");
  struct stat info {};
  ASSERT_EQ(::stat(path("a/b/x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mtim.tv_sec, 1'000'000'000);
  EXPECT_THAT(names(), UnorderedElementsAre("a/b/x", "y"));
}

TEST_F(LocalTreeTest, ANameMayHaveToBeFree) {
  make("d/x", "theirs");
  SmallFileWriter writer(tree_);
  EXPECT_EQ(writer.write("d/x", bytes_of("ours"), {.if_absent = true}).code(), Code::kChanged);
  EXPECT_TRUE(writer.write("d/y", bytes_of("ours"), {.if_absent = true}).ok());
  auto file = open("");
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->publish({.if_absent = true}).code(), Code::kChanged);
  file->reset();
  EXPECT_EQ(content("d/x"), "theirs");
  EXPECT_THAT(names(), UnorderedElementsAre("d/x", "d/y"));
}

TEST_F(LocalTreeTest, PermissionsAreThoseOfWhatIsReplacedElseThoseAsked) {
  const auto mode = [&](const std::string& name) {
    return static_cast<unsigned>(fs::status(path(name)).permissions());
  };
  SmallFileWriter writer(tree_);
  ASSERT_TRUE(writer.write("new", {}, {.mode = 0500}).ok());
  EXPECT_EQ(mode("new"), 0500U);
  ASSERT_TRUE(writer.write("new", {}, {.mode = 0666}).ok());
  EXPECT_EQ(mode("new"), 0500U) << "its own";
  make("d/x");
  fs::permissions(path("d/x"), fs::perms::owner_read);
  auto file = open();
  ASSERT_TRUE(file);
  ASSERT_TRUE((*file)->publish({}).ok());
  EXPECT_EQ(mode("d/x"), 0400U);
}

TEST_F(LocalTreeTest, WhatIsInTheWayIsNamed) {
  make("file");
  fs::create_directories(path("directory"));
  SmallFileWriter writer(tree_);
  EXPECT_EQ(writer.write("file/x", {}, {}).code(), Code::kUnsupported);
  const Status status = writer.write("directory", {}, {});
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("directory"), std::string::npos);
  EXPECT_THAT(names(), UnorderedElementsAre("file"));
}

TEST_F(LocalTreeTest, DevicesAndFifosAreNotReplaced) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0666), 0);
  fs::create_symlink("fifo", path("to fifo"));
  fs::create_symlink("/dev/null", path("null"));
  fs::create_symlink("/proc/self/fd/0", path("stream"));
  SmallFileWriter writer(tree_);
  for (const char* name : {"fifo", "to fifo", "null", "stream"}) {
    EXPECT_EQ(writer.write(name, bytes_of("x"), {}).code(), Code::kUnsupported) << name;
    EXPECT_FALSE(fs::is_regular_file(fs::symlink_status(path(name)))) << name;
    auto file = TemporaryFile::create(directory_.path());
    ASSERT_TRUE(file);
    EXPECT_EQ(file->publish(path(name)).code(), Code::kUnsupported) << name;
  }
  fs::create_symlink("nowhere", path("dead"));
  EXPECT_TRUE(writer.write("dead", bytes_of("x"), {}).ok());
  EXPECT_EQ(content("dead"), "x");
  EXPECT_THAT(names(), SizeIs(5)) << "no temporary file is left";
}

TEST_F(LocalTreeTest, KeysThatLeaveTheRootAreRefused) {
  SmallFileWriter writer(tree_);
  ASSERT_TRUE(writer.write("a", {}, {}).ok());
  for (const char* key : {"../x", "a/../../x", "/etc/x", "a//b", "x/", "..", ".headrace-a.part"})
    EXPECT_EQ(writer.write(key, {}, {}).code(), Code::kInvalidArgument) << key;
}

TEST_F(LocalTreeTest, LeftoversOfTheDeadAreRemovedThoseOfTheLivingAreNot) {
  make(".headrace-aaaaaaaaaa.tmp");
  make(".headrace-bbbbbbbbbb.tmp");
  make(".headrace-0123456789abcdef.part");
  make(".headrace-fedcba9876543210.part");
  const Fd living(::open(path(".headrace-bbbbbbbbbb.tmp").c_str(), O_RDWR));
  ASSERT_EQ(::flock(living.get(), LOCK_EX), 0);
  const timespec long_ago[2] = {{.tv_sec = 1'000'000'000, .tv_nsec = 0},
                                {.tv_sec = 1'000'000'000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path(".headrace-fedcba9876543210.part").c_str(), long_ago, 0), 0);
  SmallFileWriter writer(tree_);
  ASSERT_TRUE(writer.write("x", {}, {}).ok());
  EXPECT_THAT(names(), UnorderedElementsAre("x", ".headrace-bbbbbbbbbb.tmp",
                                            ".headrace-0123456789abcdef.part"));
}

TEST_F(LocalTreeTest, PartsMakeAFile) {
  auto file = open();
  ASSERT_TRUE(file);
  ASSERT_TRUE((*file)->write_part(2, bytes_of("89")).ok());
  ASSERT_TRUE((*file)->write_part(0, bytes_of("0123")).ok());
  EXPECT_FALSE(fs::exists(path("d/x")));
  ASSERT_TRUE((*file)->write_part(1, bytes_of("4567")).ok());
  ASSERT_TRUE((*file)->publish({.modified_unix_s = 5}).ok());
  EXPECT_EQ(content("d/x"), "0123456789");
  EXPECT_THAT(names(), SizeIs(1));
}

TEST_F(LocalTreeTest, PartsOfAnEarlierRunAreFoundAndChecked) {
  {
    auto file = open();
    ASSERT_TRUE(file);
    ASSERT_TRUE((*file)->write_part(0, bytes_of("0123")).ok());
    ASSERT_TRUE((*file)->write_part(2, bytes_of("89")).ok());
  }
  ASSERT_THAT(names(), SizeIs(1));
  {
    std::fstream damaged(path(names()[0]), std::ios::in | std::ios::out | std::ios::binary);
    damaged.seekp(9);
    damaged << 'X';
  }
  auto file = open();
  ASSERT_TRUE(file);
  EXPECT_TRUE((*file)->has_part(0));
  EXPECT_FALSE((*file)->has_part(1));
  EXPECT_FALSE((*file)->has_part(2)) << "its bytes are not those that were written";
  ASSERT_TRUE((*file)->write_part(1, bytes_of("4567")).ok());
  ASSERT_TRUE((*file)->write_part(2, bytes_of("89")).ok());
  ASSERT_TRUE((*file)->publish({}).ok());
  EXPECT_EQ(content("d/x"), "0123456789");
}

TEST_F(LocalTreeTest, PartsOfAnotherVersionOrSizeAreNotTaken) {
  for (const auto& [version, size] : {std::pair{"v2", 10U}, std::pair{"v1", 9U}}) {
    {
      auto file = open();
      ASSERT_TRUE(file);
      ASSERT_TRUE((*file)->write_part(0, bytes_of("0123")).ok());
    }
    auto file = open(version, size);
    ASSERT_TRUE(file);
    EXPECT_FALSE((*file)->has_part(0)) << version << size;
  }
}

TEST_F(LocalTreeTest, NothingStaysOfAFileWithoutPartsOrWithoutVersion) {
  ASSERT_TRUE(open());
  EXPECT_THAT(names(), IsEmpty());
  {
    auto file = open("");
    ASSERT_TRUE(file);
    ASSERT_TRUE((*file)->write_part(0, bytes_of("0123")).ok());
  }
  EXPECT_THAT(names(), IsEmpty());
  {
    auto file = open();
    ASSERT_TRUE(file);
    ASSERT_TRUE((*file)->write_part(0, bytes_of("0123")).ok());
    (*file)->give_up();
  }
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(LocalTreeTest, LargePartsAreWrittenAndReadPastTheCache) {
  auto pool = SlabPool::create({});
  ASSERT_TRUE(pool);
  const std::size_t size = (3 << 20) + 100;
  auto slab = (*pool)->try_acquire(size);
  ASSERT_TRUE(slab);
  for (std::size_t i = 0; i < size; ++i) slab->bytes()[i] = static_cast<std::byte>(i * 31 >> 7);
  auto file = PartialFile::open(
      tree_, {.key = "x", .size_bytes = size, .part_bytes = 2 << 20, .version = "v"}, {});
  ASSERT_TRUE(file);
  ASSERT_TRUE((*file)->write_part(1, slab->bytes().subspan(2 << 20)).ok());
  ASSERT_TRUE((*file)->write_part(0, slab->bytes().first(2 << 20)).ok());
  ASSERT_TRUE((*file)->publish({}).ok());
  const Fd fd(::open(path("x").c_str(), O_RDONLY));
  const Fd direct(::open(path("x").c_str(), O_RDONLY | O_DIRECT));
  auto back = (*pool)->try_acquire(size);
  ASSERT_TRUE(back);
  for (const std::uint64_t offset : {0ULL, 4096ULL, 1000ULL}) {
    for (const int past_cache : {direct.get(), -1}) {
      static_cast<void>(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED));
      const auto out = back->bytes().first(size - offset);
      ASSERT_TRUE(read_file(fd.get(), past_cache, offset, out).ok());
      EXPECT_TRUE(std::equal(out.begin(), out.end(),
                             slab->bytes().begin() + static_cast<std::ptrdiff_t>(offset)));
      EXPECT_EQ(read_file(fd.get(), past_cache, offset + 1, out).code(), Code::kChanged);
    }
  }
}

TEST_F(LocalTreeTest, TwoOwnersOfOneFileAreRefused) {
  auto first = open();
  ASSERT_TRUE(first);
  auto second = open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kUnavailable);
}

TEST_F(LocalTreeTest, ACheckOfPartsEndsWhenStopped) {
  {
    auto file = open();
    ASSERT_TRUE(file);
    ASSERT_TRUE((*file)->write_part(0, bytes_of("0123")).ok());
  }
  std::stop_source stop;
  stop.request_stop();
  auto file = PartialFile::open(
      tree_, {.key = "d/x", .size_bytes = 10, .part_bytes = 4, .version = "v1"}, stop.get_token());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), Code::kCancelled);
  EXPECT_THAT(names(), SizeIs(1)) << "the parts stay for the next run";
}

}  // namespace
}  // namespace headrace::copy_detail
