#include "auth/renewing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "base/limit_addresses.h"
#include "base/log_capture.h"
#include "base/sanitizer.h"

namespace headrace::auth {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

WallTime at(std::int64_t s) { return WallTime(seconds(s)); }

/// A source that hands out what the test puts in, and can be held up.
class Source {
 public:
  void put(Result<Token> answer) {
    MutexLock lock(mutex_);
    answers_.push_back(std::move(answer));
    changed_.notify_all();
  }
  int fetches() {
    MutexLock lock(mutex_);
    return fetches_;
  }
  void wait_for_fetches(int count) {
    MutexLock lock(mutex_);
    while (fetches_ < count) lock.wait(changed_);
  }
  /// Waits for an answer, or for the stop.
  Result<Token> fetch(std::stop_token stop) {
    std::stop_callback wake(stop, [this] {
      MutexLock lock(mutex_);
      changed_.notify_all();
    });
    MutexLock lock(mutex_);
    ++fetches_;
    changed_.notify_all();
    while (answers_.empty() && !stop.stop_requested()) lock.wait(changed_);
    if (answers_.empty()) return Status(Code::kCancelled, "stopped");
    auto answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Result<Token>> answers_;
  int fetches_ = 0;
};

class RenewingToken : public testing::Test {
 protected:
  using Current = Result<std::shared_ptr<const Token>>;

  static RenewalOptions quick() {
    RenewalOptions options;
    options.what = "token of x";
    options.attempt_pause = std::chrono::milliseconds(0);
    return options;
  }
  /// current() once nothing is under way.
  Current settled(std::int64_t now) {
    while (true) {
      auto got = provider_->current(at(now));
      if (got || got.error().code() != Code::kUnavailable) return got;
      std::this_thread::yield();
    }
  }
  std::string text(std::int64_t now) {
    auto got = settled(now);
    return got ? (*got)->text : std::string(got.error().message());
  }
  /// Asks until the renewal in the background has brought `wanted`.
  void await_text(std::int64_t now, const std::string& wanted) {
    while (text(now) != wanted) std::this_thread::yield();
  }

