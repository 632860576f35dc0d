// Room without anything that writes: which reservations are given, and what goes for them. What is
// evicted first is the matter of belady_test and disk_cache_model_test.
#include "tier/evictor.h"

#include <gtest/gtest.h>
#include <sys/statvfs.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "base/manual_clock.h"
#include "tier/cache_directory_fixture.h"
#include "tier/extent_file.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

class EvictorTest : public CacheDirectoryFixture {
 protected:
  static constexpr std::uint64_t kFileBytes = file_bytes({{}, 0, kLength});

  /// An empty file for which room is reserved, called as the extent is.
  void put(const ExtentInfo& info) {
    ASSERT_TRUE(evictor_->reserve(info));
    auto bucket = directory_->index().open_bucket(bucket_of(info.name.object), true);
    ASSERT_TRUE(bucket);
    Ledger::Change change(directory_->ledger());
    ASSERT_TRUE(change.add(kFileBytes));
    ASSERT_TRUE(open_file(bucket->get(), file_name(info.name)));
    directory_->index().add(info.name);
  }
  bool has(const ExtentInfo& info) { return !directory_->index().cover(info.name).empty(); }
};

TEST_F(EvictorTest, WhatIsReservedCountsUntilItIsCancelled) {
  open_directory(
      {.directory = place_.path(), .limit_bytes = kFileBytes * 3 / 2, .free_floor_bytes = 0});
  EXPECT_EQ(evictor_->capacity_bytes(), kFileBytes * 3 / 2);
  ASSERT_TRUE(evictor_->reserve(info_of("s3://b/1")));
  EXPECT_FALSE(evictor_->reserve(info_of("s3://b/2"))) << "there is nothing to evict";
  directory_->ledger().cancel(kFileBytes);
  EXPECT_TRUE(evictor_->reserve(info_of("s3://b/2")));
}

TEST_F(EvictorTest, ADiskWithLessThanItsFloorHasNoRoom) {
  open_directory({.directory = place_.path(),
                  .limit_bytes = kFileBytes * 2,
                  .free_floor_bytes = UINT64_MAX / 2});
  EXPECT_EQ(evictor_->capacity_bytes(), 0U);
  EXPECT_FALSE(evictor_->reserve(info_of("s3://b/1")));
  EXPECT_EQ(directory_->ledger().used_bytes(), 0U);
}

// Others may fill the disk or empty it meanwhile, but hardly a quarter of what is free.
TEST_F(EvictorTest, WhatIsReservedIsTakenOffWhatTheDiskHasFree) {
  struct statvfs disk {};
  ASSERT_EQ(::statvfs(place_.path().c_str(), &disk), 0);
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  open_directory({.directory = place_.path(), .free_floor_bytes = free / 4});
  const auto half_of_it = [&](const std::string& url) {
    ExtentInfo info = info_of(url);
    info.name.length_bytes = free / 2;
    return info;
  };
  EXPECT_TRUE(evictor_->reserve(half_of_it("s3://b/1")));
  EXPECT_FALSE(evictor_->reserve(half_of_it("s3://b/2")));
  EXPECT_FALSE(evictor_->reserve(half_of_it("s3://b/3")));
}

TEST_F(EvictorTest, TheFirstLimitThatIsNamedHolds) {
  open_directory({.directory = place_.path(), .free_floor_bytes = 0});
  EXPECT_EQ(evictor_->limit_bytes(), 0U);
  EXPECT_TRUE(evictor_->agree_on_limit(kFileBytes));
  EXPECT_FALSE(evictor_->agree_on_limit(kFileBytes * 2));
  EXPECT_TRUE(evictor_->agree_on_limit(kFileBytes));
  EXPECT_EQ(evictor_->limit_bytes(), kFileBytes);
  EXPECT_EQ(evictor_->capacity_bytes(), kFileBytes);
}

TEST_F(EvictorTest, AnExtentGoesForAnother) {
  open_directory(
      {.directory = place_.path(), .limit_bytes = kFileBytes * 3 / 2, .free_floor_bytes = 0});
  put(info_of("s3://b/1"));
  put(info_of("s3://b/2"));
  EXPECT_FALSE(has(info_of("s3://b/1")));
  EXPECT_TRUE(has(info_of("s3://b/2")));
  EXPECT_EQ(directory_->ledger().file_bytes(), kFileBytes);
}

TEST_F(EvictorTest, ShrinksToNothing) {
  open_directory(
      {.directory = place_.path(), .limit_bytes = kFileBytes * 3, .free_floor_bytes = 0});
  put(info_of("s3://b/1"));
  put(info_of("s3://b/2"));
  EXPECT_EQ(*evictor_->shrink_to(kFileBytes), kFileBytes);
  EXPECT_EQ(*evictor_->shrink_to(0), kFileBytes);
  EXPECT_EQ(directory_->ledger().used_bytes(), 0U);
}

TEST_F(EvictorTest, ShrinkingWaitsForWhoeverEvicts) {
  ManualClock clock;
  open_directory({.directory = place_.path(), .free_floor_bytes = 0, .clock = &clock});
  put(info_of("s3://b/1"));
  const auto other = Ledger::open(directory_->root());
  ASSERT_TRUE(other);
  ASSERT_TRUE((*other)->try_begin_eviction());
  {
    const std::jthread time([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) clock.advance(std::chrono::milliseconds(1));
    });
    EXPECT_EQ(evictor_->shrink_to(0).error().code(), Code::kDeadline);
  }
  EXPECT_TRUE(has(info_of("s3://b/1")));
  std::thread thread([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    (*other)->end_eviction();
  });
  auto gone = evictor_->shrink_to(0);
  thread.join();
  ASSERT_TRUE(gone) << gone.error().message();
  EXPECT_EQ(*gone, kFileBytes);
}

TEST_F(EvictorTest, ShrinkingSaysWhatCannotBeDeleted) {
  open_directory({.directory = place_.path(), .free_floor_bytes = 0});
  put(info_of("s3://b/1"));
  put(info_of("s3://b/2"));
  const std::string path = place_.path() + "/" + extent_path(info_of("s3://b/1").name);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_FALSE(evictor_->shrink_to(0));
  EXPECT_FALSE(has(info_of("s3://b/2"))) << "what can go is gone";
}

}  // namespace
}  // namespace headrace::tier
