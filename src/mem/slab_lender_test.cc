#include "mem/slab_lender.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <utility>

namespace headrace::mem {
namespace {

TEST(SlabLender, PartsAreTheBytesOfTheSlabAndCountNothing) {
  auto pool = SlabPool::create({.limit_bytes = 64 << 10});
  Slab slab = *(*pool)->try_acquire(10'000);
  {
    SlabLender lender(slab.bytes());
    Slab first = lender.lend(0, 4'001);
    Slab second = lender.lend(4'001, 5'999);
    EXPECT_EQ(first.size_bytes(), 4'001U);
    EXPECT_EQ((*pool)->used_bytes(), SlabPool::charged_bytes(10'000));
    std::memset(first.bytes().data(), 1, first.bytes().size());
    std::jthread other([part = std::move(second)]() mutable {
      std::memset(part.bytes().data(), 2, part.bytes().size());
      part = Slab();
    });
  }
  EXPECT_EQ(slab.bytes()[4'000], std::byte{1});
  EXPECT_EQ(slab.bytes()[4'001], std::byte{2});
  EXPECT_EQ(slab.bytes()[9'999], std::byte{2});
}

TEST(SlabLenderDeathTest, APartThatIsStillOutIsCaught) {
  EXPECT_DEATH(
      {
        std::byte bytes[8];
        Slab part;
        SlabLender lender(bytes);
        part = lender.lend(0, 8);
        std::destroy_at(&lender);
      },
      "out_count_");
}

}  // namespace
}  // namespace headrace::mem
