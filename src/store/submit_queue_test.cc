#include "store/submit_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "headrace/forwarding_store.h"
#include "store/memory/memory_store.h"

namespace headrace {
namespace {

/// Takes at most `room` requests at a time; none when it is 0.
class Narrow final : public ForwardingStore {
 public:
  explicit Narrow(std::unique_ptr<Store> inner) : ForwardingStore(std::move(inner)) {}
  Result<std::unique_ptr<Store>> wrap(std::unique_ptr<Store> handle) override {
    return std::unique_ptr<Store>(std::make_unique<Narrow>(std::move(handle)));
  }
  std::size_t room = 1;
  std::size_t held = 0;
  std::size_t offers = 0;
  bool is_waited_for = true;  ///< False: as after stop(), wait() returns at once.
  std::function<void()> on_wait;

  std::size_t submit(std::span<Request> requests) override {
    ++offers;
    const std::size_t count =
        inner().submit(requests.first(std::min(room - held, requests.size())));
    held += count;
    return count;
  }
  std::size_t wait(std::span<Completion> out, TimePoint until, std::stop_token stop) override {
    if (on_wait) on_wait();
    if (!is_waited_for) return 0;
    const std::size_t count = inner().wait(out, until, std::move(stop));
    held -= count;
    return count;
  }
};

class SubmitQueueTest : public ::testing::Test {
 protected:
  SubmitQueueTest() {
    StoreOptions options;
    options.url = "memory://narrow";
    store_ = std::make_unique<Narrow>(*open_memory_store(options));
    pool_ = *SlabPool::create({.limit_bytes = 1 << 20});
    Request ten_bytes = read(0);
    ten_bytes.op = Op::kPut;
    EXPECT_TRUE(run_request(*store_, std::move(ten_bytes), {}).status.ok());
  }
  Request read(std::uint64_t tag) {
    Request request;
    request.key = "k";
    request.length_bytes = 10;
    request.slab = *pool_->try_acquire(10);
    request.tag = tag;
    return request;
  }

  std::shared_ptr<SlabPool> pool_;
  std::unique_ptr<Narrow> store_;
};

TEST_F(SubmitQueueTest, OffersAgainWhatWasRefusedInTheOrderItCame) {
  SubmitQueue queue(*store_);
  for (std::uint64_t i = 0; i < 5; ++i) queue.push(read(i));
  EXPECT_EQ(queue.pending(), 5U);
  EXPECT_EQ(queue.in_flight(), 0U) << "nothing is offered before flush() or wait()";
  Completion done[4];
  std::uint64_t next = 0;
  while (queue.pending() > 0) {
    const auto count = queue.wait(done, TimePoint::max());
    ASSERT_TRUE(count);
    for (std::size_t i = 0; i < *count; ++i) EXPECT_EQ(done[i].tag, next++);
  }
  EXPECT_EQ(next, 5U);
}

TEST_F(SubmitQueueTest, ReturnsAtItsTimeThoughNothingIsTaken) {
  store_->room = 0;
  SubmitQueue queue(*store_);
  queue.push(read(1));
  Completion done;
  const auto count = queue.wait({&done, 1}, system_clock().now());
  ASSERT_TRUE(count);
  EXPECT_EQ(*count, 0U);
  EXPECT_EQ(queue.unsent(), 1U);
}

TEST_F(SubmitQueueTest, AHandleThatNeitherTakesNorWaitsComesBackToTheCaller) {
  store_->room = 0;
  store_->is_waited_for = false;
  SubmitQueue queue(*store_);
  queue.push(read(1));
  Completion done;
  const auto count = queue.wait({&done, 1}, TimePoint::max());
  ASSERT_TRUE(count);
  EXPECT_EQ(*count, 0U);
}

TEST_F(SubmitQueueTest, AStoreThatTakesNothingForTooLongIsAnError) {
  store_->room = 0;
  SubmitQueue queue(*store_, std::chrono::milliseconds(0));
  queue.push(read(1));
  Completion done;
  const TimePoint begin = system_clock().now();
  auto count = queue.wait({&done, 1}, begin);
  ASSERT_TRUE(count) << "refused for the first time";
  count = queue.wait({&done, 1}, TimePoint::max());
  ASSERT_FALSE(count);
  EXPECT_EQ(count.error().code(), Code::kExhausted);
  EXPECT_NE(count.error().message().find(store_->url()), std::string_view::npos);
  store_->room = 1;
  EXPECT_EQ(*queue.wait({&done, 1}, TimePoint::max()), 1U) << "and goes on when it takes some";
}

TEST_F(SubmitQueueTest, StopEndsAWait) {
  SubmitQueue queue(*store_);
  std::stop_source stop;
  stop.request_stop();
  Completion done;
  EXPECT_EQ(queue.wait({&done, 1}, TimePoint::max(), stop.get_token()).error().code(),
            Code::kCancelled);
  store_->on_wait = [&] { stop.request_stop(); };
  stop = std::stop_source();
  store_->room = 0;
  queue.push(read(1));
  EXPECT_EQ(queue.wait({&done, 1}, TimePoint::max(), stop.get_token()).error().code(),
            Code::kCancelled);
}

TEST_F(SubmitQueueTest, TakesBackWhatTheStoreDoesNotHave) {
  SubmitQueue queue(*store_);
  for (std::uint64_t i = 0; i < 4; ++i) queue.push(read(i));
  queue.flush();
  EXPECT_EQ(queue.in_flight(), 1U);
  const auto odd = queue.take_back([](const Request& request) { return request.tag % 2 == 1; });
  ASSERT_EQ(odd.size(), 2U);
  EXPECT_EQ(odd[0].tag, 1U);
  EXPECT_EQ(odd[1].tag, 3U);
  EXPECT_EQ(queue.unsent(), 1U);
}

TEST_F(SubmitQueueTest, DrainGivesAllMemoryBack) {
  SubmitQueue queue(*store_);
  for (std::uint64_t i = 0; i < 4; ++i) queue.push(read(i));
  queue.flush();
  EXPECT_GT(pool_->used_bytes(), 0U);
  queue.drain();
  EXPECT_EQ(pool_->used_bytes(), 0U);
  EXPECT_EQ(queue.pending(), 0U);
}

TEST_F(SubmitQueueTest, RunsOneRequest) {
  const Completion good = run_request(*store_, read(7), {});
  EXPECT_TRUE(good.status.ok());
  EXPECT_EQ(good.length_bytes, 10U);
  Request none = read(8);
  none.key = "none";
  EXPECT_EQ(run_request(*store_, std::move(none), {}).status.code(), Code::kNotFound);
}

}  // namespace
}  // namespace headrace
