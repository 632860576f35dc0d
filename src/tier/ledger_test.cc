#include "tier/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "base/temporary_directory.h"

namespace headrace::tier {
namespace {

class LedgerOf : public ::testing::Test {
 protected:
  std::unique_ptr<Ledger> open() {
    auto ledger = Ledger::open(root_.get());
    EXPECT_TRUE(ledger) << ledger.error().message();
    return ledger ? *std::move(ledger) : nullptr;
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

TEST_F(LedgerOf, ForgetsWhatTheDeadHadReserved) {
  const auto ledger = open();
  in_killed_process([](Ledger& dying) { EXPECT_TRUE(dying.try_reserve(70, 100)); });
  EXPECT_EQ(ledger->used_bytes(), 70U);
  ledger->sweep();
  EXPECT_EQ(ledger->used_bytes(), 0U);
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
