#include "store/transfer/retry_policy.h"

#include <gtest/gtest.h>

#include "base/manual_clock.h"

namespace headrace::transfer {
namespace {

using namespace std::chrono_literals;

class RetryPolicyTest : public testing::Test {
 protected:
  RetryDecision decide(const AttemptFailure& failure) {
    return decide_retry(options_, failure, clock_.now(), clock_.now() + timeout_, budget_, random_);
  }
  static AttemptFailure after(std::uint32_t attempts) {
    AttemptFailure failure;
    failure.attempts = attempts;
    return failure;
  }

  ManualClock clock_;
  RetryOptions options_;
  std::chrono::nanoseconds timeout_ = 1h;
  RetryBudget budget_{{1e9, 1e9, 0}, clock_.now()};
  Random random_{3};
};

TEST_F(RetryPolicyTest, DelaysAreSpreadOverADoublingBound) {
  for (std::uint32_t attempts = 1; attempts < 10; ++attempts) {
    const Microseconds bound = std::min<Microseconds>(10s, 100ms * (1 << (attempts - 1)));
    Microseconds lowest = 1h;
    Microseconds highest{0};
    for (int i = 0; i < 500; ++i) {
      const RetryDecision decision = decide(after(attempts));
      ASSERT_EQ(decision.verdict, RetryVerdict::kRetry);
      const auto delay = std::chrono::duration_cast<Microseconds>(decision.at - clock_.now());
      lowest = std::min(lowest, delay);
      highest = std::max(highest, delay);
    }
    EXPECT_LT(lowest, bound / 20);
    EXPECT_GT(highest, bound * 19 / 20);
    EXPECT_LE(highest, bound);
  }
}

TEST_F(RetryPolicyTest, RareFailuresAreRepeatedQuickly) {
  AttemptFailure failure = after(1);
  failure.is_rare = true;
  for (int i = 0; i < 100; ++i) EXPECT_LE(decide(failure).at, clock_.now() + 10ms);
  const auto highest = [&](std::uint32_t attempts) {
    failure.attempts = attempts;
    Microseconds most{0};
    for (int i = 0; i < 500; ++i) {
      most = std::max(most,
                      std::chrono::duration_cast<Microseconds>(decide(failure).at - clock_.now()));
    }
    return most;
  };
  EXPECT_LE(highest(2), 40ms);
  EXPECT_GT(highest(2), 30ms);
  EXPECT_LE(highest(3), 160ms);
  EXPECT_GT(highest(4), 600ms) << "the back-off of any failure: 800 ms";
  EXPECT_LE(highest(4), 640ms);
  EXPECT_GT(highest(6), 3000ms);
}

TEST_F(RetryPolicyTest, SameSeedSameDelays) {
  Random again{3};
  const RetryDecision first = decide(after(3));
  random_ = again;
  EXPECT_EQ(decide(after(3)).at, first.at);
}

TEST_F(RetryPolicyTest, OnlyRetryableCodesAreRetried) {
  for (int value = 1; value <= static_cast<int>(Code::kInternal); ++value) {
    AttemptFailure failure = after(1);
    failure.code = static_cast<Code>(value);
    const bool is_retried = decide(failure).verdict == RetryVerdict::kRetry;
    EXPECT_EQ(is_retried, failure.code == Code::kUnavailable || failure.code == Code::kThrottled)
        << value;
  }
}

TEST_F(RetryPolicyTest, AttemptsAreLimited) {
  options_.max_attempts = 3;
  EXPECT_EQ(decide(after(2)).verdict, RetryVerdict::kRetry);
  EXPECT_EQ(decide(after(3)).verdict, RetryVerdict::kFinal);
}

TEST_F(RetryPolicyTest, WhatMustNotBeRepeatedIsNot) {
  AttemptFailure failure = after(1);
  failure.may_repeat = false;
  EXPECT_EQ(decide(failure).verdict, RetryVerdict::kFinal);
}

TEST_F(RetryPolicyTest, RetryAfterIsTheLeastDelay) {
  AttemptFailure failure = after(1);
  failure.retry_after = 3s;
  for (int i = 0; i < 50; ++i) {
    const RetryDecision decision = decide(failure);
    EXPECT_GE(decision.at, clock_.now() + 3s);
    EXPECT_LE(decision.at, clock_.now() + 3100ms);
  }
}

TEST_F(RetryPolicyTest, NoRetryBeginsAfterTheDeadline) {
  timeout_ = 2s;
  AttemptFailure failure = after(1);
  failure.retry_after = 2s;
  EXPECT_LT(decide(failure).at, clock_.now() + timeout_);
  failure.retry_after = 1s;
  EXPECT_GE(decide(failure).at, clock_.now() + 1s);
  timeout_ = 0s;
  EXPECT_EQ(decide(failure).verdict, RetryVerdict::kDeadline);
  failure.retry_after.reset();
  EXPECT_EQ(decide(failure).verdict, RetryVerdict::kDeadline);
}

TEST_F(RetryPolicyTest, AskedToWaitBeyondTheDeadlineItTriesBefore) {
  timeout_ = 60s;
  AttemptFailure failure = after(1);
  failure.code = Code::kThrottled;
  failure.retry_after = 1h;
  for (int i = 0; i < 100; ++i) {
    const RetryDecision decision = decide(failure);
    ASSERT_EQ(decision.verdict, RetryVerdict::kRetry);
    EXPECT_GE(decision.at, clock_.now() + 30s);
    EXPECT_LE(decision.at, clock_.now() + 45s);
  }
  // Closer and closer to the deadline, and then it is over.
  std::uint32_t tries = 0;
  RetryDecision decision = decide(failure);
  const TimePoint deadline = clock_.now() + timeout_;
  for (; decision.verdict == RetryVerdict::kRetry; decision = decide(failure)) {
    clock_.advance(decision.at - clock_.now());
    ASSERT_LT(clock_.now(), deadline);
    timeout_ = deadline - clock_.now();
    failure.attempts = ++tries;
  }
  EXPECT_EQ(decision.verdict, RetryVerdict::kDeadline);
  EXPECT_GE(tries, 4U);
  EXPECT_LT(timeout_, 100ms);
}

TEST_F(RetryPolicyTest, EmptyBudgetSpreadsRetriesOut) {
  budget_ = RetryBudget({2, 10, 1}, clock_.now());
  options_.base = 0ms;
  EXPECT_EQ(decide(after(1)).at, clock_.now());
  EXPECT_EQ(decide(after(1)).at, clock_.now());
  EXPECT_EQ(decide(after(1)).at, clock_.now() + 100ms);
  EXPECT_EQ(decide(after(1)).at, clock_.now() + 200ms);
  timeout_ = 250ms;
  EXPECT_EQ(decide(after(1)).verdict, RetryVerdict::kDeadline);
}

TEST_F(RetryPolicyTest, WhatWasThrottledIsRepeatedBeforeItsDeadline) {
  budget_ = RetryBudget({0, 0.001, 0}, clock_.now());
  options_.base = 0ms;
  timeout_ = 10s;
  EXPECT_EQ(decide(after(1)).verdict, RetryVerdict::kDeadline);
  AttemptFailure failure = after(1);
  failure.code = Code::kThrottled;
  TimePoint first = TimePoint::max(), last{};
  for (int i = 0; i < 100; ++i) {
    const RetryDecision decision = decide(failure);
    ASSERT_EQ(decision.verdict, RetryVerdict::kRetry);
    first = std::min(first, decision.at);
    last = std::max(last, decision.at);
  }
  EXPECT_LT(first, clock_.now() + 1s);
  EXPECT_GT(last, clock_.now() + 4s);
  EXPECT_LT(last, clock_.now() + 5s);
}

TEST_F(RetryPolicyTest, AnOutageLeavesNoDebt) {
  budget_ = RetryBudget({2, 10, 0}, clock_.now());
  options_.base = 0ms;
  timeout_ = 1s;
  for (int i = 0; i < 1000; ++i) decide(after(1));
  clock_.advance(1s);
  EXPECT_EQ(decide(after(1)).verdict, RetryVerdict::kRetry) << "those that gave up took nothing";
}

TEST_F(RetryPolicyTest, BudgetRefillsByTimeAndBySuccess) {
  budget_ = RetryBudget({1, 10, 0.5}, clock_.now());
  EXPECT_EQ(budget_.take(clock_.now()), Microseconds(0));
  EXPECT_EQ(budget_.take(clock_.now()), Microseconds(100'000));
  clock_.advance(200ms);
  EXPECT_EQ(budget_.take(clock_.now()), Microseconds(0));
  budget_.on_success();
  budget_.on_success();
  EXPECT_EQ(budget_.take(clock_.now()), Microseconds(0));
  clock_.advance(1h);
  EXPECT_EQ(budget_.take(clock_.now()), Microseconds(0));
  EXPECT_GT(budget_.take(clock_.now()), Microseconds(0));
}

TEST_F(RetryPolicyTest, WhileOthersSucceedTurnsComeSooner) {
  budget_ = RetryBudget({0, 10, 0.1}, clock_.now());
  for (int i = 0; i < 1000; ++i) budget_.on_success();
  clock_.advance(1s);
  // 10 by time and 100 by successes a second.
  const Microseconds turn = budget_.take(clock_.now());
  EXPECT_GT(turn, 8ms);
  EXPECT_LT(turn, 10ms);
  clock_.advance(5s);
  EXPECT_EQ(budget_.take(clock_.now()), 100ms) << "an outage: time alone";
}

}  // namespace
}  // namespace headrace::transfer
