#include "read/request_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/crc32c.h"
#include "base/crc64nvme.h"
#include "headrace/memory.h"
#include "io/testing/fake_store.h"
#include "read/ready_block.h"

namespace headrace::read {
namespace {

using headrace::testing::FakeStore;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::vector<std::uint64_t> lengths_of(const std::vector<Extent>& extents) {
  std::vector<std::uint64_t> lengths;
  for (const Extent& extent : extents) lengths.push_back(extent.length_bytes);
  return lengths;
}

std::vector<std::uint64_t> cut(const CutRule& rule, const Extent& extent,
                               std::size_t object_count = 0) {
  std::vector<Extent> extents = {extent};
  std::vector<CutObject> objects;
  cut_requests(rule, extents, objects);
  EXPECT_EQ(objects.size(), object_count);
  std::uint64_t at = 0;
  for (const Extent& request : extents) {
    EXPECT_EQ(request.offset_bytes, extent.offset_bytes + at);
    EXPECT_EQ(request.target_offset_bytes, extent.target_offset_bytes + at);
    EXPECT_EQ(request.is_whole_object, extent.is_whole_object && extents.size() == 1);
    EXPECT_EQ(request.etag, extent.etag);
    at += request.length_bytes;
  }
  EXPECT_EQ(at, extent.length_bytes);
  return lengths_of(extents);
}

Extent range(std::uint64_t length_bytes) {
  return {.key = "k",
          .etag = "v",
          .offset_bytes = 7,
          .length_bytes = length_bytes,
          .target_offset_bytes = 3};
}

Extent whole(std::uint64_t length_bytes, std::string_view etag = "v") {
  return {.key = "k",
          .etag = etag,
          .offset_bytes = 0,
          .length_bytes = length_bytes,
          .target_offset_bytes = 3,
          .is_whole_object = true};
}

TEST(RequestPlan, CutsRangesIntoRequestsOfAboutTheSameSize) {
  const CutRule rule = cut_rule({.is_local = false});
  EXPECT_THAT(cut(rule, range(4 * kMiB)), ElementsAre(4 * kMiB));
  EXPECT_THAT(cut(rule, range(4 * kMiB + 1)), ElementsAre(2 * kMiB + 4096, 2 * kMiB - 4095))
      << "whole pages";
  EXPECT_THAT(cut(cut_rule({.is_local = false}, 1000), range(1999)), ElementsAre(1000, 999))
      << "never more than was allowed";
  EXPECT_THAT(cut(rule, range(9 * kMiB)), ElementsAre(3 * kMiB, 3 * kMiB, 3 * kMiB));
  EXPECT_THAT(cut(cut_rule({.is_local = true}), range(100 * kMiB)), ElementsAre(100 * kMiB));
  EXPECT_THAT(cut(cut_rule({.is_local = true}, kMiB), range(2 * kMiB)), ElementsAre(kMiB, kMiB));
  EXPECT_THAT(cut(cut_rule({.is_local = false}, kMiB), range(2 * kMiB)), ElementsAre(kMiB, kMiB));
  // The beginning of an object is a range like any other.
  Extent beginning = range(8 * kMiB);
  beginning.offset_bytes = 0;
  EXPECT_THAT(cut(rule, beginning), ElementsAre(4 * kMiB, 4 * kMiB));
}

TEST(RequestPlan, CutsWholeObjectsWhereTheirSumIsToldOtherwise) {
  for (const ObjectSums sums : {ObjectSums::kHead, ObjectSums::kEveryGet, ObjectSums::kNotNeeded}) {
    const CutRule rule = cut_rule({.object_sums = sums});
    const std::size_t object_count = sums == ObjectSums::kNotNeeded ? 0 : 1;
    EXPECT_THAT(cut(rule, whole(16 * kMiB)), ElementsAre(16 * kMiB));
    EXPECT_EQ(cut(rule, whole(16 * kMiB + 1), object_count).size(), 5U);
    EXPECT_EQ(cut(rule, whole(147 * kMiB), object_count).size(), 37U);
    EXPECT_THAT(cut(rule, whole(147 * kMiB, "")), ElementsAre(147 * kMiB)) << "of any version";
    EXPECT_EQ(cut(cut_rule({.object_sums = sums}, kMiB), whole(2 * kMiB), object_count).size(), 2U);
  }
  const CutRule rule = cut_rule({.object_sums = ObjectSums::kWholeReads});
  EXPECT_THAT(cut(rule, whole(147 * kMiB)), ElementsAre(147 * kMiB));
  EXPECT_EQ(cut(cut_rule({}, kMiB), whole(2 * kMiB)).size(), 2U) << "for want of memory";
}

TEST(RequestPlan, ComparesAllOfAnObjectWithItsSum) {
  const FakeStore store;
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37);
  const auto all = std::span<const std::byte>(bytes).subspan(3, 900);
  std::vector<CutObject> objects = {{whole(900), {}}};
  EXPECT_TRUE(check_objects(store, objects, bytes).ok()) << "nobody knows";
  for (const Checksum sum : {Checksum{ChecksumKind::kCrc32c, crc32c(all)},
                             Checksum{ChecksumKind::kCrc64Nvme, crc64nvme(all)}}) {
    objects[0].sum = sum;
    EXPECT_TRUE(check_objects(store, objects, bytes).ok());
    bytes[902] ^= std::byte{1};
    const Status status = check_objects(store, objects, bytes);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(std::string(status.message()), HasSubstr("fake://data/k: "));
    bytes[902] ^= std::byte{1};
    bytes[903] ^= std::byte{1};
    EXPECT_TRUE(check_objects(store, objects, bytes).ok()) << "behind it";
  }
}

/// One object of 100 bytes, read in requests of 10 at most.
struct CutRead {
  explicit CutRead(ObjectSums sums) : pool(*SlabPool::create({})), target(100) {
    store.shared().traits.object_sums = sums;
    std::string text(100, '\0');
    std::iota(text.begin(), text.end(), '\1');
    store.set("k", text);
  }
  Status read(std::size_t* failed = nullptr) {
    const std::string etag = store.shared().objects.at("k").etag;
    const Extent extents[] = {{.key = "k",
                               .etag = etag,
                               .offset_bytes = 0,
                               .length_bytes = 100,
                               .target_offset_bytes = 0,
                               .is_whole_object = true}};
    auto fetcher = *RangeFetcher::create(store, *pool, {});
    return fetch_extents(*fetcher, extents, 10, false, target, failed);
  }

