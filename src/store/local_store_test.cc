#include "store/local_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <string>
#include <vector>

#include "base/manual_clock.h"
#include "base/mutex.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

/// A backend whose gets wait until they are let through, so that tests see requests queued and
/// running.
class GatedBackend final : public LocalBackend {
 public:
  Status get(const Request&, std::span<std::byte>, const Interrupt& interrupt,
             Transferred& out) override {
    MutexLock lock(mutex_);
    ++running_;
    changed_.notify_all();
    while (passes_ == 0) lock.wait(changed_);
    --passes_;
    HEADRACE_TRY(interrupt.check());
    out.length_bytes = 1;
    return {};
  }
  void wait_until_running(int count) {
    MutexLock lock(mutex_);
    while (running_ < count) lock.wait(changed_);
  }
  void let_pass(int count) {
    MutexLock lock(mutex_);
    passes_ += count;
    changed_.notify_all();
  }

  Status put(const Request&, std::span<const std::byte>, const Interrupt&, Transferred&) override {
    return none();
  }
  Status put_part(const Request&, std::span<const std::byte>, const Interrupt&,
                  Transferred&) override {
    return none();
  }
  Result<ObjectInfo> head(const std::string&) override { return none(); }
  Result<ListPage> list(const ListRequest&, const Interrupt&) override { return none(); }
  Status remove(const std::string&) override { return none(); }
  Result<ObjectInfo> copy(const std::string&, const std::string&, const ObjectSettings&,
                          const Interrupt&) override {
    return none();
  }
  Result<std::string> create_upload(const std::string&, const ObjectSettings&) override {
    return none();
  }
  Result<ObjectInfo> complete_upload(const std::string&, const std::string&,
                                     std::span<const UploadedPart>, const Interrupt&) override {
    return none();
  }
  Status abort_upload(const std::string&, const std::string&) override { return none(); }

 private:
  static Status none() { return Status(Code::kUnavailable, "not in this test"); }
  Mutex mutex_;
  std::condition_variable changed_;
  int running_ HEADRACE_GUARDED_BY(mutex_) = 0;
  int passes_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

class LocalStoreTest : public ::testing::Test {
 protected:
  LocalStoreTest() {
    auto backend = std::make_unique<GatedBackend>();
    gate_ = backend.get();
    auto store = make_local_store(
        std::move(backend),
        {.url = "test://t", .worker_limit = 1, .accept_limit = 8, .clock = &clock_});
    EXPECT_TRUE(store);
    store_ = *std::move(store);
    auto pool = SlabPool::create({});
    EXPECT_TRUE(pool);
    pool_ = *std::move(pool);
  }
  void submit(std::uint64_t tag, TimePoint deadline = TimePoint::max()) {
    submit_to(*store_, tag, deadline);
  }
  void submit_to(Store& store, std::uint64_t tag, TimePoint deadline = TimePoint::max()) {
    Request request;
    request.key = "k";
    request.length_bytes = 1;
    request.slab = *pool_->try_acquire(1);
    request.tag = tag;
    request.deadline = deadline;
    ASSERT_EQ(store.submit({&request, 1}), 1U);
  }
  static Completion take(Store& store) {
    Completion out;
    EXPECT_EQ(store.wait({&out, 1}, TimePoint::max()), 1U);
    return out;
  }

