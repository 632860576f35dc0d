#include "net/mailbox.h"

#include <gtest/gtest.h>

#include <deque>
#include <semaphore>
#include <thread>
#include <vector>

namespace headrace {
namespace {

TimePoint at(std::int64_t s) { return TimePoint(std::chrono::seconds(s)); }

TEST(Mailbox, HandsLettersOverInOrder) {
  Mailbox mailbox;
  Letter a(0), b(1), c(2);
  EXPECT_EQ(mailbox.take_all(), nullptr);
  mailbox.push(a);
  mailbox.push(b);
  mailbox.push(c);
  Letter* first = mailbox.take_all();
  ASSERT_EQ(first, &a);
  ASSERT_EQ(first->next, &b);
  ASSERT_EQ(first->next->next, &c);
  EXPECT_EQ(c.next, nullptr);
  EXPECT_EQ(mailbox.take_all(), nullptr);
}

TEST(Mailbox, AwakeOwnerIsNotWoken) {
  Mailbox mailbox;
  EXPECT_FALSE(mailbox.should_wake(TimePoint::min()));
}

TEST(Mailbox, SleepingOwnerIsWokenOnce) {
  Mailbox mailbox;
  ASSERT_TRUE(mailbox.begin_wait(true, at(10)));
  EXPECT_TRUE(mailbox.should_wake(at(100)));
  EXPECT_FALSE(mailbox.should_wake(at(100)));
  ASSERT_TRUE(mailbox.begin_wait(true, at(10)));
  EXPECT_TRUE(mailbox.should_wake(at(100)));
}

TEST(Mailbox, BusyOwnerIsWokenOnlyForWhatCannotWait) {
  Mailbox mailbox;
  ASSERT_TRUE(mailbox.begin_wait(false, at(10)));
  EXPECT_FALSE(mailbox.should_wake(at(10)));
  EXPECT_TRUE(mailbox.should_wake(at(9)));
  ASSERT_TRUE(mailbox.begin_wait(false, at(10)));
  EXPECT_TRUE(mailbox.should_wake(TimePoint::min()));
}

TEST(Mailbox, OwnerDoesNotWaitWithUnreadLetters) {
  Mailbox mailbox;
  Letter letter(0);
  mailbox.push(letter);
  EXPECT_FALSE(mailbox.begin_wait(true, at(10)));
  EXPECT_FALSE(mailbox.begin_wait(false, at(10)));
  EXPECT_FALSE(mailbox.should_wake(TimePoint::min()));
}

TEST(Mailbox, NoLetterIsLostBetweenThreads) {
  constexpr int kSenders = 3;
  constexpr int kLetters = 5'000;
  Mailbox mailbox;
  std::counting_semaphore<> bell(0);
  std::deque<Letter> letters;
  for (int i = 0; i < kSenders * kLetters; ++i)
    letters.emplace_back(static_cast<std::uint8_t>(i / kLetters));
  std::vector<std::thread> senders;
  for (int sender = 0; sender < kSenders; ++sender) {
    senders.emplace_back([&, sender] {
      for (int i = 0; i < kLetters; ++i) {
        mailbox.push(letters[static_cast<std::size_t>(sender * kLetters + i)]);
        if (mailbox.should_wake(TimePoint::max())) bell.release();
      }
    });
  }
  std::vector<int> next(kSenders, 0);
  for (int taken = 0; taken < kSenders * kLetters;) {
    for (Letter* letter = mailbox.take_all(); letter != nullptr; letter = letter->next) {
      ASSERT_EQ(letter,
                &letters[static_cast<std::size_t>(letter->kind * kLetters + next[letter->kind]++)]);
      ++taken;
    }
    if (taken < kSenders * kLetters && mailbox.begin_wait(true, TimePoint::max())) {
      bell.acquire();
      mailbox.end_wait();
    }
  }
  for (std::thread& sender : senders) sender.join();
}

}  // namespace
}  // namespace headrace
