// A few calls go at once; of many, each waits for its turn among the transfers.
#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <thread>
#include <vector>

#include "store/transfer/scripted_server.h"
#include "store/transfer/transfer_fixture.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;

// What an engine that knows nothing of its store yet has on the wire: small requests that were
// given a turn, and calls beside them.
constexpr int kFirstWave = 64;
constexpr int kBeside = 8;

class BulkCallsTest : public TransferTest {
 protected:
  /// A server that answers HEAD at once, refuses the next `refused_count` of all else, and holds
  /// the others until the end. Time stands still.
  void start_holding(int refused_count = 0) {
    options_.max_in_flight = 256;
    refused_left_ = refused_count;
    start([this](const SeenRequest& request, Peer& peer) {
      if (request.head.starts_with("HEAD")) return peer.send(ScriptedServer::head(200, 1));
      if (refused_left_-- > 0) return peer.send(ScriptedServer::head(503, 0));
      is_held_.acquire();
      request.head.starts_with("GET") ? server_->answer(request, peer)
                                      : peer.send(ScriptedServer::head(200, 0));
    });
  }
  Result<HttpAnswer> call(const std::string& method, const CallOptions& options = {}) {
    HttpCall call;
    call.method = method;
    call.what = method + " thing";
    return engine_->call(call, options);
  }
  void begin_reads(int count) {
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i) requests.push_back(get(0, 100));
    ASSERT_EQ(handle_->submit(requests), requests.size());
    asked_ += count;
  }
  void begin_calls(int count, const CallOptions& options = {}, Code expected = Code::kOk) {
    for (int i = 0; i < count; ++i) {
      callers_.emplace_back([this, options, expected] {
        const auto answer = call("DELETE", options);
        const Code code = answer ? Code::kOk : answer.error().code();
        EXPECT_EQ(code, expected);
      });
    }
    asked_ += count;
  }
  /// Those that are on the wire or were, once the reactor has looked at all that it was given.
  int sent_count() const {
    while (metric("store.requests") < asked_) std::this_thread::yield();
    // With a clock that is not the system's it looks every millisecond.
    const double waits = metric("store.reactor_waits");
    while (metric("store.reactor_waits") < waits + 2) std::this_thread::yield();
    return static_cast<int>(metric("store.attempts"));
  }
  void end_calls() {
    for (std::thread& caller : callers_) caller.join();
    callers_.clear();
  }
  void end(int read_count = 0) {
    is_held_.release(1000);
    for (int i = 0; i < read_count; ++i) expect_content(take(), 0, 100);
    end_calls();
    stop_all();
  }

  int asked_ = 0;
  std::atomic<int> refused_left_{0};
  std::counting_semaphore<> is_held_{0};
  std::vector<std::thread> callers_;
};

TEST_P(BulkCallsTest, AsManyAsTheControlAllowsAreSent) {
  options_.clock = &clock_;
  start_holding();
  begin_calls(100);
  EXPECT_EQ(sent_count(), kFirstWave + kBeside);
  end();
}

TEST_P(BulkCallsTest, TheyShareTheRoomWithReads) {
  options_.clock = &clock_;
  start_holding();
  begin_reads(kFirstWave - 1);
  EXPECT_EQ(sent_count(), kFirstWave - 1);
  begin_calls(20);
  EXPECT_EQ(sent_count(), kFirstWave + kBeside);
  end(kFirstWave - 1);
}

// Nothing but the call itself can wake the reactor: no byte moves, and no time ends soon.
TEST_P(BulkCallsTest, ASingleCallGoesAtOnceBesideReadsThatHang) {
  options_.hedge_fraction = 0;
  options_.default_timeout = options_.first_byte_timeout = options_.progress_timeout = 1h;
  start_holding();
  begin_reads(kFirstWave + 10);
  while (metric("store.attempts") < kFirstWave) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(call("HEAD"));
  EXPECT_EQ(metric("store.attempts"), kFirstWave + 3);
  end(kFirstWave + 10);
}

TEST_P(BulkCallsTest, WhoWaitsForATurnObeysDeadlineAndCancel) {
  options_.clock = &clock_;
  start_holding();
  begin_calls(kFirstWave + kBeside);
  EXPECT_EQ(sent_count(), kFirstWave + kBeside);
  std::vector<std::thread> waiting = std::exchange(callers_, {});
  std::stop_source stop;
  begin_calls(1, {.stop = stop.get_token()}, Code::kCancelled);
  begin_calls(1, {.deadline = clock_.now() + 10ms, .stop = {}}, Code::kDeadline);
  EXPECT_EQ(sent_count(), kFirstWave + kBeside);
  stop.request_stop();
  clock_.advance(10ms);
  end_calls();
  EXPECT_EQ(metric("store.attempts"), kFirstWave + kBeside);
  callers_ = std::move(waiting);
  end();
}

TEST_P(BulkCallsTest, RefusalsMakeThemFewer) {
  options_.clock = &clock_;
  options_.max_attempts = 1;
  const int first = kFirstWave + kBeside;
  start_holding(first);
  begin_calls(first, {}, Code::kThrottled);
  end_calls();
  EXPECT_EQ(metric("store.throttles"), first);
  clock_.advance(100ms);  // What was seen is judged now.
  while (metric("store.concurrency_limit") > kFirstWave / 4) std::this_thread::yield();
  begin_calls(100);
  EXPECT_EQ(sent_count(), first + kFirstWave / 2 + kBeside);
  end();
}

INSTANTIATE_TEST_SUITE_P(Kinds, BulkCallsTest,
                         testing::Values(PollerKind::kUring, PollerKind::kEpoll),
                         [](const auto& param_info) {
                           return param_info.param == PollerKind::kUring ? "Uring" : "Epoll";
                         });

}  // namespace
}  // namespace headrace