  ManualClock clock_;
  std::unique_ptr<SlabPool> pool_;
  std::unique_ptr<Store> store_;
  GatedBackend* gate_ = nullptr;
};

TEST_F(LocalStoreTest, AQueuedRequestIsCancelledAtOnce) {
  submit(1);
  gate_->wait_until_running(1);
  submit(2);
  store_->cancel(2);
  const Completion cancelled = take(*store_);
  EXPECT_EQ(cancelled.tag, 2U);
  EXPECT_EQ(cancelled.status.code(), Code::kCancelled);
  EXPECT_EQ(cancelled.attempts, 0U);
  gate_->let_pass(1);
  EXPECT_TRUE(take(*store_).status.ok());
}

TEST_F(LocalStoreTest, ARunningRequestIsCancelledWhenItNextLooks) {
  submit(1);
  gate_->wait_until_running(1);
  store_->cancel(1);
  gate_->let_pass(1);
  EXPECT_EQ(take(*store_).status.code(), Code::kCancelled);
}

TEST_F(LocalStoreTest, AQueuedRequestExpiresThoughAllWorkersAreStuck) {
  submit(1);
  gate_->wait_until_running(1);
  submit(2, clock_.now() + std::chrono::seconds(5));
  submit(3, clock_.now() + std::chrono::seconds(9));
  clock_.advance(std::chrono::seconds(6));
  const Completion late = take(*store_);
  EXPECT_EQ(late.tag, 2U);
  EXPECT_EQ(late.status.code(), Code::kDeadline);
  EXPECT_THAT(std::string(late.status.message()),
              HasSubstr("GET test://t/k [0, 1): deadline passed"));
  EXPECT_THAT(std::string(late.status.message()), HasSubstr("6000 ms"));
  gate_->let_pass(2);
  EXPECT_TRUE(take(*store_).status.ok());
  EXPECT_TRUE(take(*store_).status.ok());
}

TEST_F(LocalStoreTest, ARequestWithoutDeadlineHasTheDefaultOne) {
  submit(1);
  gate_->wait_until_running(1);
  submit(2);
  clock_.advance(std::chrono::seconds(61));
  EXPECT_EQ(take(*store_).status.code(), Code::kDeadline);
  gate_->let_pass(1);
  EXPECT_EQ(take(*store_).status.code(), Code::kDeadline);
}

TEST_F(LocalStoreTest, HandlesAreServedInTurn) {
  auto other = store_->new_handle();
  ASSERT_TRUE(other);
  for (std::uint64_t tag = 0; tag < 6; ++tag) submit(tag);
  gate_->wait_until_running(1);
  submit_to(**other, 100);
  // The first was running; the other handle's is served after at most one more of this one's.
  gate_->let_pass(3);
  EXPECT_TRUE(take(**other).status.ok());
  gate_->let_pass(4);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(take(*store_).status.ok());
}

TEST_F(LocalStoreTest, AHandleIsDestroyedAfterItsRunningRequests) {
  auto other = store_->new_handle();
  ASSERT_TRUE(other);
  submit_to(**other, 1);
  submit_to(**other, 2);
  gate_->wait_until_running(1);
  gate_->let_pass(2);  // the second may have begun, too
  other->reset();
  EXPECT_EQ(pool_->used_bytes(), 0U);
}

TEST_F(LocalStoreTest, CallErrorsNameTheObject) {
  const Status status = store_->remove("a/b");
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "DELETE test://t/a/b: not in this test");
}

TEST_F(LocalStoreTest, RefusesToAcceptNothing) {
  EXPECT_EQ(make_local_store(std::make_unique<GatedBackend>(), {.url = "x", .accept_limit = 0})
                .error()
                .code(),
            Code::kInvalidArgument);
}

TEST(PartList, MustRise) {
  const UploadedPart rising[] = {{1, "a"}, {3, "b"}, {10'000, "c"}};
  EXPECT_TRUE(check_part_list(rising).ok());
  const UploadedPart repeated[] = {{1, "a"}, {1, "b"}};
  EXPECT_EQ(check_part_list(repeated).code(), Code::kInvalidArgument);
  const UploadedPart zero[] = {{0, "a"}};
  EXPECT_EQ(check_part_list(zero).code(), Code::kInvalidArgument);
  const UploadedPart high[] = {{10'001, "a"}};
  EXPECT_EQ(check_part_list(high).code(), Code::kInvalidArgument);
  EXPECT_EQ(check_part_list({}).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