  FakeStore store;
  std::unique_ptr<SlabPool> pool;
  std::vector<std::byte> target;
};

TEST(FetchExtents, ReadsAgainWhatDoesNotMatchTheSumOfTheWhole) {
  for (const ObjectSums sums : {ObjectSums::kHead, ObjectSums::kEveryGet}) {
    CutRead cut_read(sums);
    int get = 0;
    cut_read.store.shared().on_get = [&](std::string_view, std::span<std::byte> bytes) {
      if (++get == 7) bytes[0] ^= std::byte{16};
    };
    ASSERT_TRUE(cut_read.read().ok());
    for (std::size_t i = 0; i < 100; ++i)
      EXPECT_EQ(cut_read.target[i], static_cast<std::byte>(i + 1));
    EXPECT_EQ(get, 20);
    EXPECT_EQ(cut_read.store.shared().sum_count, sums == ObjectSums::kHead ? 2U : 0U);
  }
}

TEST(FetchExtents, WhatComesTwiceTheSameAndWrongIsCorrupt) {
  CutRead cut_read(ObjectSums::kHead);
  cut_read.store.shared().on_get = [&](std::string_view, std::span<std::byte> bytes) {
    bytes[0] ^= std::byte{16};
  };
  std::size_t failed = 9;
  EXPECT_EQ(cut_read.read(&failed).code(), Code::kCorrupt);
  EXPECT_EQ(failed, 0U);
  int get = 0;
  cut_read.store.shared().on_get = [&](std::string_view, std::span<std::byte> bytes) {
    bytes[0] = static_cast<std::byte>(128 + ++get);
  };
  EXPECT_EQ(cut_read.read().code(), Code::kUnavailable) << "never the same";
}

TEST(FetchExtents, ASumThatMayNotBeAskedForIsNotNeeded) {
  CutRead cut_read(ObjectSums::kHead);
  cut_read.store.shared().sum_error = Code::kDenied;
  EXPECT_TRUE(cut_read.read().ok());
  cut_read.store.shared().sum_error = Code::kNotFound;
  std::size_t failed = 9;
  EXPECT_EQ(cut_read.read(&failed).code(), Code::kNotFound);
  EXPECT_EQ(failed, 0U);
}

TEST(ReadSurely, GivesUpOnTriesThatCannotBeCompared) {
  int tries = 0;
  const Status status = read_surely([&](bool, std::optional<std::uint64_t>&) {
    ++tries;
    return Status(Code::kCorrupt, "too short");
  });
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_EQ(tries, static_cast<int>(SecondLook::kMostReads));
}

}  // namespace
}  // namespace headrace::read
