#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/manual_clock.h"
#include "base/mutex.h"
#include "headrace/access_log.h"
#include "headrace/router.h"
#include "store/fault/fault_store.h"
#include "store/fault/reused_tag.h"
#include "store/memory/memory_store.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;

/// Keeps what it is told.
class RecordingLog final : public AccessLog {
 public:
  struct Line {
    std::string operation, object, target, version;
    std::uint64_t offset = 0, length = 0, moved = 0;
    Code outcome = Code::kOk;
    Microseconds duration{};
  };
  void add(const AccessRecord& record) override {
    const auto name = [&](std::string_view key) {
      return std::string(record.root) + "/" + std::string(key);
    };
    MutexLock lock(mutex_);
    lines_.push_back({std::string(record.operation), name(record.key),
                      record.to_key.empty() ? std::string() : name(record.to_key),
                      std::string(record.version), record.offset_bytes, record.length_bytes,
                      record.moved_bytes, record.outcome,
                      std::chrono::duration_cast<Microseconds>(record.finished - record.started)});
  }
  void set_rank(std::uint32_t /*rank*/) override {}
  bool wait_for_room() override { return has_room; }
  void hurry() noexcept override { ++hurry_count; }
  Status flush() override { return status(); }
  Status status() const override { return failure.clone(); }

  std::vector<Line> lines() {
    MutexLock lock(mutex_);
    return lines_;
  }
  Line last() { return lines().back(); }

  bool has_room = true;
  int hurry_count = 0;
  Status failure;

 private:
  Mutex mutex_;
  std::vector<Line> lines_ HEADRACE_GUARDED_BY(mutex_);
};

class AccessLogStoreTest : public ::testing::Test {
 protected:
  AccessLogStoreTest() {
    pool_ = *SlabPool::create({});
    inner_ = open_inner();
    EXPECT_TRUE(write_object(*inner_, *pool_, "x", "0123456789"));
    store_ = log_accesses(*inner_->new_handle(), log_, &clock_);
  }
  std::unique_ptr<Store> open_inner() {
    StoreOptions options;
    options.url = "memory://m";
    options.clock = &clock_;
    return *open_memory_store(options);
  }
  Request get_request(std::string_view key, std::uint64_t offset, std::uint64_t length,
                      std::uint64_t tag = 0) {
    Request request;
    request.key = key;
    request.offset_bytes = offset;
    request.length_bytes = length;
    request.slab = *pool_->try_acquire(length);
    request.tag = tag;
    return request;
  }
  Completion run(Request request) {
    EXPECT_EQ(store_->submit({&request, 1}), 1U);
    Completion done;
    EXPECT_EQ(store_->wait({&done, 1}, TimePoint::max()), 1U);
    return done;
  }

  ManualClock clock_;
  std::unique_ptr<SlabPool> pool_;
  std::shared_ptr<RecordingLog> log_ = std::make_shared<RecordingLog>();
  std::unique_ptr<Store> inner_;
  std::unique_ptr<Store> store_;
};

TEST_F(AccessLogStoreTest, RecordsReads) {
  const Completion done = run(get_request("x", 2, 5, 42));
  EXPECT_TRUE(done.status.ok());
  EXPECT_EQ(done.tag, 42U);
  const auto line = log_->last();
  EXPECT_EQ(line.operation, "get");
  EXPECT_EQ(line.object, "memory://m/x");
  EXPECT_EQ(line.version, done.etag);
  EXPECT_FALSE(line.version.empty());
  EXPECT_EQ(line.offset, 2U);
  EXPECT_EQ(line.length, 5U);
  EXPECT_EQ(line.moved, 5U);
  EXPECT_EQ(line.outcome, Code::kOk);
}

TEST_F(AccessLogStoreTest, KnowsTheVersionThatWasAskedFor) {
  const std::string version = (*inner_->head("x")).etag;
  Request request = get_request("x", 0, 10);
  request.etag = version;
  EXPECT_TRUE(run(std::move(request)).status.ok());
  EXPECT_EQ(log_->last().version, version);
  request = get_request("x", 0, 10);
  request.etag = "\"another\"";
  EXPECT_EQ(run(std::move(request)).status.code(), Code::kChanged);
  EXPECT_EQ(log_->last().version, "") << "that one was not read";
  EXPECT_EQ(log_->last().outcome, Code::kChanged);
}

TEST_F(AccessLogStoreTest, RecordsWhatCameNotWhatWasAsked) {
  Request request = get_request("x", 8, 100);
  request.allow_short = true;
  EXPECT_TRUE(run(std::move(request)).status.ok());
  EXPECT_EQ(log_->last().length, 100U);
  EXPECT_EQ(log_->last().moved, 2U);
}

