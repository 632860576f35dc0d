#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <thread>
#include <vector>

#include "base/random.h"
#include "headrace/memory.h"
#include "mem/size_class.h"

namespace headrace {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

std::unique_ptr<SlabPool> make_pool(std::uint64_t limit_bytes) {
  auto pool = SlabPool::create({.limit_bytes = limit_bytes});
  EXPECT_TRUE(pool) << pool.error().message();
  return *std::move(pool);
}

Slab must_acquire(SlabPool& pool, std::size_t size_bytes) {
  auto slab = pool.try_acquire(size_bytes);
  EXPECT_TRUE(slab) << slab.error().message();
  return slab ? *std::move(slab) : Slab();
}

std::uint64_t resident_bytes(std::span<const std::byte> bytes) {
  std::vector<unsigned char> pages((bytes.size() + mem::kPageBytes - 1) / mem::kPageBytes);
  // What is not mapped any more (ENOMEM) is not resident.
  if (::mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data()) != 0) {
    EXPECT_EQ(errno, ENOMEM);
    return 0;
  }
  const auto count =
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
  return static_cast<std::uint64_t>(count) * mem::kPageBytes;
}

TEST(SizeClass, IsTheSmallestThatHoldsTheSize) {
  for (std::uint32_t i = 0; i < mem::kClassCount; ++i) {
    ASSERT_EQ(mem::class_of(mem::class_bytes(i)), i);
    ASSERT_EQ(mem::class_of(mem::class_bytes(i) + 1), i + 1);
    ASSERT_EQ(mem::class_bytes(i) % mem::kPageBytes, 0U);
    ASSERT_GE(mem::class_pitch_bytes(i), mem::class_bytes(i));
  }
}

TEST(SizeClass, WastesAtMostAQuarterFromFourPagesOn) {
  Random random(7);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t size =
        16 * kKiB + random.below(std::uint64_t{1} << (15 + random.below(20)));
    ASSERT_LE(SlabPool::charged_bytes(size), size + size / 4 + mem::kPageBytes) << size;
    ASSERT_GE(SlabPool::charged_bytes(size), size);
  }
}

TEST(SizeClass, ChargesAbsurdSizesAboveAnyLimit) {
  EXPECT_EQ(SlabPool::charged_bytes(0), 0U);
  EXPECT_EQ(SlabPool::charged_bytes(SIZE_MAX), UINT64_MAX);
  EXPECT_EQ(SlabPool::charged_bytes((std::size_t{4} << 40) + 1), UINT64_MAX);
}

TEST(SlabPool, RefusesALimitBelow64KiB) {
  EXPECT_EQ(SlabPool::create({.limit_bytes = 64 * kKiB - 1}).error().code(),
            Code::kInvalidArgument);
}

std::uint64_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages;
  return pages * mem::kPageBytes;
}

TEST(SlabPool, MapsNoMoreThanWhatWasUsed) {
  const std::uint64_t before = mapped_bytes();
  auto pool = make_pool(4096 * kMiB);
  EXPECT_LT(mapped_bytes(), before + kMiB);
  for (const std::uint64_t size :
       {4 * kKiB, 100 * kKiB, 2 * kMiB, 3 * kMiB, 9 * kMiB, 32 * kMiB, 64 * kMiB}) {
    for (int i = 0; i < 3; ++i) must_acquire(*pool, size).bytes().front() = std::byte{1};
  }
  // 113 MiB of slabs of their own, spans of 2 and 14 MiB, and what aligns them.
  EXPECT_LT(mapped_bytes(), before + 144 * kMiB);
}

