// Late answers and their second attempts, the limit of requests in flight, dead addresses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "base/temporary_directory.h"
#include "store/transfer/scripted_server.h"
#include "store/transfer/transfer_fixture.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Offsets from here on are treated specially by the scripts; those before warm the engine up.
constexpr std::uint64_t kSpecial = 1 << 19;

class TailTest : public TransferTest {
 protected:
  /// So many gets that times are known and a few hedges are affordable.
  void warm_up(int count = 200) {
    for (int i = 0; i < count; ++i) {
      const Completion completion = transfer(get(0, 100));
      ASSERT_TRUE(completion.status.ok()) << completion.status.message();
    }
  }
  static bool is_special(const SeenRequest& request) { return request.first >= kSpecial; }
  std::atomic<int> special_count_{0};
};

TEST_P(TailTest, LateGetIsHedgedOnAnotherConnection) {
  start([this](const SeenRequest& request, Peer& peer) {
    if (is_special(request) && special_count_++ == 0) return peer.wait_for_client_to_leave();
    server_->answer(request, peer);
  });
  warm_up();
  const Completion completion = transfer(get(kSpecial, 1000));
  expect_content(completion, kSpecial, 1000);
  EXPECT_EQ(completion.attempts, 2U);
  EXPECT_EQ(metric("store.hedges"), 1);
  EXPECT_EQ(metric("store.hedges_won"), 1);
  EXPECT_EQ(metric("store.retries"), 0);
  stop_all();
}

TEST_P(TailTest, FirstAttemptMayStillWin) {
  std::binary_semaphore is_hedged(0);
  start([&](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    if (special_count_++ == 0) {
      is_hedged.acquire();
      return server_->answer(request, peer);
    }
    is_hedged.release();
    peer.wait_for_client_to_leave();
  });
  warm_up();
  expect_content(transfer(get(kSpecial, 1000)), kSpecial, 1000);
  EXPECT_EQ(metric("store.hedges"), 1);
  EXPECT_EQ(metric("store.hedges_won"), 0);
  stop_all();
}

TEST_P(TailTest, FailureOfOneAttemptLeavesTheOther) {
  std::binary_semaphore is_hedged(0);
  start([&](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    if (special_count_++ == 0) {
      is_hedged.acquire();
      std::this_thread::sleep_for(2ms);
      return server_->answer(request, peer);
    }
    peer.send(ScriptedServer::head(500, 4) + "oops");
    is_hedged.release();
  });
  warm_up();
  expect_content(transfer(get(kSpecial, 1000)), kSpecial, 1000);
  EXPECT_EQ(metric("store.retries"), 0);
  stop_all();
}

TEST_P(TailTest, BothAttemptsFailingIsARetry) {
  std::binary_semaphore is_hedged(0);
  start([&](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    const int index = special_count_++;
    if (index == 0) is_hedged.acquire();
    if (index < 2) peer.reset();
    if (index == 1) is_hedged.release();
    if (index >= 2) server_->answer(request, peer);
  });
  warm_up();
  expect_content(transfer(get(kSpecial, 1000)), kSpecial, 1000);
  EXPECT_EQ(metric("store.hedges"), 1);
  stop_all();
}

TEST_P(TailTest, CancelEndsBothAttempts) {
  std::counting_semaphore<> is_sent(0);
  start([&](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    is_sent.release();
    peer.wait_for_client_to_leave();
  });
  warm_up();
  Request request = get(kSpecial, 1000, 7);
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  is_sent.acquire();
  is_sent.acquire();
  handle_->cancel(7);
  EXPECT_EQ(take().status.code(), Code::kCancelled);
  expect_content(transfer(get(0, 100)), 0, 100);
  stop_all();
}

