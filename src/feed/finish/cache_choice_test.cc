#include "feed/finish/cache_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::feed {
namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;

constexpr CacheCosts kPhotographs{.decode_s = 800e-6,
                                  .read_s = {},
                                  .value_bytes = 150'528,
                                  .needed_bytes = 100,
                                  .capacity_bytes = 100};

CacheCosts with(void (*change)(CacheCosts&)) {
  CacheCosts costs = kPhotographs;
  change(costs);
  return costs;
}

TEST(CacheChoice, KeepsWhatTakesTwiceAsLongToDecodeAsToRead) {
  EXPECT_EQ(judge_cache(kPhotographs), CacheVerdict::kKept);
  // 20 us and 150 us for its bytes.
  EXPECT_EQ(judge_cache(with([](CacheCosts& c) { c.decode_s = 345e-6; })), CacheVerdict::kKept);
  EXPECT_EQ(judge_cache(with([](CacheCosts& c) { c.decode_s = 335e-6; })), CacheVerdict::kCheap);
}

TEST(CacheChoice, GoesByWhatReadingTakesOnceThatIsKnown) {
  EXPECT_EQ(judge_cache(with([](CacheCosts& c) { c.read_s = 790e-6; })), CacheVerdict::kKept);
  EXPECT_EQ(judge_cache(with([](CacheCosts& c) { c.read_s = 810e-6; })), CacheVerdict::kSlowCache);
  EXPECT_EQ(judge_cache(with([](CacheCosts& c) {
              c.decode_s = 60e-6;
              c.read_s = 50e-6;
            })),
            CacheVerdict::kKept);
}

TEST(CacheChoice, KeepsNothingWhereNotEverythingFits) {
  EXPECT_EQ(judge_cache(with([](CacheCosts& c) { c.capacity_bytes = 99; })), CacheVerdict::kNoRoom);
}

TEST(CacheChoice, KnowsNothingBeforeItWasMeasured) {
  EXPECT_EQ(judge_cache(with([](CacheCosts& c) { c.decode_s.reset(); })), CacheVerdict::kUnknown);
  MeanTime time;
  for (std::uint64_t i = 1; i < MeanTime::kLeastCount; ++i) time.add(microseconds(100));
  EXPECT_FALSE(time.seconds());
  EXPECT_EQ(time.add(microseconds(100 + 1600)), MeanTime::kLeastCount);
  EXPECT_NEAR(*time.seconds(), 200e-6, 1e-9);
  time.reset();
  EXPECT_FALSE(time.seconds());
}

TEST(CacheChoice, SaysWhy) {
  EXPECT_EQ(explain_cache(kPhotographs, CacheVerdict::kKept),
            "is kept decoded in the cache: decoding a value takes 800 us, reading it about 171 us");
  EXPECT_EQ(explain_cache(with([](CacheCosts& c) { c.read_s = 900e-6; }), CacheVerdict::kSlowCache),
            "is decoded in each epoch: decoding a value takes 800 us, reading it 900 us from the "
            "cache");
  EXPECT_THAT(explain_cache(with([](CacheCosts& c) {
                              c.needed_bytes = 7 << 20;
                              c.capacity_bytes = 5 << 20;
                            }),
                            CacheVerdict::kNoRoom),
              HasSubstr("the cache has 5 MiB, stored bytes and decoded values take 7 MiB"));
}

}  // namespace
}  // namespace headrace::feed
