#include "tier/pace.h"

#include <gtest/gtest.h>

#include <chrono>

namespace headrace::tier {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class PaceTest : public ::testing::Test {
 protected:
  /// A disk on which `pending` reads of a MiB wait all the time, one ending every `each`. How many
  /// of those that might go to the store do.
  int run_disk(int count, int pending, milliseconds each) {
    for (; pending_ < pending; ++pending_) pace_.begin_disk(kMiB, now_);
    int preferred = 0;
    for (int i = 0; i < count; ++i) {
      now_ += each;
      pace_.end_disk(kMiB, kMiB, now_);
      if (pace_.prefers_store(now_)) ++preferred;
      pace_.begin_disk(kMiB, now_);
    }
    return preferred;
  }
  void run_store(int count, milliseconds each) {
    for (int i = 0; i < count; ++i) {
      pace_.begin_store(kMiB, now_);
      now_ += each;
      pace_.end_store(kMiB, kMiB, now_);
    }
  }

  Pace pace_;
  TimePoint now_{};
  int pending_ = 0;
};

TEST_F(PaceTest, ADiskThatKeepsUpIsReadWhateverTheStoreCould) {
  run_store(1000, milliseconds(1));
  EXPECT_EQ(run_disk(10'000, 2, milliseconds(10)), 0) << "two wait: 20 ms";
}

TEST_F(PaceTest, ADiskThatIsBehindForLongGivesWayToAFasterStore) {
  run_store(1000, milliseconds(8));
  EXPECT_EQ(run_disk(300, 64, milliseconds(10)), 0) << "three seconds: a loader fills its memory";
  EXPECT_GT(run_disk(300, 64, milliseconds(10)), 250);
}

TEST_F(PaceTest, ADiskThatIsTwiceSlowerIsGivenUpSooner) {
  run_store(1000, milliseconds(5));
  EXPECT_EQ(run_disk(250, 64, milliseconds(10)), 0);
  EXPECT_GT(run_disk(100, 64, milliseconds(10)), 80);
}

TEST_F(PaceTest, ADiskThatIsMuchSlowerGivesWayAsSoonAsThatIsKnown) {
  run_store(1000, milliseconds(2));
  EXPECT_EQ(run_disk(49, 64, milliseconds(10)), 0) << "half a second: the rate is not known";
  EXPECT_GE(run_disk(100, 64, milliseconds(10)), 99);
}

TEST_F(PaceTest, ADiskThatIsMuchSlowerIsReadWhereNothingPilesUp) {
  run_store(1000, milliseconds(1));
  EXPECT_EQ(run_disk(1000, 25, milliseconds(10)), 0) << "a quarter of a second waits";
  EXPECT_EQ(run_disk(1000, 27, milliseconds(10)), 1000);
}

TEST_F(PaceTest, ASlowerStoreIsNotAsked) {
  run_store(1000, milliseconds(20));
  EXPECT_EQ(run_disk(1000, 64, milliseconds(10)), 0);
}

TEST_F(PaceTest, OfAnUnknownStoreALittleIsAsked) {
  run_disk(400, 64, milliseconds(10));
  const int asked = run_disk(1600, 64, milliseconds(10));
  EXPECT_GE(asked, 90);
  EXPECT_LE(asked, 110);
}

TEST_F(PaceTest, TheStoreGetsNoMoreThanItHasDoneSooner) {
  run_store(1000, milliseconds(5));
  run_disk(400, 64, milliseconds(10));  // 0.64 s of waiting.
  for (int i = 0; i < 120; ++i) pace_.begin_store(kMiB, now_);
  EXPECT_TRUE(pace_.prefers_store(now_)) << "0.6 s there";
  for (int i = 0; i < 20; ++i) pace_.begin_store(kMiB, now_);
  EXPECT_FALSE(pace_.prefers_store(now_)) << "0.7 s there";
}

TEST_F(PaceTest, WhoCatchesUpIsReadAgain) {
  run_store(1000, milliseconds(8));
  run_disk(600, 64, milliseconds(10));
  EXPECT_TRUE(pace_.prefers_store(now_));
  for (; pending_ > 0; --pending_) pace_.end_disk(kMiB, kMiB, now_);
  EXPECT_FALSE(pace_.prefers_store(now_));
  EXPECT_EQ(run_disk(200, 64, milliseconds(10)), 0);
}

}  // namespace
}  // namespace headrace::tier
