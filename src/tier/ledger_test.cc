#include "tier/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cut_off.h"
#include "base/small_files.h"
#include "base/temporary_directory.h"

namespace headrace::tier {
namespace {

class LedgerOf : public ::testing::Test {
 protected:
  std::unique_ptr<Ledger> open_new() {
    auto ledger = Ledger::open(root_.get());
    EXPECT_TRUE(ledger) << ledger.error().message();
    return ledger ? *std::move(ledger) : nullptr;
  }
  /// One that knows that there are no files.
  std::unique_ptr<Ledger> open() {
    const bool is_first = !std::ifstream(directory_.path() + "/ledger");
    auto ledger = open_new();
    if (is_first) {
      EXPECT_TRUE(ledger->recount([] { return std::uint64_t{0}; }));
    }
    return ledger;
  }
  /// Another process that dies without a word after `work`.
  void in_killed_process(const std::function<void(Ledger&)>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto ledger = Ledger::open(root_.get());
      if (ledger) work(**ledger);
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  TemporaryDirectory directory_;
  Fd root_{::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY)};
};

TEST_F(LedgerOf, ReservesUpToTheLimit) {
  const auto one = open();
  const auto other = open();
  EXPECT_TRUE(one->try_reserve(60, 100));
  EXPECT_FALSE(other->try_reserve(50, 100));
  EXPECT_TRUE(other->try_reserve(40, 100));
  EXPECT_EQ(one->used_bytes(), 100U);
  one->cancel(60);
  EXPECT_EQ(other->used_bytes(), 40U);
  EXPECT_FALSE(one->try_reserve(UINT64_MAX, 100));
}

TEST_F(LedgerOf, KnowsWhetherOthersHaveTheDirectoryOpen) {
  auto first = open();
  EXPECT_TRUE(first->is_alone());
  auto second = open();
  EXPECT_FALSE(first->is_alone());
  EXPECT_FALSE(second->is_alone());
  first.reset();
  EXPECT_TRUE(second->is_alone());
  in_killed_process([](Ledger&) {});
  EXPECT_TRUE(second->is_alone());
}

TEST_F(LedgerOf, NeverLetsThreadsOverTheLimit) {
  const auto ledger = open();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 2000; ++n) {
        if (!ledger->try_reserve(30, 100)) continue;
        EXPECT_LE(ledger->used_bytes(), 100U + 3 * 30) << "three others may be asking";
        ledger->cancel(30);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger->used_bytes(), 0U);
}

TEST_F(LedgerOf, WhatTheDeadHadReservedIsDoubtedUntilFilesAreCounted) {
  const auto ledger = open();
  ASSERT_TRUE(ledger->recount([] { return std::uint64_t{0}; }));
  for (const bool is_taken : {false, true}) {  // Its slot, by the next process.
    in_killed_process([](Ledger& dying) { EXPECT_TRUE(dying.try_reserve(70, 100)); });
    EXPECT_EQ(ledger->used_bytes(), 70U);
    const auto next = is_taken ? open() : nullptr;
    ledger->sweep();
    EXPECT_EQ(ledger->used_bytes(), 0U);
    EXPECT_TRUE(ledger->is_doubtful()) << "what it was writing may lie there";
    ASSERT_TRUE(ledger->recount([] { return std::uint64_t{0}; })) << "which removes that";
    EXPECT_FALSE(ledger->is_doubtful());
  }
}

TEST_F(LedgerOf, CountsAnewAfterADeathInTheMiddleOfAChange) {
  const auto ledger = open();
  ledger->recount([] { return std::uint64_t{0}; });
  EXPECT_FALSE(ledger->is_doubtful());
  in_killed_process([](Ledger& dying) {
    EXPECT_TRUE(dying.try_reserve(70, 100));
    Ledger::Change change(dying);
    change.add(70);
    ::kill(::getpid(), SIGKILL);
  });
  ledger->sweep();
  EXPECT_TRUE(ledger->is_doubtful());
  EXPECT_EQ(ledger->used_bytes(), 70U) << "too much, never too little";
  ledger->recount([] { return std::uint64_t{10}; });
  EXPECT_FALSE(ledger->is_doubtful());
  EXPECT_EQ(ledger->used_bytes(), 10U);
}

TEST_F(LedgerOf, ANewOneAddsNothingBeforeItHasCounted) {
  const auto ledger = open_new();
  EXPECT_TRUE(ledger->is_doubtful());
  EXPECT_FALSE(ledger->try_reserve(10, 100));
  EXPECT_FALSE(ledger->recount([] { return std::nullopt; }));
  EXPECT_FALSE(ledger->try_reserve(10, 100));
  EXPECT_TRUE(ledger->recount([] { return std::uint64_t{95}; }));
  EXPECT_FALSE(ledger->try_reserve(10, 100));
  EXPECT_TRUE(ledger->try_reserve(5, 100));
}

TEST_F(LedgerOf, KeepsTheSumWhereNothingCouldBeCounted) {
  const auto ledger = open();
  ASSERT_TRUE(ledger->recount([] { return std::uint64_t{50}; }));
  EXPECT_FALSE(ledger->recount([] { return std::nullopt; }));
  EXPECT_EQ(ledger->used_bytes(), 50U);
}

// What is being added while somebody counts is never lost: the count waits, or comes again.
TEST_F(LedgerOf, AChangeOfAnotherProcessIsNotCountedOver) {
  const auto one = open();
  const auto other = open();
  ASSERT_TRUE(one->recount([] { return std::uint64_t{0}; }));
  ASSERT_TRUE(other->try_reserve(10, 100));
  {
    Ledger::Change change(*other);
    change.add(10);
    EXPECT_FALSE(other->recount([] { return std::uint64_t{0}; })) << "its own threads are adding";
  }
  EXPECT_EQ(one->used_bytes(), 10U);
  ASSERT_TRUE(one->recount([] { return std::uint64_t{7}; }));
  EXPECT_EQ(other->used_bytes(), 7U);
  { Ledger::Change(*other).subtract(7); }
  EXPECT_EQ(one->file_bytes(), 0U);
}

TEST_F(LedgerOf, WhatADeadOneAddedStays) {
  const auto ledger = open();
  ASSERT_TRUE(ledger->recount([] { return std::uint64_t{0}; }));
  in_killed_process([](Ledger& dying) {
    EXPECT_TRUE(dying.try_reserve(30, 100));
    Ledger::Change(dying).add(30);
  });
  ledger->sweep();
  EXPECT_EQ(ledger->used_bytes(), 30U);
  EXPECT_FALSE(ledger->is_doubtful());
  const auto next = open();  // In the slot of the dead one.
  { Ledger::Change(*next).subtract(30); }
  EXPECT_EQ(ledger->used_bytes(), 0U);
}

// Who counts makes the sum of what all slots say right: one that then said less would make it
// wrong.
TEST_F(LedgerOf, WhatCouldNotBeWrittenNeverMakesTheSumTooLow) {
  const auto one = open();
  const auto other = open();
  ASSERT_TRUE(one->recount([] { return std::uint64_t{0}; }));
  ASSERT_TRUE(one->try_reserve(100, 1000));
  { Ledger::Change(*one).add(100); }
  {
    const SmallFiles no_write(1);
    { Ledger::Change(*one).subtract(100); }
    EXPECT_FALSE(one->try_reserve(10, 1000));
  }
  ASSERT_TRUE(other->recount([] { return std::uint64_t{500}; }));
  EXPECT_FALSE(one->try_reserve(10, 505)) << "500 + 10";
  EXPECT_TRUE(one->is_doubtful()) << "the change that was lost";
  ASSERT_TRUE(other->recount([] { return std::uint64_t{500}; }));
  EXPECT_TRUE(one->try_reserve(5, 505));
  EXPECT_EQ(other->used_bytes(), 505U);
}

// Everybody who has it open takes the new one, and what they hold is counted anew.
TEST_F(LedgerOf, OneThatIsDamagedUnderItsProcessesIsReplaced) {
  const std::string path = directory_.path() + "/ledger";
  const auto flip = [&](std::streamoff at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at).write("xyz", 3);
  };
  const std::vector<std::function<void()>> damages = {
      [&] { cut_off(path, 0); },  // SIGBUS, were it mapped.
      [&] { cut_off(path, 100); },
      [&] {
        cut_off(path, 100);
        cut_off(path, 400'000);        // As who writes behind the cut makes it.
      },                               //
      [&] { flip(9); },                // The sum.
      [&] { flip(32 + 3 * 32 + 1); },  // A slot that nobody has.
      [&] { ASSERT_EQ(::unlink(path.c_str()), 0); },
  };
  const auto one = open();
  const auto other = open();
  ASSERT_TRUE(one->recount([] { return std::uint64_t{0}; }));
  std::uint64_t files = 0;
  for (const auto& damage : damages) {
    damage();
    EXPECT_TRUE(one->is_doubtful());
    EXPECT_FALSE(one->try_reserve(10, 1000)) << "nothing is added while nobody knows what there is";
    ASSERT_TRUE(one->recount([&] { return files; }));
    EXPECT_FALSE(one->is_doubtful());
    EXPECT_EQ(one->used_bytes(), files);
    EXPECT_FALSE(other->try_reserve(10, 1000));
    ASSERT_TRUE(other->recount([&] { return files; }));
    EXPECT_TRUE(other->try_reserve(10, 1000));
    { Ledger::Change(*other).add(10); }
    files += 10;
    ASSERT_TRUE(one->recount([&] { return files; }));
    EXPECT_EQ(one->used_bytes(), files);
    EXPECT_EQ(other->used_bytes(), files);
  }
}

// It was reserved in one that is gone, so who counted has not seen it.
TEST_F(LedgerOf, WhatWasReservedInOneThatIsGoneIsNotAdded) {
  const auto one = open();
  const auto other = open();
  ASSERT_TRUE(one->recount([] { return std::uint64_t{0}; }));
  ASSERT_TRUE(one->try_reserve(60, 100));
  ASSERT_EQ(::unlink((directory_.path() + "/ledger").c_str()), 0);
  ASSERT_TRUE(other->recount([] { return std::uint64_t{0}; }));
  ASSERT_TRUE(other->try_reserve(60, 100));
  EXPECT_FALSE(Ledger::Change(*one).add(60));
  ASSERT_TRUE(one->recount([] { return std::uint64_t{0}; }));
  EXPECT_EQ(one->used_bytes(), 60U);
}

// New processes make new locks; without those that they have, nothing is added.
TEST_F(LedgerOf, WithoutItsLocksItAddsNothing) {
  const auto old = open();
  ASSERT_TRUE(old->recount([] { return std::uint64_t{0}; }));
  ASSERT_EQ(::unlink((directory_.path() + "/locks").c_str()), 0);
  const auto fresh = open();
  EXPECT_FALSE(old->try_reserve(10, 100));
  EXPECT_FALSE(old->recount([] { return std::uint64_t{0}; }));
  EXPECT_TRUE(fresh->try_reserve(10, 100));
}

TEST_F(LedgerOf, ACutOffOneIsNoObstacleToTheNextProcess) {
  { const auto ledger = open(); }
  cut_off(directory_.path() + "/ledger", 1000);
  EXPECT_TRUE(open()->is_doubtful());
}

TEST_F(LedgerOf, LocksOfTheDeadAreFree) {
  const auto ledger = open();
  const ExtentName extent{{1, 2}, 0, 10};
  in_killed_process([&](Ledger& dying) {
    EXPECT_TRUE(dying.try_begin_flight(extent));
    EXPECT_TRUE(dying.try_begin_eviction());
  });
  EXPECT_TRUE(ledger->try_begin_flight(extent));
  EXPECT_TRUE(ledger->try_begin_eviction());
}

TEST_F(LedgerOf, OneFetchesAndOneEvicts) {
  const auto one = open();
  const auto other = open();
  const ExtentName extent{{1, 2}, 0, 10};
  EXPECT_TRUE(one->try_begin_flight(extent));
  EXPECT_FALSE(other->try_begin_flight(extent));
  EXPECT_TRUE(other->try_begin_flight({{1, 2}, 10, 10}));
  one->end_flight(extent);
  EXPECT_TRUE(other->try_begin_flight(extent));
  EXPECT_TRUE(one->try_begin_eviction());
  EXPECT_FALSE(other->try_begin_eviction());
  one->end_eviction();
  EXPECT_TRUE(other->try_begin_eviction());
}

TEST_F(LedgerOf, RemembersGhostsOnce) {
  const auto ledger = open();
  const ExtentName extent{{1, 2}, 0, 10};
  EXPECT_FALSE(ledger->was_ghost(extent));
  ledger->note_ghost(extent);
  EXPECT_TRUE(open()->was_ghost(extent)) << "by any process";
  EXPECT_FALSE(ledger->was_ghost(extent));
}

TEST_F(LedgerOf, ADirectoryOfAnotherVersionIsRefused) {
  std::ofstream(directory_.path() + "/ledger") << "something else";
  EXPECT_EQ(Ledger::open(root_.get()).error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace headrace::tier
