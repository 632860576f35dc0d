// What waits for another's fetch, with a tier that does nothing of itself: when it looks again.
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "store/memory/memory_store.h"
#include "tier/cache_store.h"
#include "tier/delayed_tasks.h"

namespace headrace::tier {
namespace {

/// Everything is being fetched by another node. Tasks wait for the test.
class BusyTier final : public Tier {
 public:
  struct Later {
    TimePoint due;
    const void* name = nullptr;
    ThreadPool::Task task;
  };
  void read(const ExtentInfo&, std::span<std::byte>, TimePoint, Done done) override {
    done(Found::kTaken, 0);
  }
  Flight begin_flight(const ExtentName& extent) override { return {*this, extent}; }
  bool looks_in_flight() const noexcept override { return true; }
  void keep(ExtentInfo, std::span<const std::byte>, Flight, const Slab&) override {}
  bool holds(const ExtentName&) override { return false; }
  void drop(const ExtentName&) override {}
  bool wants_plans() const noexcept override { return false; }
  std::shared_ptr<OwnPlan> publish_plan(std::vector<PlanEntry>) override { return nullptr; }
  bool run(ThreadPool::Task&& task) override {
    task();
    return true;
  }
  void run_later(TimePoint due, const void* name, ThreadPool::Task task) override {
    later = {due, name, std::move(task)};
  }
  void hurry(const void* name) override { hurried = name; }
  Pace& pace() noexcept override { return pace_; }
  Clock& clock() const noexcept override { return system_clock(); }
  std::uint64_t least_unnamed_bytes() const noexcept override { return 1; }
  void note_wait() noexcept override {}
  void note_miss(std::uint64_t) noexcept override {}
  void append_metrics(MetricList&) const override {}

  Later later;
  const void* hurried = nullptr;

 private:
  void end_flight(const ExtentName&) override {}
  Pace pace_;
};

class FlightWait : public ::testing::Test {
 protected:
  void SetUp() override {
    pool_ = *SlabPool::create({});
    StoreOptions options;
    options.url = "memory://m";
    store_ = wrap_tier(*open_memory_store(options), tier_, 16);
  }
  /// Submits a read, which waits from then on.
  void begin_read(TimePoint deadline) {
    Request request;
    request.key = "key";
    request.etag = "\"1\"";
    request.length_bytes = 10;
    request.slab = *pool_->try_acquire(10);
    request.deadline = deadline;
    request.tag = 7;
    ASSERT_EQ(store_->submit({&request, 1}), 1U);
    ASSERT_TRUE(tier_->later.task);
  }
  void look_again() { std::exchange(tier_->later.task, nullptr)(); }
  Code outcome() {
    Completion done;
    EXPECT_EQ(store_->wait({&done, 1}, TimePoint::max()), 1U);
    return done.status.code();
  }

  std::unique_ptr<SlabPool> pool_;
  std::shared_ptr<BusyTier> tier_ = std::make_shared<BusyTier>();
  std::unique_ptr<Store> store_;
};

TEST_F(FlightWait, EndsAtTheDeadline) {
  const TimePoint deadline = system_clock().now() + std::chrono::milliseconds(50);
  begin_read(deadline);
  while (tier_->later.task) {
    EXPECT_LE(tier_->later.due, deadline);
    std::this_thread::sleep_until(tier_->later.due);
    look_again();
  }
  EXPECT_EQ(outcome(), Code::kDeadline);
}

TEST_F(FlightWait, EndsWhenItIsCancelled) {
  begin_read(TimePoint::max());
  store_->cancel(8);
  EXPECT_EQ(tier_->hurried, nullptr);
  store_->cancel(7);
  EXPECT_EQ(tier_->hurried, tier_->later.name);
  look_again();
  EXPECT_EQ(outcome(), Code::kCancelled);
}

TEST_F(FlightWait, EndsWhenItsHandleStops) {
  begin_read(TimePoint::max());
  store_->stop();
  EXPECT_EQ(tier_->hurried, tier_->later.name);
  look_again();
  EXPECT_EQ(outcome(), Code::kCancelled);
}

TEST(DelayedTasks, RunsWhatIsHurried) {
  ThreadPool pool(1, 4);
  std::latch done(1);
  const int one = 1, other = 2;
  DelayedTasks tasks(pool);
  const TimePoint never = system_clock().now() + std::chrono::hours(24);
  tasks.add(never, &other, [] { ADD_FAILURE() << "nobody hurried it"; });
  tasks.add(never, &one, [&] { done.count_down(); });
  tasks.hurry(nullptr);
  tasks.hurry(&one);
  done.wait();
}

}  // namespace
}  // namespace headrace::tier
