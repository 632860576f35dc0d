#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <latch>

#include "base/limit_addresses.h"
#include "base/sanitizer.h"

namespace headrace {
namespace {

TEST(ThreadPool, FinishesAcceptedTasksBeforeItIsDestroyed) {
  std::atomic<int> ran{0};
  {
    ThreadPool pool(3, 1000);
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(pool.submit([&ran] { ran.fetch_add(1); }));
  }
  EXPECT_EQ(ran.load(), 1000);
}

TEST(ThreadPool, RefusesWhenTheQueueIsFullAndLeavesTheTaskAlone) {
  std::latch started(1);
  std::latch go(1);
  std::atomic<int> ran{0};
  {
    ThreadPool pool(1, 2);
    ASSERT_TRUE(pool.submit([&] {
      started.count_down();
      go.wait();
    }));
    started.wait();  // the queue is empty again
    ASSERT_TRUE(pool.submit([&ran] { ran.fetch_add(1); }));
    ASSERT_TRUE(pool.submit([&ran] { ran.fetch_add(1); }));
    ThreadPool::Task extra = [&ran] { ran.fetch_add(100); };
    EXPECT_FALSE(pool.submit(extra));
    EXPECT_TRUE(extra);
    go.count_down();
  }
  EXPECT_EQ(ran.load(), 2);
}

TEST(ThreadPool, ATaskMaySubmitAnother) {
  std::latch done(1);
  ThreadPool pool(1, 4);
  ASSERT_TRUE(pool.submit([&] { EXPECT_TRUE(pool.submit([&done] { done.count_down(); })); }));
  done.wait();
}

TEST(ThreadPool, TakesTasksFromManyThreads) {
  std::atomic<int> ran{0};
  std::atomic<int> accepted{0};
  {
    ThreadPool pool(2, 16);
    std::vector<std::jthread> submitters;
    for (int t = 0; t < 3; ++t) {
      submitters.emplace_back([&] {
        for (int i = 0; i < 500; ++i) accepted += pool.submit([&ran] { ran.fetch_add(1); }) ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(ran.load(), accepted.load());
  EXPECT_GT(ran.load(), 0);
}

#if !defined(HEADRACE_HAS_SANITIZER)  // They want addresses of their own.
TEST(ThreadPoolDeathTest, WorksWithAsManyThreadsAsTheSystemAllows) {
  const auto run = [] {
    limit_addresses(std::uint64_t{400} << 20);
    std::atomic<int> ran{0};
    std::size_t threads = 0;
    {
      ThreadPool pool(200, 100);
      threads = pool.thread_count();
      for (int i = 0; i < 100; ++i) pool.submit([&ran] { ran.fetch_add(1); });
    }
    ::_exit(threads > 0 && threads < 200 && ran.load() == 100 ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace headrace
