#include "store/finish_upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/manual_clock.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class FinishUploadTest : public testing::Test {
 protected:
  FinishUploadTest() {
    end_.what = "COMPLETE s3://b/k";
    end_.pause = 0ms;
    end_.longest_pause = 0ms;
    end_.deadline = clock_.now() + 10min;
    end_.complete = [this](TimePoint deadline) {
      EXPECT_LT(deadline, end_.deadline) << "no time to look afterwards";
      clock_.advance(step_);
      const Code code = answers_.at(std::min(completes_++, answers_.size() - 1));
      return code == Code::kOk ? Status() : Status(code, "answer");
    };
    end_.find = [this](TimePoint) -> Result<std::optional<ObjectInfo>> {
      clock_.advance(step_);
      if (++finds_ < appears_at_) return std::optional<ObjectInfo>();
      return std::optional<ObjectInfo>(ObjectInfo{.key = "k", .size_bytes = 5, .etag = "e"});
    };
  }
  Result<std::optional<ObjectInfo>> finish() {
    return finish_upload(end_, clock_, stop_.get_token());
  }

  ManualClock clock_;
  UploadEnd end_;
  std::stop_source stop_;
  std::vector<Code> answers_;
  std::chrono::seconds step_{1};
  std::size_t completes_ = 0;
  std::size_t finds_ = 0;
  std::size_t appears_at_ = SIZE_MAX;
};

TEST_F(FinishUploadTest, ASuccessIsNotLookedAt) {
  answers_ = {Code::kOk};
  EXPECT_TRUE(finish());
  EXPECT_EQ(finds_, 0U);
}

TEST_F(FinishUploadTest, AfterALostAnswerItLooksBeforeItAsksAgain) {
  for (const Code code : {Code::kUnavailable, Code::kThrottled, Code::kCorrupt, Code::kDeadline}) {
    completes_ = finds_ = 0;
    answers_ = {code};
    appears_at_ = 1;
    const auto done = finish();
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_EQ((*done)->size_bytes, 5U);
    EXPECT_EQ(completes_, 1U);
  }
}

TEST_F(FinishUploadTest, AGoneUploadAfterALostAnswerIsWaitedFor) {
  answers_ = {Code::kUnavailable, Code::kNotFound};
  appears_at_ = 30;
  EXPECT_TRUE(finish());
  EXPECT_EQ(completes_, 2U) << "what is gone is not asked for again";
  EXPECT_EQ(finds_, 30U);
}

TEST_F(FinishUploadTest, AGoneUploadThatNobodyAskedToEndIsAnErrorAtOnce) {
  answers_ = {Code::kNotFound};
  const auto done = finish();
  EXPECT_EQ(done.error().code(), Code::kNotFound);
  EXPECT_EQ(done.error().message(), "answer");
  EXPECT_EQ(finds_, 1U);
}

TEST_F(FinishUploadTest, RefusalsAreFinal) {
  for (const Code code : {Code::kDenied, Code::kInvalidArgument, Code::kCancelled}) {
    completes_ = 0;
    answers_ = {code};
    EXPECT_EQ(finish().error().code(), code);
    EXPECT_EQ(completes_, 1U);
  }
  EXPECT_EQ(finds_, 0U);
}

TEST_F(FinishUploadTest, AskedUntilTheDeadlineAndThenItSaysWhatItKnows) {
  answers_ = {Code::kUnavailable};
  const auto done = finish();
  EXPECT_EQ(done.error().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(done.error().message()), HasSubstr("may have completed it"));
  EXPECT_LE(clock_.now(), end_.deadline);
  EXPECT_GT(completes_, 200U);
}

TEST_F(FinishUploadTest, AnObjectThatNeverAppearsEndsLongBeforeTheDeadline) {
  answers_ = {Code::kUnavailable, Code::kNotFound};
  const TimePoint start = clock_.now();
  EXPECT_EQ(finish().error().code(), Code::kNotFound);
  EXPECT_LT(clock_.now() - start, 3min);
}

TEST_F(FinishUploadTest, AStopEndsIt) {
  answers_ = {Code::kUnavailable};
  stop_.request_stop();
  EXPECT_EQ(finish().error().code(), Code::kCancelled);
}

}  // namespace
}  // namespace headrace