TEST_F(AccessLogStoreTest, RecordsFailuresThatReachedTheStore) {
  EXPECT_EQ(run(get_request("missing", 0, 1)).status.code(), Code::kNotFound);
  EXPECT_EQ(log_->last().object, "memory://m/missing");
  EXPECT_EQ(log_->last().outcome, Code::kNotFound);
  EXPECT_EQ(log_->last().moved, 0U);
}

TEST_F(AccessLogStoreTest, RecordsWrites) {
  ASSERT_TRUE(write_object(*store_, *pool_, "y", "abc"));
  EXPECT_EQ(log_->last().operation, "put");
  EXPECT_EQ(log_->last().moved, 3U);
  const auto upload = store_->create_upload("z");
  ASSERT_TRUE(upload);
  Request request = get_request("z", 0, 4);
  request.op = Op::kPutPart;
  request.upload_id = *upload;
  request.part_number = 1;
  const std::vector<UploadedPart> parts{{1, run(std::move(request)).etag}};
  ASSERT_TRUE(store_->complete_upload("z", *upload, parts));
  const auto other = store_->create_upload("z");
  EXPECT_TRUE(store_->abort_upload("z", *other).ok());
  std::vector<std::string> operations;
  for (const auto& line : log_->lines()) operations.push_back(line.operation);
  EXPECT_THAT(operations, ElementsAre("put", "create_upload", "put_part", "complete_upload",
                                      "create_upload", "abort_upload"));
}

TEST_F(AccessLogStoreTest, RecordsCalls) {
  const auto info = store_->head("x");
  ASSERT_TRUE(info);
  EXPECT_EQ(log_->last().version, (*info).etag);
  EXPECT_FALSE(store_->head("missing"));
  EXPECT_EQ(log_->last().outcome, Code::kNotFound);
  ListRequest listing;
  listing.prefix = "x";
  ASSERT_TRUE(store_->list(listing));
  EXPECT_EQ(log_->last().object, "memory://m/x");
  ASSERT_TRUE(store_->copy("x", "y"));
  EXPECT_EQ(log_->last().object, "memory://m/x");
  EXPECT_EQ(log_->last().target, "memory://m/y");
  ASSERT_TRUE(store_->remove("y").ok());
  const std::vector<std::string> keys{"a", "b"};
  for (const Status& status : store_->remove_many(keys)) EXPECT_TRUE(status.ok());
  EXPECT_EQ(log_->last().object, "memory://m/b");
  std::vector<std::string> operations;
  for (const auto& line : log_->lines()) operations.push_back(line.operation);
  EXPECT_THAT(operations,
              ElementsAre("head", "head", "list", "copy", "delete", "delete", "delete"));
}

TEST_F(AccessLogStoreTest, RecordsEveryHandle) {
  auto handle = *store_->new_handle();
  std::swap(store_, handle);
  EXPECT_TRUE(run(get_request("x", 0, 1)).status.ok());
  EXPECT_EQ(log_->lines().size(), 1U);
}

TEST_F(AccessLogStoreTest, TellsTransfersApartWhateverTheirTags) {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 500; ++i) requests.push_back(get_request("x", i % 10, 1, i / 2));
  std::span<Request> rest(requests);
  std::map<std::uint64_t, int> tags;
  while (!rest.empty() || tags.size() < 250 || tags[249] < 2) {
    rest = rest.subspan(store_->submit(rest));
    Completion done;
    if (store_->wait({&done, 1}, TimePoint::max()) == 1) ++tags[done.tag];
  }
  std::map<std::uint64_t, int> offsets;
  for (const auto& line : log_->lines()) ++offsets[line.offset];
  for (std::uint64_t offset = 0; offset < 10; ++offset) EXPECT_EQ(offsets[offset], 50);
}

TEST_F(AccessLogStoreTest, LeavesRefusedRequestsAsTheyWere) {
  store_->stop();
  std::vector<Request> requests;
  requests.push_back(get_request("x", 0, 1, 77));
  EXPECT_EQ(store_->submit(requests), 0U);
  EXPECT_EQ(requests[0].tag, 77U);
  EXPECT_TRUE(requests[0].slab);
  EXPECT_GT(log_->hurry_count, 0);
}

