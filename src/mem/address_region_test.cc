#include "mem/address_region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "mem/size_class.h"

namespace headrace::mem {
namespace {

constexpr std::uint64_t kPiece = kHugePageBytes;

bool is_mapped(std::byte* page) {
  unsigned char resident = 0;
  if (::mincore(page, kPageBytes, &resident) == 0) return true;
  EXPECT_EQ(errno, ENOMEM);
  return false;
}

TEST(AddressRegion, TakesAddressesTogetherThatWereMappedTogether) {
  AddressRegion region;
  std::vector<std::byte*> taken;
  int jumps = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    taken.push_back(region.take(kPiece));
    ASSERT_NE(taken.back(), nullptr);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(taken.back()) % kHugePageBytes, 0U);
    taken.back()[0] = std::byte{1};
    taken.back()[kPiece - 1] = std::byte{1};
    if (i > 0 && taken[i] != taken[i - 1] + kPiece) ++jumps;
  }
  // One for each doubling: 1, 1, 2, 4, 8, 16, 32 pieces.
  EXPECT_LE(jumps, 7);
  for (std::byte* const piece : taken) EXPECT_EQ(::munmap(piece, kPiece), 0);
}

TEST(AddressRegion, UnmapsWhatNobodyHasTaken) {
  std::byte* last = nullptr;
  {
    AddressRegion region;
    for (int i = 0; i < 3; ++i) last = region.take(kPiece);  // The third of two and two.
    EXPECT_TRUE(is_mapped(last + kPiece));
  }
  EXPECT_TRUE(is_mapped(last));
  EXPECT_FALSE(is_mapped(last + kPiece));
}

TEST(AddressRegionDeathTest, TakesJustWhatIsAskedForWhereThereAreFewAddresses) {
  const auto run = [] {
    AddressRegion region;
    if (region.take(20 * kPiece) == nullptr) std::_Exit(2);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    // Twice what is asked for next would not fit.
    const rlim_t most = pages * kPageBytes + 10 * kPiece;
    const struct rlimit limit = {.rlim_cur = most, .rlim_max = most};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(3);
    if (region.take(5 * kPiece) == nullptr) std::_Exit(4);
    if (region.take(5 * kPiece) != nullptr) std::_Exit(5);
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace::mem