TEST_P(TailTest, OutageIsNotHedged) {
  options_.max_in_flight = 32;
  options_.is_adaptive = false;
  std::counting_semaphore<> is_sent(0);
  std::counting_semaphore<> go(0);
  start([&](const SeenRequest& request, Peer& peer) {
    if (is_special(request)) {
      is_sent.release();
      go.acquire();
    }
    server_->answer(request, peer);
  });
  warm_up();
  std::vector<Request> requests;
  for (int i = 0; i < 32; ++i) requests.push_back(get(kSpecial, 1000));
  ASSERT_EQ(handle_->submit(requests), 32U);
  for (int i = 0; i < 32; ++i) is_sent.acquire();
  Completion none;
  EXPECT_EQ(handle_->wait({&none, 1}, system_clock().now() + 30ms), 0U);
  EXPECT_EQ(metric("store.hedges"), 0);
  go.release(1000);
  for (int i = 0; i < 32; ++i) expect_content(take(), kSpecial, 1000);
  stop_all();
}

TEST_P(TailTest, PutsAreNeverHedged) {
  std::binary_semaphore go(0);
  start([&](const SeenRequest& request, Peer& peer) {
    if (request.head.substr(0, 3) == "PUT") go.acquire();
    server_->answer(request, peer);
  });
  warm_up();
  Request request = put(1000);
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  Completion none;
  EXPECT_EQ(handle_->wait({&none, 1}, system_clock().now() + 30ms), 0U);
  go.release();
  EXPECT_TRUE(take().status.ok());
  EXPECT_EQ(metric("store.hedges"), 0);
  stop_all();
}

TEST_P(TailTest, LimitStartsLowAndGrows) {
  options_.max_in_flight = 64;
  std::counting_semaphore<> is_sent(0);
  std::counting_semaphore<> go(0);
  start([&](const SeenRequest& request, Peer& peer) {
    if (is_special(request)) {
      is_sent.release();
      go.acquire();
    }
    server_->answer(request, peer);
  });
  expect_content(transfer(get(0, 100)), 0, 100);
  std::vector<Request> requests;
  for (int i = 0; i < 64; ++i) requests.push_back(get(kSpecial, 1000));
  ASSERT_EQ(handle_->submit(requests), 64U);
  for (int i = 0; i < 8; ++i) is_sent.acquire();
  EXPECT_EQ(metric("store.concurrency_limit"), 8);
  EXPECT_FALSE(is_sent.try_acquire_for(10ms));
  go.release(1000);
  for (int i = 0; i < 64; ++i) expect_content(take(), kSpecial, 1000);
  stop_all();
}

TEST_P(TailTest, ProcessesShareWhatTheyKnow) {
  const TemporaryDirectory directory;
  options_.control_directory = directory.path();
  start();
  warm_up(50);
  EXPECT_EQ(metric("store.sharing_failures"), 0);
  options_.control_directory = directory.path() + "/no/such/place";
  start();
  warm_up(5);
  EXPECT_EQ(metric("store.sharing_failures"), 1);
}

TEST_P(TailTest, RepeatedPutIfAbsentSaysThatItMayHaveWonItself) {
  start([](const SeenRequest& request, Peer& peer) {
    if (request.index == 0) return peer.reset();  // written, and nobody knows
    peer.send(ScriptedServer::head(412, 0));
  });
  Request request = put(100);
  request.if_absent = true;
  const Completion completion = transfer(std::move(request));
  EXPECT_EQ(completion.status.code(), Code::kChanged);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("whose answer was lost"));
}

TEST_P(TailTest, RareRefusalIsRepeatedQuickly) {
  start([this](const SeenRequest& request, Peer& peer) {
    if (is_special(request) && special_count_++ == 0)
      return peer.send(ScriptedServer::head(503, 8) + "SlowDown");
    server_->answer(request, peer);
  });
  warm_up(50);
  const TimePoint before = system_clock().now();
  const Completion completion = transfer(get(kSpecial, 1000));
  expect_content(completion, kSpecial, 1000);
  EXPECT_EQ(completion.attempts, 2U);
  EXPECT_LT(system_clock().now() - before, 2s);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TailTest, testing::Values(PollerKind::kUring, PollerKind::kEpoll),
                         [](const auto& param_info) {
                           return param_info.param == PollerKind::kUring ? "Uring" : "Epoll";
                         });

}  // namespace
}  // namespace headrace