TEST(SlabPoolDeathTest, WithFewAddressesFreeSlabsOfOtherSizesGiveTheirsUp) {
  const auto run = [] {
    const rlim_t most = mapped_bytes() + 64 * kMiB;
    const struct rlimit limit = {.rlim_cur = most, .rlim_max = most};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(2);
    auto pool = SlabPool::create({.limit_bytes = 4096 * kMiB});
    if (!pool) std::_Exit(3);
    if ((*pool)->try_acquire(256 * kMiB).error().code() != Code::kExhausted) std::_Exit(4);
    for (const std::uint64_t size : {24 * kMiB, 40 * kMiB, 32 * kMiB, 20 * kMiB}) {
      auto slab = (*pool)->try_acquire(size);
      if (!slab) std::_Exit(5);
      (*slab).bytes().back() = std::byte{1};
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST(SlabPool, AReservationTakesRoomFromFreeSlabsToo) {
  auto pool = make_pool(8 * kMiB);
  const std::byte* freed = must_acquire(*pool, 5 * kMiB).bytes().data();
  {
    Slab slab = must_acquire(*pool, 5 * kMiB);
    EXPECT_EQ(slab.bytes().data(), freed);
    std::memset(slab.bytes().data(), 1, slab.bytes().size());
  }
  auto reserved = pool->try_reserve(4 * kMiB);
  ASSERT_TRUE(reserved);
  EXPECT_TRUE((*reserved).bytes().empty());
  EXPECT_EQ((*reserved).size_bytes(), 4 * kMiB);
  EXPECT_EQ(resident_bytes({freed, 5 * kMiB}), 0U);
  EXPECT_EQ(pool->used_bytes(), 4 * kMiB);
  EXPECT_EQ(pool->committed_bytes(), 4 * kMiB);
  EXPECT_EQ(pool->try_reserve(5 * kMiB).error().code(), Code::kExhausted);
  EXPECT_EQ(pool->try_acquire(5 * kMiB).error().code(), Code::kExhausted);
  *reserved = Slab();
  EXPECT_EQ(pool->committed_bytes(), 0U);
}

TEST(SlabPool, GivesExactlyTheBytesAskedForOnAPage) {
  auto pool = make_pool(kMiB);
  Slab slab = must_acquire(*pool, 20'001);
  EXPECT_EQ(slab.bytes().size(), 20'001U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slab.bytes().data()) % mem::kPageBytes, 0U);
  std::memset(slab.bytes().data(), 1, slab.bytes().size());
  EXPECT_EQ(pool->used_bytes(), 20 * kKiB);
}

TEST(SlabPool, SlabsOfTwoMiBAndMoreStartOnAHugePage) {
  auto pool = make_pool(64 * kMiB);
  for (const std::uint64_t size : {2 * kMiB, 2 * kMiB + 1, 3 * kMiB, 5 * kMiB, 10 * kMiB}) {
    Slab first = must_acquire(*pool, size);
    Slab second = must_acquire(*pool, size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.bytes().data()) % mem::kHugePageBytes, 0U)
        << size;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second.bytes().data()) % mem::kHugePageBytes, 0U)
        << size;
  }
}

TEST(SlabPool, RefusesZeroBytesAndWhatCouldNeverFit) {
  auto pool = make_pool(kMiB);
  EXPECT_EQ(pool->try_acquire(0).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(pool->try_acquire(kMiB + 1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(pool->acquire(kMiB + 1, TimePoint::max()).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(pool->try_acquire(kMiB));
}

TEST(SlabPool, IsExhaustedAtTheLimitAndServesAgainAfterARelease) {
  auto pool = make_pool(64 * kKiB);
  Slab most = must_acquire(*pool, 60 * kKiB - 4 * kKiB);
  Slab rest = must_acquire(*pool, 8 * kKiB);
  EXPECT_EQ(pool->used_bytes(), pool->limit_bytes());
  EXPECT_EQ(pool->try_acquire(1).error().code(), Code::kExhausted);
  rest = Slab();
  EXPECT_TRUE(pool->try_acquire(1));
}

TEST(SlabPool, HandsOutTheWarmestSlabFirst) {
  auto pool = make_pool(kMiB);
  Slab a = must_acquire(*pool, 8 * kKiB);
  Slab b = must_acquire(*pool, 8 * kKiB);
  const std::byte* const last_released = a.bytes().data();
  b = Slab();
  a = Slab();
  EXPECT_EQ(must_acquire(*pool, 8 * kKiB).bytes().data(), last_released);
}

TEST(SlabPool, MovesTheWholeBudgetFromOneSizeToAnother) {
  auto pool = make_pool(16 * kMiB);
  for (const std::size_t size : {4 * kKiB, 2 * kMiB, 20 * kKiB, 16 * kMiB, 5 * kMiB, 4 * kKiB}) {
    std::vector<Slab> slabs;
    while (true) {
      auto slab = pool->try_acquire(size);
      if (!slab) break;
      std::memset((*slab).bytes().data(), 7, size);
      slabs.push_back(*std::move(slab));
    }
    EXPECT_EQ(slabs.size(), pool->limit_bytes() / SlabPool::charged_bytes(size)) << size;
    EXPECT_LE(pool->peak_bytes(), pool->limit_bytes());
  }
}

TEST(SlabPool, GivesMemoryOfFreeSlabsBackToTheSystem) {
  auto pool = make_pool(8 * kMiB);
  std::span<const std::byte> freed;
  {
    Slab slab = must_acquire(*pool, 5 * kMiB);
    std::memset(slab.bytes().data(), 1, slab.bytes().size());
    freed = slab.bytes();
    EXPECT_EQ(resident_bytes(freed), 5 * kMiB);
  }
  EXPECT_EQ(pool->committed_bytes(), 5 * kMiB);  // kept for reuse
  Slab other = must_acquire(*pool, 4 * kMiB);
  // The other may have got addresses of it.
  const std::span<const std::byte> taken = other.bytes();
  const auto* const begin = std::max(freed.data(), taken.data());
  const auto* const end = std::min(freed.data() + freed.size(), taken.data() + taken.size());
  const auto shared = static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(end - begin, 0));
  EXPECT_LE(resident_bytes(freed), shared);
  EXPECT_EQ(pool->committed_bytes(), 4 * kMiB);
}

TEST(SizeClass, SmallSlabsFillTheirSpansWithoutARest) {
  for (std::uint32_t i = 0; mem::class_bytes(i) < mem::kHugePageBytes; ++i) {
    ASSERT_EQ(mem::span_bytes(i) % mem::kHugePageBytes, 0U);
    ASSERT_EQ(mem::span_bytes(i) % mem::class_bytes(i), 0U);
    ASSERT_LE(mem::span_bytes(i), 14 * kMiB);
  }
}

TEST(SlabPool, WithPlentyOfRoomSmallSlabsComeByWholeSpans) {
  auto pool = make_pool(256 * kMiB);
  Slab slab = must_acquire(*pool, 20 * kKiB);
  EXPECT_EQ(pool->used_bytes(), 20 * kKiB);
  EXPECT_EQ(pool->committed_bytes(), 10 * kMiB);
  std::vector<Slab> rest;
  for (int i = 1; i < 512; ++i) rest.push_back(must_acquire(*pool, 20 * kKiB));
  EXPECT_EQ(pool->committed_bytes(), 10 * kMiB);
  rest.push_back(must_acquire(*pool, 20 * kKiB));
  EXPECT_EQ(pool->committed_bytes(), 20 * kMiB);
}

TEST(SlabPool, WithLittleRoomSmallSlabsComeOneByOne) {
  auto pool = make_pool(79 * kMiB);  // A span of 10 MiB is more than an eighth of it.
  Slab slab = must_acquire(*pool, 20 * kKiB);
  EXPECT_EQ(pool->committed_bytes(), 20 * kKiB);
}

TEST(SlabPool, AWholeSpanGivesBackWhatIsFreeOfIt) {
  auto pool = make_pool(128 * kMiB);
  std::vector<Slab> slabs;
  for (int i = 0; i < 8; ++i) {
    slabs.push_back(must_acquire(*pool, 256 * kKiB));
    std::memset(slabs.back().bytes().data(), i + 1, slabs.back().bytes().size());
  }
  ASSERT_EQ(pool->committed_bytes(), 2 * kMiB);
  const std::byte* const base = slabs.front().bytes().data();
  for (std::size_t i = 0; i < 8; i += 2) slabs[i] = Slab();
  std::vector<Slab> others;
  for (const std::uint64_t size : {112 * kMiB, 14 * kMiB, kMiB}) {
    others.push_back(must_acquire(*pool, size));
  }
  EXPECT_EQ(pool->committed_bytes(), pool->limit_bytes());
  for (std::size_t i = 0; i < 8; ++i) {
    const std::span<const std::byte> bytes(base + i * 256 * kKiB, 256 * kKiB);
    if (i % 2 == 1) {
      EXPECT_EQ(bytes.front(), static_cast<std::byte>(i + 1));
      EXPECT_EQ(bytes.back(), static_cast<std::byte>(i + 1));
    }
    EXPECT_EQ(resident_bytes(bytes), i % 2 == 1 ? bytes.size() : 0U) << i;
  }
}

TEST(SlabPool, AHugePageNeverReachesPastItsSlab) {
  auto pool = make_pool(64 * kMiB);
  for (const std::uint64_t size :
       {5 * kMiB / 2, 3 * kMiB, 7 * kMiB / 2, 5 * kMiB, 7 * kMiB, kMiB, 20 * kKiB}) {
    Slab slab = must_acquire(*pool, size);
    std::memset(slab.bytes().data(), 1, size);
    if (size < mem::kHugePageBytes) continue;  // another slab of its class lies behind it
    const std::uint64_t pitch = mem::class_pitch_bytes(mem::class_of(size));
    EXPECT_EQ(resident_bytes({slab.bytes().data(), pitch}), size) << size;
  }
}

Slab must_share(SlabPool& pool, std::size_t size_bytes) {
  auto slab = pool.try_acquire_shared(size_bytes);
  EXPECT_TRUE(slab) << slab.error().message();
  return slab ? *std::move(slab) : Slab();
}

/// Bytes of memory that the file of the pool's shared slabs takes.
std::uint64_t file_bytes(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

TEST(SlabPool, OthersCanMapSharedSlabs) {
  auto pool = make_pool(64 * kMiB);
  std::vector<Slab> slabs;
  for (const std::uint64_t size : {5 * kKiB, 3 * kMiB, 100 * kKiB, 5 * kMiB, 5 * kKiB})
    slabs.push_back(must_share(*pool, size));
  for (std::size_t i = 0; i < slabs.size(); ++i)
    std::memset(slabs[i].bytes().data(), static_cast<int>(i + 1), slabs[i].size_bytes());
  for (std::size_t i = 0; i < slabs.size(); ++i) {
    const auto place = pool->shared_place(slabs[i]);
    ASSERT_TRUE(place);
    const std::size_t size = slabs[i].size_bytes();
    EXPECT_EQ(place->offset % (size < mem::kHugePageBytes ? mem::kPageBytes : mem::kHugePageBytes),
              0U);
    void* const at =
        ::mmap(nullptr, size, PROT_READ, MAP_SHARED, place->fd, static_cast<off_t>(place->offset));
    ASSERT_NE(at, MAP_FAILED);
    EXPECT_EQ(std::memcmp(at, slabs[i].bytes().data(), size), 0) << i;
    ::munmap(at, size);
  }
  EXPECT_FALSE(pool->shared_place(must_acquire(*pool, 5000)));
}

TEST(SlabPool, SharedSlabsCountAndGiveTheirMemoryToOthers) {
  auto pool = make_pool(8 * kMiB);
  int fd = -1;
  {
    Slab first = must_share(*pool, 4 * kMiB);
    Slab second = must_share(*pool, 1 * kMiB);
    std::memset(first.bytes().data(), 1, first.size_bytes());
    std::memset(second.bytes().data(), 1, second.size_bytes());
    fd = pool->shared_place(first)->fd;
    EXPECT_EQ(pool->used_bytes(), 5 * kMiB);
    EXPECT_EQ(file_bytes(fd), 5 * kMiB);
    EXPECT_EQ(pool->try_acquire(4 * kMiB).error().code(), Code::kExhausted);
  }
  EXPECT_EQ(pool->committed_bytes(), 5 * kMiB);  // Warm.
  EXPECT_EQ(file_bytes(fd), 5 * kMiB);
  Slab all = must_acquire(*pool, 8 * kMiB);
  EXPECT_EQ(file_bytes(fd), 0U);
  all = Slab();
  // In the place where it was, without what was there.
  Slab again = must_share(*pool, 4 * kMiB);
  EXPECT_EQ(pool->shared_place(again)->offset, 0U);
  EXPECT_EQ(again.bytes()[17], std::byte{0});
}

TEST(SlabPool, HandsOutTheWarmestSharedSlabFirst) {
  auto pool = make_pool(8 * kMiB);
  Slab first = must_share(*pool, kMiB);
  Slab second = must_share(*pool, kMiB);
  std::byte* const warmest = second.bytes().data();
  first = Slab();
  second = Slab();
  EXPECT_EQ(must_share(*pool, kMiB).bytes().data(), warmest);
}

TEST(SlabPool, PreparesWhatFitsBesideWhatIsInUse) {
  auto pool = make_pool(64 * kMiB);
  { const Slab other = must_acquire(*pool, 12 * kMiB); }
  Slab used = must_acquire(*pool, 8 * kMiB);
  used.bytes().front() = std::byte{1};
  pool->prepare(8 * kMiB, 3);  // Two besides the one that is out.
  EXPECT_EQ(pool->committed_bytes(), (12 + 3 * 8) * kMiB);
  EXPECT_EQ(pool->used_bytes(), 8 * kMiB);
  pool->prepare(8 * kMiB, 2);  // There are more.
  EXPECT_EQ(pool->committed_bytes(), (12 + 3 * 8) * kMiB);
  pool->prepare(8 * kMiB, 100);  // The other slab, which is free, gives way.
  EXPECT_EQ(pool->committed_bytes(), 64 * kMiB);
  EXPECT_EQ(pool->peak_bytes(), 64 * kMiB);
  std::vector<Slab> all;
  for (int i = 0; i < 7; ++i) all.push_back(must_acquire(*pool, 8 * kMiB));
  EXPECT_EQ(pool->try_acquire(8 * kMiB).error().code(), Code::kExhausted);
  pool->prepare(8 * kMiB, 100);
  EXPECT_EQ(pool->committed_bytes(), 64 * kMiB);
}

TEST(SlabPool, PreparesOnlyWhatHasMemoryOfItsOwn) {
  auto pool = make_pool(64 * kMiB);
  pool->prepare(0, 5);
  pool->prepare(65 * kMiB, 5);
  pool->prepare(64 * kKiB, 5);
  EXPECT_EQ(pool->committed_bytes(), 0U);
}

TEST(SlabPool, TakesWhatIsWarmBeforeWhatIsPrepared) {
  auto pool = make_pool(64 * kMiB);
  const std::byte* const warm = must_acquire(*pool, 8 * kMiB).bytes().data();
  pool->prepare(8 * kMiB, 4);
  EXPECT_EQ(must_acquire(*pool, 8 * kMiB).bytes().data(), warm);
}

TEST(SlabPool, AcquireReportsTheDeadline) {
  auto pool = make_pool(64 * kKiB);
  Slab all = must_acquire(*pool, 64 * kKiB);
  EXPECT_EQ(pool->acquire(1, TimePoint::min()).error().code(), Code::kDeadline);
}

TEST(SlabPool, AcquireWaitsForARelease) {
  auto pool = make_pool(64 * kKiB);
  Slab all = must_acquire(*pool, 64 * kKiB);
  std::thread releaser([slab = std::move(all)]() mutable { slab = Slab(); });
  EXPECT_TRUE(pool->acquire(64 * kKiB, TimePoint::max()));
  releaser.join();
}

std::unique_ptr<SlabPool> make_holding_pool() {
  return *SlabPool::create({.limit_bytes = 64 * kKiB, .most_held_bytes = 32 * kKiB});
}

TEST(SlabPool, WhatIsOnlyHeldLeavesItsRoomAndKeepsItsBytes) {
  auto pool = make_holding_pool();
  Slab all = must_acquire(*pool, 32 * kKiB);
  Slab rest = must_acquire(*pool, 32 * kKiB);
  std::memset(all.bytes().data(), 5, all.size_bytes());
  Slab first = pool->hold_part(all, all.bytes());
  Slab second = pool->hold_part(all, all.bytes().subspan(10, 20));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(pool->try_acquire(kKiB).error().code(), Code::kExhausted);  // Its owner has it, too.
  const std::byte* const where = all.bytes().data();
  all = Slab();
  Slab more = must_acquire(*pool, 32 * kKiB);
  EXPECT_NE(more.bytes().data(), where);
  EXPECT_EQ(pool->used_bytes(), 64 * kKiB);
  EXPECT_EQ(pool->committed_bytes(), 96 * kKiB);
  first = Slab();
  EXPECT_EQ(second.bytes().data(), where + 10);
  EXPECT_EQ(second.bytes()[19], std::byte{5});
  more = Slab();
  second = Slab();
  EXPECT_EQ(pool->committed_bytes(), 64 * kKiB) << "the room for holds goes with them";
  EXPECT_TRUE(must_acquire(*pool, 32 * kKiB));
}

TEST(SlabPool, AHoldThatEndsFirstChangesNothing) {
  auto pool = make_holding_pool();
  Slab slab = must_acquire(*pool, 64 * kKiB - 1);
  Slab hold = pool->hold_part(slab, slab.bytes());
  EXPECT_FALSE(hold) << "64 KiB are more than may be held";
  slab = Slab();
  slab = must_acquire(*pool, 20 * kKiB);
  hold = pool->hold_part(slab, slab.bytes());
  ASSERT_TRUE(hold);
  Slab other = must_acquire(*pool, 16 * kKiB);
  EXPECT_FALSE(pool->hold_part(other, other.bytes())) << "with what is held already";
  hold = Slab();
  EXPECT_EQ(pool->used_bytes(), 36 * kKiB);
  EXPECT_TRUE(pool->hold_part(other, other.bytes()));
}

TEST(SlabPool, ASlabThatIsNobodysPartHasNoHold) {
  auto pool = make_holding_pool();
  EXPECT_FALSE(must_acquire(*pool, kKiB).hold());
  EXPECT_FALSE(Slab().hold());
}

TEST(SlabPool, DestructionWaitsForHolds) {
  auto pool = make_holding_pool();
  Slab slab = must_acquire(*pool, kKiB);
  std::memset(slab.bytes().data(), 9, slab.size_bytes());
  std::promise<void> is_going;
  std::jthread holder([hold = pool->hold_part(slab, slab.bytes()), &is_going]() mutable {
    is_going.get_future().wait();
    EXPECT_EQ(hold.bytes()[kKiB - 1], std::byte{9});
    hold = Slab();
  });
  slab = Slab();
  is_going.set_value();
  pool.reset();
}

TEST(SlabPoolDeathTest, DestructionWithASlabOutIsCaught) {
  EXPECT_DEATH(
      {
        auto pool = make_pool(kMiB);
        Slab slab = must_acquire(*pool, 1);
        pool.reset();
      },
      "used_bytes");
}

/// Random takes and returns against a ledger; contents prove that no two slabs overlap.
class PoolModel {
 public:
  PoolModel(std::uint64_t seed, std::uint64_t limit_bytes)
      : random_(seed),
        pool_(*SlabPool::create(
            {.limit_bytes = limit_bytes, .most_held_bytes = limit_bytes / kHeldShare})) {}

  void step() {
    const std::uint64_t chance = random_.below(100);
    if (chance < 3) {
      pool_->prepare(random_.below(std::uint64_t{5} << 20), random_.below(20));
    } else if (held_.empty() || chance < 50) {
      take();
    } else if (chance < 60) {
      hold(random_.below(held_.size()));
    } else if (chance < 68 && !holds_.empty()) {
      end_hold(random_.below(holds_.size()));
    } else {
      give(random_.below(held_.size()));
    }
    ASSERT_EQ(pool_->used_bytes(), used_bytes_);
    ASSERT_LE(pool_->committed_bytes(), pool_->limit_bytes() + pool_->limit_bytes() / kHeldShare);
    ASSERT_GE(pool_->committed_bytes(), used_bytes_);
    ASSERT_GE(pool_->peak_bytes(), pool_->committed_bytes());
  }

 private:
  struct Held {
    Slab slab;
    std::byte mark{};
  };
  void take() {
    const std::uint64_t size = 1 + random_.below(std::uint64_t{1} << (10 + random_.below(13)));
    const std::uint64_t charge = SlabPool::charged_bytes(size);
    auto slab = pool_->try_acquire(size);
    if (charge > pool_->limit_bytes()) {
      ASSERT_EQ(slab.error().code(), Code::kInvalidArgument);
      return;
    }
    ASSERT_EQ(slab.has_value(), used_bytes_ + charge <= pool_->limit_bytes());
    if (!slab) {
      ASSERT_EQ(slab.error().code(), Code::kExhausted);
      return;
    }
    used_bytes_ += charge;
    const auto mark = static_cast<std::byte>(random_.below(256));
    (*slab).bytes().front() = mark;
    (*slab).bytes().back() = mark;
    held_.push_back({*std::move(slab), mark});
  }
  void hold(std::size_t index) {
    const Held& owner = held_[index];
    const std::span<std::byte> all = owner.slab.bytes();
    const std::size_t begin = random_.below(all.size());
    Slab part = pool_->hold_part(owner.slab, all.subspan(begin));
    if (part) holds_.push_back({std::move(part), owner.mark});
  }
  void end_hold(std::size_t index) {
    ASSERT_EQ(holds_[index].slab.bytes().back(), holds_[index].mark);
    std::swap(holds_[index], holds_.back());
    holds_.pop_back();
  }
  void give(std::size_t index) {
    ASSERT_EQ(held_[index].slab.bytes().front(), held_[index].mark);
    ASSERT_EQ(held_[index].slab.bytes().back(), held_[index].mark);
    used_bytes_ -= SlabPool::charged_bytes(held_[index].slab.bytes().size());
    std::swap(held_[index], held_.back());
    held_.pop_back();
  }

  static constexpr std::uint64_t kHeldShare = 4;

  Random random_;
  std::unique_ptr<SlabPool> pool_;
  std::uint64_t used_bytes_ = 0;
  std::vector<Held> held_, holds_;
};

TEST(SlabPoolModel, RandomOperationsAgreeWithALedger) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    // The last ones have room for whole spans.
    PoolModel model(seed, seed < 20 ? (64 + 1000 * seed) * kKiB : 5 * seed * kMiB);
    for (int i = 0; i < 1000; ++i) {
      model.step();
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed << " step " << i;
    }
  }
}

TEST(SlabPool, StaysWithinTheLimitUnderManyThreads) {
  auto pool = make_pool(4 * kMiB);
  std::vector<std::jthread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      Random random(t);
      std::vector<Slab> held;
      for (int i = 0; i < 2000; ++i) {
        auto slab = pool->try_acquire(1 + random.below(kMiB));
        if (slab) {
          (*slab).bytes().front() = static_cast<std::byte>(t);
          held.push_back(*std::move(slab));
        }
        if (!slab || held.size() > 4) held.clear();
        EXPECT_LE(pool->committed_bytes(), pool->limit_bytes());
      }
    });
  }
  threads.clear();
  EXPECT_EQ(pool->used_bytes(), 0U);
}

TEST(SlabPool, EveryWaiterIsServedInTheEnd) {
  auto pool = make_pool(64 * kKiB);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 300; ++i) {
        auto slab = pool->acquire(static_cast<std::size_t>(16 + 16 * t) * kKiB, TimePoint::max());
        EXPECT_TRUE(slab);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(pool->used_bytes(), 0U);
}

}  // namespace
}  // namespace headrace
