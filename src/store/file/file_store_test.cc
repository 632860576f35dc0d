#include "store/file/file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/manual_clock.h"
#include "base/temporary_directory.h"
#include "store/file/file_io.h"
#include "store/file/file_key.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest() {
    store_ = open();
    auto pool = SlabPool::create({});
    EXPECT_TRUE(pool);
    pool_ = *std::move(pool);
  }
  std::unique_ptr<Store> open() const {
    StoreOptions options;
    options.url = directory_.path() + "/root";
    auto store = open_file_store(options);
    EXPECT_TRUE(store);
    return *std::move(store);
  }
  std::string path(const std::string& key) const { return directory_.path() + "/root/" + key; }
  void write(const std::string& key, std::string_view bytes) const {
    fs::create_directories(fs::path(path(key)).parent_path());
    std::ofstream(path(key), std::ios::binary) << bytes;
  }
  Completion put(const std::string& key, Op op = Op::kPut, const std::string& upload_id = "") {
    Request request;
    request.op = op;
    request.key = key;
    request.upload_id = upload_id;
    request.part_number = 1;
    request.length_bytes = 3;
    request.slab = *pool_->try_acquire(3);
    std::memcpy(request.slab.bytes().data(), "abc", 3);
    EXPECT_EQ(store_->submit({&request, 1}), 1U);
    Completion done;
    EXPECT_EQ(store_->wait({&done, 1}, TimePoint::max()), 1U);
    return done;
  }
  std::vector<std::string> keys(const std::string& prefix = "") {
    std::vector<std::string> found;
    auto all = list_all(*store_, prefix);
    EXPECT_TRUE(all) << all.error().message();
    if (!all) return found;
    for (const ObjectInfo& info : *all) found.push_back(info.key);
    return found;
  }
  std::vector<std::string> names_in_root() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path("")))
      names.push_back(entry.path().filename());
    return names;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<SlabPool> pool_;
  std::unique_ptr<Store> store_;
};

TEST(FileKey, KeysThatWouldLeaveTheRootOrHaveNoPathAreRefused) {
  for (const char* key : {"", "/", "/etc/passwd", "..", "a/../b", "./a", "a/.", "a//b", "a/",
                          ".headrace-upload-x/part-1", "a/.headrace-0123456789.tmp"}) {
    EXPECT_EQ(file::check_key(key).code(), Code::kInvalidArgument) << key;
  }
  EXPECT_EQ(file::check_key(std::string_view("a\0b", 3)).code(), Code::kInvalidArgument);
  for (const char* key : {"a", "a/b", "...", "..a", "a..", ".a/b.", ".headrac"}) {
    EXPECT_TRUE(file::check_key(key).ok()) << key;
  }
}

TEST(FileKey, RootsComeFromUrlsAndPlainPaths) {
  EXPECT_EQ(*file::root_of("file:///data/x/"), "/data/x");
  EXPECT_EQ(*file::root_of("file://localhost/data"), "/data");
  EXPECT_EQ(*file::root_of("relative/dir"), "relative/dir");
  EXPECT_EQ(*file::root_of("/"), "/");
  EXPECT_EQ(*file::root_of("/a b%20c"), "/a b%20c");
  EXPECT_EQ(file::root_of("file://host/data").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(file::root_of("").error().code(), Code::kInvalidArgument);
}

TEST(FileKey, ARelativeRootIsThatOfTheMoment) {
  EXPECT_EQ(*file::lasting_root_of("relative/dir"), fs::current_path() / "relative/dir");
  EXPECT_EQ(*file::lasting_root_of("/data"), "/data");
  EXPECT_EQ(file::lasting_root_of("").error().code(), Code::kInvalidArgument);
}

TEST_F(FileStoreTest, ARelativePathDoesNotFollowTheProcessIntoAnotherDirectory) {
  write("here/root/key", "here");
  write("there/root/key", "there");
  const fs::path before = fs::current_path();
  fs::current_path(path("here"));
  StoreOptions options;
  options.url = "root";
  auto store = open_file_store(options);
  fs::current_path(path("there"));
  auto info = (*store)->head("key");
  fs::current_path(before);
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->size_bytes, 4U);
}

