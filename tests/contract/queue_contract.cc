// Accepting, waiting, cancelling, stopping: what must hold for any store whatever happens to single
// requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "contract/store_contract.h"

namespace headrace::contract {
namespace {

TEST_P(StoreContract, WaitReturnsWhenItsTimeHasPassed) {
  Completion out;
  EXPECT_EQ(store().wait({&out, 1}, TimePoint::min()), 0U);
  EXPECT_EQ(store().wait({&out, 1}, system_clock().now()), 0U);
}

TEST_P(StoreContract, WakeEndsTheNextWait) {
  Completion out;
  store().wake();
  EXPECT_EQ(store().wait({&out, 1}, TimePoint::max()), 0U);
}

TEST_P(StoreContract, WakeEndsTheWaitInProgress) {
  Completion out;
  std::jthread waker([this] { store().wake(); });
  EXPECT_EQ(store().wait({&out, 1}, TimePoint::max()), 0U);
}

TEST_P(StoreContract, AStopTokenEndsWait) {
  Completion out;
  std::stop_source source;
  std::jthread stopper([&source] { source.request_stop(); });
  EXPECT_EQ(store().wait({&out, 1}, TimePoint::max(), source.get_token()), 0U);
  EXPECT_EQ(store().wait({&out, 1}, TimePoint::max(), source.get_token()), 0U);
}

TEST_P(StoreContract, APassedDeadlineIsADeadline) {
  put("x", "0123456789");
  Request request = get_request("x", 0, 10);
  request.deadline = system_clock().now() - std::chrono::seconds(1);
  const Completion done = run_one(std::move(request));
  EXPECT_EQ(done.status.code(), Code::kDeadline) << done.status.message();
  EXPECT_EQ(done.slab.bytes().size(), 10U);
}

TEST_P(StoreContract, CancelledRequestsStillCompleteOnce) {
  put("x", pattern(10'000));
  std::vector<Request> requests;
  for (std::uint64_t tag = 0; tag < 200; ++tag) {
    requests.push_back(get_request("x", tag, 5'000));
    requests.back().tag = tag;
  }
  const std::size_t accepted = store().submit(requests);
  for (std::uint64_t tag = 0; tag < 200; tag += 2) store().cancel(tag);
  store().cancel(0);       // again
  store().cancel(99'999);  // nobody's
  std::map<std::uint64_t, int> seen;
  for (const Completion& done : take(store(), accepted)) {
    ++seen[done.tag];
    EXPECT_TRUE(done.status.ok() || (done.tag % 2 == 0 && done.status.code() == Code::kCancelled))
        << done.tag << ": " << done.status.message();
  }
  EXPECT_EQ(seen.size(), accepted);
}

TEST_P(StoreContract, StopCompletesWhatWasAcceptedAndRefusesTheRest) {
  put("x", pattern(10'000));
  auto handle = store().new_handle();
  ASSERT_TRUE(handle) << handle.error().message();
  std::vector<Request> requests;
  for (std::uint64_t tag = 0; tag < 100; ++tag) {
    requests.push_back(get_request("x", 0, 10'000));
    requests.back().tag = tag;
  }
  const std::size_t accepted = (*handle)->submit(requests);
  (*handle)->stop();
  (*handle)->stop();
  std::vector<Request> late;
  late.push_back(get_request("x", 0, 10));
  EXPECT_EQ((*handle)->submit(late), 0U);
  EXPECT_TRUE(late.front().slab) << "what is not accepted stays the caller's";
  for (const Completion& done : take(**handle, accepted)) {
    EXPECT_TRUE(done.status.ok() || done.status.code() == Code::kCancelled)
        << done.status.message();
  }
  EXPECT_EQ(get("x", 0, 10'000), pattern(10'000)) << "other handles go on";
}

TEST_P(StoreContract, DestroyingAHandleWithWorkInFlightGivesTheSlabsBack) {
  put("x", pattern(100'000));
  for (int round = 0; round < 5; ++round) {
    auto handle = store().new_handle();
    ASSERT_TRUE(handle) << handle.error().message();
    std::vector<Request> requests;
    for (std::uint64_t tag = 0; tag < 50; ++tag) requests.push_back(get_request("x", 0, 100'000));
    static_cast<void>((*handle)->submit(requests));
  }
  EXPECT_EQ(pool().used_bytes(), 0U);
}

TEST_P(StoreContract, CompletionsComeToTheHandleThatAsked) {
  put("x", "0123456789");
  auto handle = store().new_handle();
  ASSERT_TRUE(handle) << handle.error().message();
  std::vector<Request> requests;
  requests.push_back(get_request("x", 0, 10));
  requests.back().tag = 5;
  const std::vector<Completion> done = run(**handle, std::move(requests));
  ASSERT_EQ(done.size(), 1U);
  Completion out;
  EXPECT_EQ(store().wait({&out, 1}, TimePoint::min()), 0U);
}

TEST_P(StoreContract, AcceptingIsBoundedAndGoesOnWhenCompletionsAreTaken) {
  put("x", "0123456789");
  StoreOptions options;
  options.queue_capacity = 4;
  options.max_in_flight = 2;
  const std::unique_ptr<Store> small = open(options);
  ASSERT_NE(small, nullptr);
  {  // a store of its own content (memory) has to be filled, too
    std::vector<Request> fill;
    fill.push_back(put_request("x", "0123456789"));
    ASSERT_EQ(run(*small, std::move(fill)).size(), 1U);
  }
  std::vector<Request> requests;
  for (std::uint64_t tag = 0; tag < 50; ++tag) {
    requests.push_back(get_request("x", 0, 10));
    requests.back().tag = tag;
  }
  std::span<Request> rest(requests);
  std::size_t accepted = 0;
  for (int i = 0; i < 20; ++i) {
    const std::size_t count = small->submit(rest);
    accepted += count;
    rest = rest.subspan(count);
  }
  EXPECT_GT(accepted, 0U);
  EXPECT_LE(accepted, 6U) << "nothing was taken: queue_capacity + max_in_flight is the bound";
  EXPECT_EQ(take(*small, accepted).size(), accepted);
  std::vector<Request> left(std::make_move_iterator(rest.begin()),
                            std::make_move_iterator(rest.end()));
  EXPECT_EQ(run(*small, std::move(left)).size(), 50 - accepted);
}

/// One handle that a thread waits on while another submits and cancels at random.
class RandomLoad {
 public:
  RandomLoad(Store& store, SlabPool& pool, std::string_view content, std::uint64_t seed)
      : store_(store), pool_(pool), content_(content), random_(seed) {}

  void run(std::uint64_t request_count) {
    std::jthread submitter([this, request_count] { submit_all(request_count); });
    std::vector<Completion> batch(16);
    const TimePoint until = far_future();
    while (taken_ < request_count && system_clock().now() < until) {
      const std::size_t count = store_.wait(batch, until);
      for (Completion& done : std::span(batch).first(count)) check(done);
      taken_ += count;
    }
    EXPECT_EQ(taken_, request_count);
    EXPECT_EQ(seen_.size(), request_count);
  }

 private:
  void submit_all(std::uint64_t request_count) {
    for (std::uint64_t tag = 0; tag < request_count;) {
      std::vector<Request> batch;
      const std::uint64_t batch_count =
          std::min<std::uint64_t>(1 + random_.below(8), request_count - tag);
      for (std::uint64_t i = 0; i < batch_count; ++i) batch.push_back(make(tag + i));
      for (std::span<Request> rest(batch); !rest.empty();) {
        rest = rest.subspan(store_.submit(rest));
        if (!rest.empty()) std::this_thread::yield();
      }
      tag += batch_count;
      if (random_.below(4) == 0) store_.cancel(random_.below(tag));
    }
  }
  static std::uint64_t offset_of(std::uint64_t tag) { return tag * 37 % 9'000; }
  Request make(std::uint64_t tag) {
    Request request;
    request.tag = tag;
    request.key = tag % 10 == 0 ? "missing" : "x";
    request.offset_bytes = offset_of(tag);
    request.length_bytes = 1 + tag % 1000;
    auto slab = pool_.acquire(request.length_bytes, far_future());
    EXPECT_TRUE(slab);
    request.slab = *std::move(slab);
    if (tag % 17 == 0) request.length_bytes = 0;  // malformed
    return request;
  }
  void check(Completion& done) {
    EXPECT_TRUE(seen_.insert({done.tag, true}).second) << "tag " << done.tag << " came twice";
    EXPECT_TRUE(done.slab);
    const Code code = done.status.code();
    if (code == Code::kCancelled) {
    } else if (done.tag % 17 == 0) {
      EXPECT_EQ(code, Code::kInvalidArgument) << done.status.message();
    } else if (done.tag % 10 == 0) {
      EXPECT_EQ(code, Code::kNotFound) << done.status.message();
    } else {
      EXPECT_EQ(code, Code::kOk) << done.status.message();
      if (code == Code::kOk) {
        EXPECT_EQ(text_of(done), content_.substr(offset_of(done.tag), 1 + done.tag % 1000));
      }
    }
    done = Completion();
  }

  Store& store_;
  SlabPool& pool_;
  const std::string_view content_;
  Random random_;
  std::uint64_t taken_ = 0;
  std::map<std::uint64_t, bool> seen_;
};

TEST_P(StoreContract, ThousandsOfRequestsFromManyThreadsCompleteExactlyOnce) {
  const std::string content = pattern(10'000);
  put("x", content);
  std::vector<std::unique_ptr<Store>> handles;
  for (int i = 0; i < 3; ++i) {
    auto handle = store().new_handle();
    ASSERT_TRUE(handle) << handle.error().message();
    handles.push_back(*std::move(handle));
  }
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    threads.emplace_back([this, i, &handles, &content] {
      RandomLoad(*handles[i], pool(), content, i).run(world().load_request_count());
    });
  }
  threads.clear();
  EXPECT_EQ(pool().used_bytes(), 0U);
}

}  // namespace
}  // namespace headrace::contract