TEST_F(AccessLogStoreTest, LeavesOutWhatNeverReachedTheStore) {
  std::vector<std::unique_ptr<Store>> stores;
  stores.push_back(std::move(inner_));
  store_ = log_accesses(*route_stores(std::move(stores)), log_, &clock_);
  EXPECT_EQ(run(get_request("no route", 0, 1)).status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(log_->lines().empty());
  EXPECT_TRUE(run(get_request("0/x", 0, 1)).status.ok());
  EXPECT_EQ(log_->lines().size(), 1U);
}

TEST_F(AccessLogStoreTest, RecordsWhatNobodyTook) {
  Request request = get_request("x", 0, 10);
  ASSERT_EQ(store_->submit({&request, 1}), 1U);
  store_.reset();
  EXPECT_EQ(log_->lines().size(), 1U);
}

TEST_F(AccessLogStoreTest, DeliversNothingUnrecordedAfterAFailure) {
  Request request = get_request("x", 0, 10);
  ASSERT_EQ(store_->submit({&request, 1}), 1U);
  log_->failure = Status(Code::kExhausted, "access log: no space");
  Completion done;
  ASSERT_EQ(store_->wait({&done, 1}, TimePoint::max()), 1U);
  EXPECT_EQ(done.status.code(), Code::kExhausted);
  EXPECT_EQ(done.length_bytes, 0U);
  EXPECT_TRUE(done.etag.empty());
  EXPECT_TRUE(done.slab) << "the slab is the caller's";
  EXPECT_EQ(store_->head("x").error().code(), Code::kExhausted);
  EXPECT_EQ(store_->remove("x").code(), Code::kExhausted);
  const std::vector<std::string> keys{"x"};
  EXPECT_EQ(store_->remove_many(keys)[0].code(), Code::kExhausted);
  EXPECT_TRUE(inner_->head("x")) << "no call was made";
}

TEST_F(AccessLogStoreTest, HandsNothingOutWhileTheFileIsTooSlow) {
  Request request = get_request("x", 0, 10);
  ASSERT_EQ(store_->submit({&request, 1}), 1U);
  log_->has_room = false;
  Completion done;
  EXPECT_EQ(store_->wait({&done, 1}, TimePoint::max()), 0U);
  log_->has_room = true;
  EXPECT_EQ(store_->wait({&done, 1}, TimePoint::max()), 1U);
}

TEST_F(AccessLogStoreTest, RecordsEachTransferOnceWhateverTheStoreBelowDoes) {
  store_ = log_accesses(
      FaultStore::create(
          *inner_->new_handle(),
          {.seed = 3, .error_share = 0.3, .short_accept_share = 0.5, .hold_back_count = 4}),
      log_, &clock_);
  std::vector<Request> requests;
  for (std::uint64_t tag = 0; tag < 200; ++tag) requests.push_back(get_request("x", 0, 10, tag));
  std::span<Request> rest(requests);
  std::map<Code, std::size_t> outcomes;
  std::size_t taken = 0;
  while (taken < 200) {
    rest = rest.subspan(store_->submit(rest));
    std::vector<Completion> done(8);
    const std::size_t count = store_->wait(done, rest.empty() ? TimePoint::max() : TimePoint());
    for (std::size_t i = 0; i < count; ++i) ++outcomes[done[i].status.code()];
    taken += count;
  }
  std::map<Code, std::size_t> recorded;
  for (const auto& line : log_->lines()) ++recorded[line.outcome];
  EXPECT_EQ(recorded, outcomes);
  EXPECT_GT(outcomes[Code::kUnavailable], 20U);
}

TEST_F(AccessLogStoreTest, MustBeAskedForEveryAccess) {
  EXPECT_EQ(store_->local_directory(), "");
  EXPECT_EQ(store_->url(), "memory://m");
  EXPECT_EQ(store_->traits().can_write, inner_->traits().can_write);
}

TEST_F(AccessLogStoreTest, CancelReachesNoRequestThatCameInBetween) {
  ASSERT_TRUE(write_object(*inner_, *pool_, "y", "0123456789"));
  const auto seen = std::make_shared<ReusedTag>();
  store_ = log_accesses(std::make_unique<ReusedTagStore>(*inner_->new_handle(), seen), log_);
  Completion done;
  seen->meanwhile = [&] {
    while (store_->wait({&done, 1}, TimePoint::max()) == 0) {
    }
    Request next = get_request("y", 0, 10, 2);
    EXPECT_EQ(store_->submit({&next, 1}), 1U);
  };
  Request first = get_request("x", 0, 10, 1);
  ASSERT_EQ(store_->submit({&first, 1}), 1U);
  store_->cancel(1);
  seen->thread.join();
  EXPECT_EQ(done.tag, 1U);
  EXPECT_EQ(seen->cancelled_key, "x");
}

}  // namespace
}  // namespace headrace
