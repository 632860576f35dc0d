#include "tier/extent_index.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "base/random.h"
#include "base/temporary_directory.h"
#include "base/test_seed.h"
#include "headrace/clock.h"
#include "tier/file_locks.h"
#include "tier/folder.h"

namespace headrace::tier {
namespace {

class Index : public ::testing::Test {
 protected:
  std::string path(const ExtentName& name) const {
    return directory_.path() + "/" + bucket_name(bucket_of(name.object)) + "/" + file_name(name);
  }
  void make(const ExtentName& name) {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name)).put('x');
  }

  TemporaryDirectory directory_;
  Fd root_{::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY)};
  ExtentIndex index_{root_.get()};
};

// Against what a byte-by-byte look says.
TEST_F(Index, CoversARangeExactlyWhenItsBytesAreThere) {
  Random random(test_seed());
  for (int round = 0; round < 300; ++round) {
    const ObjectId object{random.next(), random.next()};
    std::vector<bool> is_there(200, false);
    const std::uint64_t count = random.below(8);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t offset = random.below(190);
      const std::uint64_t length = 1 + random.below(200 - offset);
      make({object, offset, length});
      if (i % 2 == 0) index_.add({object, offset, length});  // The others it finds itself.
      std::fill_n(is_there.begin() + static_cast<long>(offset), length, true);
    }
    for (int i = 0; i < 50; ++i) {
      const std::uint64_t offset = random.below(200);
      const std::uint64_t length = 1 + random.below(200 - offset);
      const auto begin = is_there.begin() + static_cast<long>(offset);
      const bool expected =
          std::all_of(begin, begin + static_cast<long>(length), [](bool there) { return there; });
      const auto found = index_.cover({object, offset, length});
      ASSERT_EQ(!found.empty(), expected) << offset << " + " << length;
      std::uint64_t at = offset;
      for (const ExtentName& extent : found) {
        EXPECT_LE(extent.offset_bytes, at);
        EXPECT_GT(extent.offset_bytes + extent.length_bytes, at);
        at = extent.offset_bytes + extent.length_bytes;
      }
      if (expected) {
        EXPECT_GE(at, offset + length);
      }
    }
  }
}

TEST_F(Index, SeesWhatOthersHaveWritten) {
  const ExtentName first{{0x123ULL << 52, 1}, 0, 10};
  const ExtentName second{{0x123ULL << 52, 2}, 0, 10};
  EXPECT_TRUE(index_.cover(first).empty());
  make(first);
  EXPECT_EQ(index_.cover(first).size(), 1U);
  make(second);
  EXPECT_EQ(index_.cover(second).size(), 1U) << "written within the same tick of the clock";
  std::filesystem::remove(path(second));
  index_.remove(second);
  EXPECT_TRUE(index_.cover(second).empty());
}

TEST_F(Index, ListsWhatLooksLikeAnExtentAndNothingElse) {
  const ExtentName extent{{0x5ULL << 52, 1}, 4096, 10};
  make(extent);
  std::ofstream(directory_.path() + "/005/README").put('x');
  std::ofstream(directory_.path() + "/005/.new-1-1").put('x');
  std::vector<ExtentName> all;
  ASSERT_TRUE(index_.visit([&](const ExtentName& e) { all.push_back(e); }).ok());
  EXPECT_EQ(all, std::vector<ExtentName>{extent});
}

TEST_F(Index, VisitsSomeBucketsAndAllOfThemInTurns) {
  std::vector<ExtentName> all;
  for (const std::uint64_t bucket : {0x002ULL, 0x010ULL, 0xfffULL}) {
    for (std::uint64_t i = 0; i < 2; ++i) all.push_back({{bucket << 52, i}, 0, 10});
  }
  for (const ExtentName& extent : all) make(extent);
  std::vector<ExtentName> seen;
  const auto note = [&](const ExtentName& extent) { seen.push_back(extent); };
  EXPECT_EQ(*index_.visit_some(3, 1, note), 0xfffU);
  EXPECT_EQ(seen, std::vector(all.begin() + 2, all.begin() + 4));
  EXPECT_EQ(*index_.visit_some(0xfff, 3, note), 0x010U) << "and around";
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, all);
  EXPECT_EQ(*index_.visit_some(3, 6, note), std::nullopt);
  EXPECT_EQ(seen.size(), 12U);
}

TEST_F(Index, TellsAHitOnce) {
  const ExtentName extent{{1, 1}, 0, 10};
  index_.add(extent);
  EXPECT_TRUE(index_.note_hit(extent));
  EXPECT_FALSE(index_.note_hit(extent));
}

// Where the file system makes no files without a name: what was being written when its process
// died goes, what still is being written stays.
TEST_F(Index, UnfinishedFilesOfTheDeadGo) {
  const ExtentName extent{{1, 2}, 0, 10};
  make(extent);
  const std::string folder = std::filesystem::path(path(extent)).parent_path().string();
  const std::string dead = folder + "/.new-1";
  const std::string living = folder + "/.new-2";
  std::ofstream(dead).put('x');
  std::ofstream(living).put('x');
  const FileLocks writer(Fd(::open(living.c_str(), O_RDWR | O_CLOEXEC)));
  ASSERT_TRUE(*writer.try_lock(0));
  EXPECT_EQ(index_.cover(extent), std::vector{extent});
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(living));
}

// A death changes no time of the directory, by which an index knows that it has to look.
TEST_F(Index, UnfinishedFilesGoHoweverOftenTheyWereSeenAlive) {
  const ExtentName name{{0x123ULL << 52, 1}, 0, 10};
  make(name);
  const auto unfinished = std::filesystem::path(path(name)).parent_path() / unfinished_name();
  {
    FileLocks writer(Fd(::open(unfinished.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)));
    ASSERT_TRUE(*writer.try_lock(0));
    const TimePoint until = system_clock().now() + std::chrono::milliseconds(60);  // Over a tick.
    while (system_clock().now() < until) {
      ASSERT_TRUE(index_.visit([](const ExtentName&) {}).ok());
    }
    EXPECT_TRUE(std::filesystem::exists(unfinished));
  }
  ASSERT_TRUE(index_.visit([](const ExtentName&) {}).ok());
  EXPECT_FALSE(std::filesystem::exists(unfinished));
}

}  // namespace
}  // namespace headrace::tier