TEST_F(FileStoreTest, FilesOfAnotherPlaceAreOthers) {
  write("a/key", "a");
  write("b/key", "b");
  const auto origin_of = [&](const std::string& url) {
    StoreOptions options;
    options.url = url;
    return (*open_file_store(options))->origin();
  };
  EXPECT_NE(origin_of(path("a")), origin_of(path("b")));
  EXPECT_EQ(origin_of(path("a")), origin_of("file://" + path("a") + "/"));
  if (fs::exists("/proc/self")) {  // Another file system.
    EXPECT_NE(origin_of("/proc").substr(0, 12), origin_of(path("a")).substr(0, 12));
  }
  const fs::path before = fs::current_path();
  fs::current_path(path(""));
  const std::string relative = origin_of("a");
  fs::current_path(before);
  EXPECT_EQ(relative, origin_of(path("a")));
}

TEST_F(FileStoreTest, TraversalIsRefusedByEveryOperation) {
  write("../secret", "x");
  EXPECT_EQ(put("../out").status.code(), Code::kInvalidArgument);
  EXPECT_EQ(store_->head("../secret").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(store_->remove("../secret").code(), Code::kInvalidArgument);
  EXPECT_EQ(store_->copy("../secret", "x").error().code(), Code::kInvalidArgument);
  write("x", "x");
  EXPECT_EQ(store_->copy("x", "../y").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(store_->create_upload("../y").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(list_all(*store_, "../").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(read_object(*store_, *pool_, "../secret", 10).error().code(), Code::kInvalidArgument);
}

TEST_F(FileStoreTest, AMissingRootIsNotFound) {
  EXPECT_EQ(store_->list({}).error().code(), Code::kNotFound);
  EXPECT_EQ(store_->head("x").error().code(), Code::kNotFound);
  EXPECT_TRUE(put("x").status.ok()) << "writing creates it";
  EXPECT_THAT(keys(), ElementsAre("x"));
}

TEST_F(FileStoreTest, VersionsNameTimeSizeAndInode) {
  write("x", "abc");
  struct stat info {};
  ASSERT_EQ(::stat(path("x").c_str(), &info), 0);
  const std::string expected =
      "\"" + std::to_string(info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec) + "-3-" +
      std::to_string(info.st_ino) + "\"";
  EXPECT_EQ(store_->head("x")->etag, expected);
}

TEST_F(FileStoreTest, WhatIsNotAFileIsNoObject) {
  fs::create_directories(path("dir"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  fs::create_symlink("nowhere", path("dangling"));
  for (const char* key : {"dir", "fifo", "dangling"}) {
    EXPECT_EQ(store_->head(key).error().code(), Code::kNotFound) << key;
    EXPECT_EQ(read_object(*store_, *pool_, key, 10).error().code(), Code::kNotFound) << key;
  }
  EXPECT_TRUE(store_->remove("dir").ok());
  EXPECT_TRUE(fs::exists(path("dir")));
  EXPECT_THAT(keys(), IsEmpty());
}

TEST_F(FileStoreTest, AnObjectCannotLieBelowAnother) {
  write("x", "file");
  fs::create_directories(path("dir"));
  EXPECT_EQ(put("x/below").status.code(), Code::kUnsupported);
  EXPECT_EQ(put("x/far/below").status.code(), Code::kUnsupported);
  EXPECT_EQ(put("dir").status.code(), Code::kUnsupported);
  EXPECT_EQ(store_->head("x/below").error().code(), Code::kNotFound);
  EXPECT_THAT(names_in_root(), ::testing::UnorderedElementsAre("x", "dir"));
}

TEST_F(FileStoreTest, FilesWithoutPermissionAreDenied) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  write("x", "abc");
  ASSERT_EQ(::chmod(path("x").c_str(), 0), 0);
  EXPECT_EQ(read_object(*store_, *pool_, "x", 10).error().code(), Code::kDenied);
}

TEST_F(FileStoreTest, FilesKeepTheirPermissionsWhenTheyAreReplacedAndCopied) {
  const auto mode = [&](const std::string& key) {
    struct stat info {};
    EXPECT_EQ(::stat(path(key).c_str(), &info), 0);
    return info.st_mode & 0777;
  };
  for (const char* key : {"put", "uploaded", "copied", "source"}) write(key, "old");
  ASSERT_TRUE(put("new").status.ok());
  const mode_t of_new = mode("new");
  for (const auto& [key, bits] : {std::pair{"put", 0600}, {"uploaded", 0640}, {"copied", 0660}})
    ASSERT_EQ(::chmod(path(key).c_str(), static_cast<mode_t>(bits)), 0);
  ASSERT_EQ(::chmod(path("source").c_str(), 0700), 0);

  ASSERT_TRUE(put("put").status.ok());
  const auto upload_id = store_->create_upload("uploaded");
  ASSERT_TRUE(upload_id);
  const UploadedPart part{1, put("uploaded", Op::kPutPart, *upload_id).etag};
  ASSERT_TRUE(store_->complete_upload("uploaded", *upload_id, {{part}}));
  ASSERT_TRUE(store_->copy("source", "copied"));
  ASSERT_TRUE(store_->copy("source", "copy"));
  EXPECT_EQ(mode("put"), 0600U);
  EXPECT_EQ(mode("uploaded"), 0640U);
  EXPECT_EQ(mode("copied"), 0660U);
  EXPECT_EQ(mode("copy"), 0700U) << "as its source";
  ASSERT_EQ(::unlink(path("put").c_str()), 0);
  ASSERT_EQ(::symlink("source", path("put").c_str()), 0);
  ASSERT_TRUE(put("put").status.ok());
  EXPECT_EQ(mode("put"), of_new) << "a link has none of its own";
}

TEST_F(FileStoreTest, LinksAreFollowedButNotInCircles) {
  write("real/a", "1");
  fs::create_directory_symlink("real", path("link"));
  fs::create_directory_symlink("..", path("real/up"));
  EXPECT_THAT(keys(), ElementsAre("link/a", "real/a"));
}

TEST_F(FileStoreTest, NothingIsRemovedThroughALink) {
  write("../elsewhere/x", "1");
  write("../elsewhere/deep/y", "1");
  write("real/z", "1");
  fs::create_directory_symlink("../elsewhere", path("link"));
  fs::create_directory_symlink("../../elsewhere/deep", path("real/link"));
  fs::create_symlink("../elsewhere/x", path("file-link"));
  EXPECT_THAT(keys(), ElementsAre("file-link", "link/deep/y", "link/x", "real/link/y", "real/z"));
  for (const char* key : {"link/x", "link/deep/y", "real/link/y", "link/none"})
    EXPECT_EQ(store_->remove(key).code(), Code::kUnsupported) << key;
  EXPECT_TRUE(store_->remove("file-link").ok());
  EXPECT_TRUE(store_->remove("real/link").ok()) << "the link itself";
  EXPECT_TRUE(store_->remove("real/z").ok());
  EXPECT_TRUE(store_->remove("real/z/below").ok());
  EXPECT_TRUE(store_->remove("none/z").ok());
  EXPECT_THAT(keys(), ElementsAre("link/deep/y", "link/x"));
}

TEST_F(FileStoreTest, ARootMayBeALink) {
  write("x", "1");
  fs::create_directory_symlink("root", directory_.path() + "/alias");
  StoreOptions options;
  options.url = directory_.path() + "/alias";
  auto alias = open_file_store(options);
  ASSERT_TRUE(alias);
  EXPECT_TRUE((*alias)->remove("x").ok());
  EXPECT_THAT(keys(), IsEmpty());
}

TEST_F(FileStoreTest, WhatCannotBeLookedAtIsNotMissing) {
  write("a/x", "1");
  fs::create_symlink(std::string(300, 'n'), path("a/unknown"));  // ENAMETOOLONG, for root too
  auto all = list_all(*store_, "");
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code(), Code::kInvalidArgument);
  EXPECT_NE(all.error().message().find("a/unknown"), std::string::npos) << all.error().message();
}

TEST_F(FileStoreTest, EmptyDirectoriesAreNoCommonPrefixes) {
  write("full/deep/x", "1");
  fs::create_directories(path("empty/deep/er"));
  auto page = store_->list({.prefix = "", .delimiter = "/", .continuation = "", .page_size = 1000});
  ASSERT_TRUE(page);
  EXPECT_THAT(page->common_prefixes, ElementsAre("full/"));
}

TEST_F(FileStoreTest, ALongListingIsContinuedWhereItStood) {
  std::vector<std::string> expected;
  for (int i = 1000; i < 2100; ++i)
    expected.push_back("d" + std::to_string(i / 300) + "/" + std::to_string(i));
  for (const std::string& key : expected) write(key, "");
  EXPECT_EQ(keys(), expected);
}

TEST_F(FileStoreTest, AFileThatShrinksWhileItIsReadIsChanged) {
  write("x", "0123456789");
  struct stat info {};
  auto fd = file::open_object(path("x"), info);
  ASSERT_TRUE(fd);
  ASSERT_EQ(::truncate(path("x").c_str(), 4), 0);
  std::byte bytes[10];
  const ManualClock clock;
  const Interrupt never(clock, TimePoint::max(), {});
  EXPECT_EQ(file::read_exactly(fd->get(), 0, bytes, never).code(), Code::kChanged);
  EXPECT_EQ(file::check_unchanged(fd->get(), info).code(), Code::kChanged);
}

TEST_F(FileStoreTest, AReadEndsBetweenPiecesWhenCancelledOrLate) {
  write("x", "0123456789");
  struct stat info {};
  auto fd = file::open_object(path("x"), info);
  ASSERT_TRUE(fd);
  std::byte bytes[10];
  ManualClock clock;
  const std::atomic<bool> cancelled{true};
  EXPECT_EQ(
      file::read_exactly(fd->get(), 0, bytes, Interrupt(clock, TimePoint::max(), {}, &cancelled))
          .code(),
      Code::kCancelled);
  EXPECT_EQ(file::read_exactly(fd->get(), 0, bytes, Interrupt(clock, clock.now(), {})).code(),
            Code::kDeadline);
}

TEST_F(FileStoreTest, OurOwnFilesAreNoObjectsAndDisappear) {
  write("x", "1");
  auto upload_id = store_->create_upload("y");
  ASSERT_TRUE(upload_id);
  ASSERT_TRUE(put("y", Op::kPutPart, *upload_id).status.ok());
  EXPECT_THAT(keys(), ElementsAre("x"));
  EXPECT_THAT(names_in_root(), SizeIs(2));
  store_.reset();
  EXPECT_THAT(names_in_root(), ElementsAre("x"));
}

TEST_F(FileStoreTest, UploadsOfTheDeadAreRemovedThoseOfTheLivingAreNot) {
  auto alive = store_->create_upload("y");
  ASSERT_TRUE(alive);
  // What a killed process leaves: nobody holds the lock of its owner file.
  write(".headrace-upload-killed/owner", "");
  write(".headrace-upload-killed/part-1", "abc");
  fs::create_directories(path(".headrace-upload-before-the-owner-file"));
  EXPECT_THAT(names_in_root(), SizeIs(3));
  const std::unique_ptr<Store> other = open();
  auto second = other->create_upload("w");
  ASSERT_TRUE(second);
  EXPECT_THAT(names_in_root(), ::testing::UnorderedElementsAre(".headrace-upload-" + *alive,
                                                               ".headrace-upload-" + *second));
}

TEST_F(FileStoreTest, AnUploadBelongsToItsKey) {
  auto upload_id = store_->create_upload("y");
  ASSERT_TRUE(upload_id);
  EXPECT_EQ(put("other", Op::kPutPart, *upload_id).status.code(), Code::kNotFound);
  EXPECT_EQ(store_->abort_upload("other", *upload_id).code(), Code::kNotFound);
  EXPECT_TRUE(store_->abort_upload("y", *upload_id).ok());
}

TEST_F(FileStoreTest, AnUploadLiesBesideItsObject) {
  write("x", "1");
  write("dir/.headrace-upload-killed/owner", "");
  const auto upload_id = store_->create_upload("dir/y");
  ASSERT_TRUE(upload_id);
  EXPECT_TRUE(fs::exists(path("dir/.headrace-upload-" + *upload_id)));
  EXPECT_FALSE(fs::exists(path("dir/.headrace-upload-killed")));
  EXPECT_THAT(names_in_root(), ::testing::UnorderedElementsAre("dir", "x"));
  EXPECT_THAT(keys(), ElementsAre("x"));
  const UploadedPart part{1, put("dir/y", Op::kPutPart, *upload_id).etag};
  ASSERT_TRUE(store_->complete_upload("dir/y", *upload_id, {{part}}));
  EXPECT_THAT(keys(), ElementsAre("dir/y", "x"));
  EXPECT_FALSE(fs::exists(path("dir/.headrace-upload-" + *upload_id)));
  EXPECT_EQ(store_->create_upload("x/below").error().code(), Code::kUnsupported);
}

TEST_F(FileStoreTest, LeftOverTemporaryFilesAreRemovedWhereItWrites) {
  write(".headrace-aaaaaaaaaa.tmp", "left over");
  write("dir/.headrace-bbbbbbbbbb.tmp", "left over");
  EXPECT_THAT(keys(), IsEmpty());
  ASSERT_TRUE(put("dir/x").status.ok());
  EXPECT_FALSE(fs::exists(path("dir/.headrace-bbbbbbbbbb.tmp")));
}

}  // namespace
}  // namespace headrace
