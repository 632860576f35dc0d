#include "feed/slow_batches.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/log_capture.h"

namespace headrace::feed {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TimePoint second(int s) { return TimePoint(std::chrono::hours(1) + seconds(s)); }

class SlowBatchesTest : public testing::Test {
 protected:
  /// Lines after a wait of [from, until), of a read that was sent at once and answered at `first`.
  std::vector<std::string> after(int from, int first, int until, std::uint32_t attempts = 1) {
    BatchTimeline timeline;
    timeline.slowest = {.wanted = second(from),
                        .submitted = second(from),
                        .sent = second(from),
                        .first_byte = second(first),
                        .finished = second(until),
                        .attempts = attempts};
    const WaitInterval wait{second(from), second(until)};
    slow_.after({&wait, 1}, timeline, second(until), [this] {
      ++names_;
      return std::string("s3://b/k [0, 8)");
    });
    return log_.take();
  }

  LogCapture log_{LogLevel::kWarning};
  SlowBatches slow_;
  int names_ = 0;
};

TEST_F(SlowBatchesTest, SaysWhatWasWaitedForAndWhatToDo) {
  EXPECT_THAT(after(0, 10, 12),
              ElementsAre("loader warning: waited 12.0 s for a batch, 10.0 s of it for first bytes "
                          "from s3://b/k [0, 8): " +
                          std::string(stall_advice(StallCause::kFirstByte).advice)));
}

TEST_F(SlowBatchesTest, SaysHowOftenTheReadWasTried) {
  EXPECT_THAT(after(0, 1, 12, 3),
              ElementsAre(HasSubstr("the bytes of s3://b/k [0, 8) (attempt 3): ")));
}

TEST_F(SlowBatchesTest, ShortWaitsAreNotWorthALine) {
  EXPECT_THAT(after(0, 4, 4), IsEmpty());
  EXPECT_EQ(names_, 0);
}

TEST_F(SlowBatchesTest, IsQuietForAMinuteAndThenCountsWhatItDidNotTell) {
  EXPECT_THAT(after(0, 10, 10), testing::SizeIs(1));
  EXPECT_THAT(after(10, 20, 20), IsEmpty());
  EXPECT_THAT(after(20, 30, 30), IsEmpty());
  EXPECT_THAT(after(70, 80, 80),
              ElementsAre(HasSubstr("; for 2 more since the last such line 20.0 s: ")));
  EXPECT_EQ(names_, 2);
}

TEST_F(SlowBatchesTest, MakesNoTextForNobody) {
  process_log().set_level(LogLevel::kOff);
  EXPECT_THAT(after(0, 10, 10), IsEmpty());
  EXPECT_EQ(names_, 0);
}

TEST(StallAdvice, EachCausePointsToItsOwnSection) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(StallCause::kCount); ++i) {
    const auto cause = static_cast<StallCause>(i);
    const std::string anchor = "see docs/stalls.md#" + std::string(stall_cause_name(cause));
    EXPECT_TRUE(stall_advice(cause).advice.ends_with(anchor)) << anchor;
    EXPECT_THAT(std::string(stall_advice(cause).waited_for), HasSubstr("{}"));
  }
}

}  // namespace
}  // namespace headrace::feed
