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
    SlabLender lender(**pool, slab);
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

TEST(SlabLender, AHoldOnAPartOutlivesThePartAndTheLender) {
  auto pool = SlabPool::create({.limit_bytes = 64 << 10, .most_held_bytes = 64 << 10});
  Slab slab = *(*pool)->try_acquire(20'000);
  Slab hold;
  {
    SlabLender lender(**pool, slab);
    Slab part = lender.lend(4'096, 1'000);
    std::memset(part.bytes().data(), 7, part.bytes().size());
    hold = part.hold();
  }
  ASSERT_EQ(hold.size_bytes(), 1'000U);
  EXPECT_EQ(hold.bytes().data(), slab.bytes().data() + 4'096);
  slab = Slab();
  EXPECT_EQ((*pool)->used_bytes(), 0U);
  EXPECT_EQ(hold.bytes()[999], std::byte{7});
}

TEST(SlabLenderDeathTest, APartThatIsStillOutIsCaught) {
  EXPECT_DEATH(
      {
        auto pool = SlabPool::create({.limit_bytes = 64 << 10});
        const Slab slab = *(*pool)->try_acquire(8);
        Slab part;
        SlabLender lender(**pool, slab);
        part = lender.lend(0, 8);
        std::destroy_at(&lender);
      },
      "out_count_");
}

}  // namespace
}  // namespace headrace::mem
