#include "mem/page_toucher.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "headrace/memory.h"

namespace headrace::mem {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t resident_pages(std::span<const std::byte> memory) {
  std::vector<unsigned char> pages((memory.size() + kPage - 1) / kPage);
  EXPECT_EQ(::mincore(const_cast<std::byte*>(memory.data()), memory.size(), pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

std::span<std::byte> map(std::size_t size_bytes, void* at = nullptr) {
  void* const found = ::mmap(at, size_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
  EXPECT_NE(found, MAP_FAILED);
  return {static_cast<std::byte*>(found), size_bytes};
}

void unmap(std::span<std::byte> memory) { EXPECT_EQ(::munmap(memory.data(), memory.size()), 0); }

/// Until all of it has pages; a toucher that does nothing ends in the runner's time-out.
void wait_for_pages(std::span<const std::byte> memory) {
  while (resident_pages(memory) < (memory.size() + kPage - 1) / kPage) std::this_thread::yield();
}

bool can_populate() {
  const std::span<std::byte> memory = map(kPage);
  const bool can = ::madvise(memory.data(), kPage, 23 /* MADV_POPULATE_WRITE */) == 0;
  unmap(memory);
  return can;
}

class PageToucherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_populate()) GTEST_SKIP() << "needs MADV_POPULATE_WRITE (Linux 5.14)";
  }
};

TEST_F(PageToucherTest, GivesPagesAndLeavesWhatIsWritten) {
  const std::span<std::byte> memory = map(9 * kMiB + 3 * kPage);
  std::fill(memory.begin(), memory.begin() + 100, std::byte{7});
  PageToucher toucher;
  toucher.touch(memory);
  for (std::size_t at = 5 * kMiB; at < 6 * kMiB; ++at) memory[at] = std::byte{9};
  wait_for_pages(memory);
  toucher.end();
  for (std::size_t at = 0; at < memory.size(); ++at) {
    const int expected = at < 100 ? 7 : at >= 5 * kMiB && at < 6 * kMiB ? 9 : 0;
    ASSERT_EQ(std::to_integer<int>(memory[at]), expected) << at;
  }
  unmap(memory);
}

TEST_F(PageToucherTest, TouchesNothingThatItForgot) {
  PageToucher toucher;
  for (int round = 0; round < 50; ++round) {
    const std::span<std::byte> memory = map(4 * kMiB);
    const std::span<std::byte> other = map(4 * kMiB);
    toucher.touch(memory);
    toucher.touch(other);
    toucher.forget(memory.data(), memory.size());
    unmap(memory);
    const std::span<std::byte> new_there = map(memory.size(), memory.data());
    wait_for_pages(other);
    ASSERT_EQ(resident_pages(new_there), 0U);
    toucher.forget(other.data(), other.size());
    unmap(other);
    unmap(new_there);
  }
}

TEST_F(PageToucherTest, EndsWithWorkLeft) {
  const std::span<std::byte> memory = map(64 * kMiB);
  PageToucher toucher;
  toucher.touch(memory);
  toucher.end();
  unmap(memory);
  const std::span<std::byte> later = map(kMiB);
  toucher.touch(later);
  toucher.end();
  EXPECT_EQ(resident_pages(later), 0U);
  unmap(later);
}

TEST_F(PageToucherTest, ANewLargeSlabHasPagesBeforeItIsWrittenTo) {
  auto pool = SlabPool::create({.limit_bytes = 64 * kMiB});
  ASSERT_TRUE(pool);
  const Slab slab = *(*pool)->try_acquire(8 * kMiB);
  wait_for_pages(slab.bytes());
}

TEST_F(PageToucherTest, PreparedSlabsHavePagesBeforeTheyAreTaken) {
  auto pool = SlabPool::create({.limit_bytes = 64 * kMiB});
  ASSERT_TRUE(pool);
  (*pool)->prepare(8 * kMiB, 3);
  std::vector<Slab> slabs;
  for (int i = 0; i < 3; ++i) {
    slabs.push_back(*(*pool)->try_acquire(8 * kMiB));
    wait_for_pages(slabs.back().bytes());
  }
}

TEST_F(PageToucherTest, ASlabThatWasDroppedGetsNoPages) {
  auto pool = SlabPool::create({.limit_bytes = 16 * kMiB});
  ASSERT_TRUE(pool);
  const std::byte* const at = (*pool)->try_acquire(12 * kMiB)->bytes().data();
  static_cast<void>(*(*pool)->try_reserve(14 * kMiB));  // Drives it out.
  const std::span<std::byte> new_there = map(12 * kMiB, const_cast<std::byte*>(at));
  const Slab slab = *(*pool)->try_acquire(8 * kMiB);
  wait_for_pages(slab.bytes());
  EXPECT_EQ(resident_pages(new_there), 0U);
  unmap(new_there);
}

}  // namespace
}  // namespace headrace::mem