  Source source_;
  std::shared_ptr<TokenProvider> provider_ =
      renewing_tokens(quick(), [this](std::stop_token stop) { return source_.fetch(stop); });
};

TEST_F(RenewingToken, ContactsNobodyBeforeTheFirstUse) {
  EXPECT_EQ(source_.fetches(), 0);
  EXPECT_FALSE(provider_->invalidate(Token{"x", {}}));
  EXPECT_EQ(source_.fetches(), 0);
}

TEST_F(RenewingToken, IsUnavailableWhileTheFirstIsBeingFetched) {
  auto first = provider_->current(at(0));
  ASSERT_FALSE(first.has_value());
  EXPECT_EQ(first.error().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(first.error().message()), HasSubstr("token of x: being fetched"));
  source_.put(Token{"one", at(3600)});
  EXPECT_EQ(text(0), "one");
  EXPECT_EQ(text(2000), "one");
  EXPECT_EQ(source_.fetches(), 1);
}

TEST_F(RenewingToken, OneWithoutEndIsFetchedOnce) {
  source_.put(Token{"for ever", {}});
  EXPECT_EQ(text(0), "for ever");
  EXPECT_EQ(text(1'000'000'000), "for ever");
  EXPECT_EQ(source_.fetches(), 1);
}

TEST_F(RenewingToken, RenewsInTheLastQuarterHourAndServesTheOldOneMeanwhile) {
  source_.put(Token{"one", at(36'000)});
  EXPECT_EQ(text(0), "one");
  EXPECT_EQ(text(36'000 - 901), "one");
  EXPECT_EQ(source_.fetches(), 1);
  EXPECT_EQ(text(36'000 - 900), "one");
  source_.wait_for_fetches(2);
  EXPECT_EQ(text(36'000 - 1), "one");
  source_.put(Token{"two", at(72'000)});
  await_text(36'000 - 1, "two");
  EXPECT_EQ(source_.fetches(), 2);
}

TEST_F(RenewingToken, ShortLivedOnesAreRenewedInTheirLastQuarter) {
  source_.put(Token{"one", at(300)});
  source_.put(Token{"two", at(600)});
  EXPECT_EQ(text(0), "one");
  EXPECT_EQ(text(224), "one");
  EXPECT_EQ(source_.fetches(), 1);
  await_text(225, "two");
}

TEST_F(RenewingToken, AFailedRenewalIsRepeatedWhileTheOldOneServes) {
  source_.put(Token{"one", at(36'000)});
  EXPECT_EQ(text(0), "one");
  source_.put(Status(Code::kDenied, "no"));
  EXPECT_EQ(text(35'100), "one");
  source_.wait_for_fetches(2);
  EXPECT_EQ(text(35'101), "one");
  source_.put(Token{"two", at(72'000)});
  // The failure may be noted only now; the pause after it counts from then.
  for (std::int64_t now = 35'300; text(now) != "two"; now = std::min<std::int64_t>(now + 1, 35'999))
    std::this_thread::yield();
  EXPECT_EQ(source_.fetches(), 3);
}

TEST_F(RenewingToken, ItsRenewalsAndTheirFailuresAreLogged) {
  LogCapture log(LogLevel::kInfo);
  source_.put(Token{"one", at(36'000)});
  EXPECT_EQ(text(0), "one");
  EXPECT_THAT(log.take(), testing::IsEmpty());
  source_.put(Status(Code::kDenied, "no"));
  std::vector<std::string> lines;
  while (lines.empty()) {
    EXPECT_EQ(text(35'100), "one");
    lines = log.take();
  }
  EXPECT_THAT(lines, testing::ElementsAre("credentials warning: token of x: could not be renewed: "
                                          "no; the present ones end in 900 s, next try in 60 s"));
  source_.put(Token{"two", at(72'000)});
  await_text(35'200, "two");
  EXPECT_THAT(log.take(), testing::ElementsAre("credentials info: token of x: renewed, valid "
                                               "until Thu, 01 Jan 1970 20:00:00 GMT"));
}

TEST_F(RenewingToken, AnExpiredOneIsNotHandedOut) {
  source_.put(Token{"one", at(100)});
  EXPECT_EQ(text(0), "one");
  source_.put(Status(Code::kDenied, "the role is gone"));
  EXPECT_EQ(text(100), "token of x: the role is gone");
}

TEST_F(RenewingToken, TellsTheStoryAndTriesAgainAfterAPause) {
  source_.put(Status(Code::kDenied, "no role"));
  auto got = settled(10);
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code(), Code::kDenied);
  EXPECT_EQ(got.error().message(), "token of x: no role");
  EXPECT_EQ(provider_->current(at(11)).error().code(), Code::kDenied);
  EXPECT_EQ(source_.fetches(), 1);
  source_.put(Token{"one", {}});
  EXPECT_EQ(text(12), "one");
  EXPECT_EQ(source_.fetches(), 2);
}

TEST_F(RenewingToken, PausesGrowToOneMinute) {
  std::int64_t now = 0;
  for (std::int64_t pause : {2, 4, 8, 16, 32, 60, 60}) {
    source_.put(Status(Code::kDenied, "no"));
    EXPECT_FALSE(settled(now).has_value());
    const int fetches = source_.fetches();
    EXPECT_FALSE(settled(now + pause - 1).has_value());
    EXPECT_EQ(source_.fetches(), fetches);
    now += pause;
  }
}

TEST_F(RenewingToken, AClockSetBackDoesNotHoldItUp) {
  source_.put(Status(Code::kDenied, "no"));
  EXPECT_FALSE(settled(1'000'000).has_value());
  source_.put(Token{"one", {}});
  EXPECT_EQ(text(5), "one");
}

TEST_F(RenewingToken, WhatMayPassIsTriedThreeTimesARoundAndForThreeRounds) {
  for (int i = 0; i < 9; ++i) source_.put(Status(Code::kUnavailable, "no route"));
  (void)provider_->current(at(0));
  source_.wait_for_fetches(3);
  EXPECT_EQ(provider_->current(at(0)).error().code(), Code::kUnavailable);
  for (std::int64_t now = 0;; ++now) {
    auto got = provider_->current(at(now));
    if (got.error().code() == Code::kDenied) {
      EXPECT_EQ(got.error().message(), "token of x: no route");
      break;
    }
    std::this_thread::yield();
  }
  EXPECT_EQ(source_.fetches(), 9);
}

TEST_F(RenewingToken, ThrottlingIsTriedAgainWithinTheRound) {
  source_.put(Status(Code::kThrottled, "slow down"));
  source_.put(Token{"one", {}});
  EXPECT_EQ(text(0), "one");
  EXPECT_EQ(source_.fetches(), 2);
}

TEST_F(RenewingToken, ARefusedOneIsRenewedOnceAndNotHandedOutMeanwhile) {
  source_.put(Token{"one", at(36'000)});
  const Token one = **settled(0);
  EXPECT_TRUE(provider_->invalidate(one));
  EXPECT_TRUE(provider_->invalidate(one));
  source_.wait_for_fetches(2);
  EXPECT_EQ(provider_->current(at(1)).error().code(), Code::kUnavailable);
  source_.put(Token{"two", at(36'000)});
  EXPECT_EQ(text(1), "two");
  // Late complaints about the old one start nothing.
  EXPECT_TRUE(provider_->invalidate(one));
  EXPECT_EQ(text(2), "two");
  EXPECT_EQ(source_.fetches(), 2);
}

TEST_F(RenewingToken, TheSameOneAgainAfterARefusalIsDenied) {
  source_.put(Token{"one", at(36'000)});
  source_.put(Token{"one", at(36'000)});
  const Token one = **settled(0);
  EXPECT_TRUE(provider_->invalidate(one));
  EXPECT_THAT(text(1), HasSubstr("still hands out the same ones"));
  EXPECT_FALSE(provider_->invalidate(one));
  EXPECT_EQ(source_.fetches(), 2);
}

TEST_F(RenewingToken, OneThatHasExpiredWhenItComesIsDenied) {
  source_.put(Token{"old", at(100)});
  EXPECT_THAT(text(200), HasSubstr("already expired; check the clock"));
}

TEST_F(RenewingToken, DestructionStopsAFetchAtOnce) {
  (void)provider_->current(at(0));
  source_.wait_for_fetches(1);
  provider_.reset();  // hangs unless the stop reaches the fetch
}

TEST(RenewingOptions, DestructionInterruptsThePauseBetweenTries) {
  Source source;
  source.put(Status(Code::kUnavailable, "no"));
  RenewalOptions options;
  options.attempt_pause = std::chrono::hours(1);
  auto provider =
      renewing_tokens(options, [&](std::stop_token stop) { return source.fetch(stop); });
  (void)provider->current(at(0));
  source.wait_for_fetches(1);
  provider.reset();
}

TEST(RenewingThreads, ManyMayAskAtOnce) {
  std::atomic<int> fetches = 0;
  auto provider = renewing_tokens({}, [&](std::stop_token) -> Result<Token> {
    return Token{"t" + std::to_string(++fetches), at(1'000'000)};
  });
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 500; ++i) {
          auto got = provider->current(at(i));
          if (got && i % 100 == 99) (void)provider->invalidate(**got);
        }
      });
    }
  }
  auto last = provider->current(at(600));
  while (!last) last = provider->current(at(600));
  EXPECT_EQ((*last)->text, "t" + std::to_string(fetches.load()));
}

#if !defined(HEADRACE_HAS_SANITIZER)
TEST(RenewingDeathTest, ARefusedThreadIsAFailureThatMayPass) {
  const auto run = [] {
    RenewalOptions options;
    options.what = "token of x";
    const auto provider = renewing_tokens(options, [](std::stop_token) -> Result<Token> {
      return Token{"a", {}};
    });
    limit_addresses(1 << 20);
    static_cast<void>(provider->current(at(0)));
    const auto got = provider->current(at(0));
    const bool is_right = !got && got.error().code() == Code::kUnavailable &&
                          got.error().message().find("no thread") != std::string_view::npos;
    ::_exit(is_right ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace headrace::auth
