#include "store/transfer/transfer_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <semaphore>
#include <set>
#include <thread>

#include "store/transfer/scripted_server.h"
#include "store/transfer/transfer_fixture.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::MatchesRegex;

// --- success ---

TEST_P(TransferTest, GetsARange) {
  start();
  const Completion completion = transfer(get(1000, 300'000, 42));
  expect_content(completion, 1000, 300'000);
  EXPECT_EQ(completion.tag, 42U);
  EXPECT_EQ(completion.object_size_bytes, 1U << 20);
  EXPECT_EQ(completion.etag, "\"v1\"");
  EXPECT_EQ(completion.attempts, 1U);
  EXPECT_LE(completion.submitted, completion.sent);
  EXPECT_LE(completion.sent, completion.first_byte);
  EXPECT_LE(completion.first_byte, completion.finished);
  EXPECT_GT(completion.submitted, TimePoint{});
  EXPECT_GE(metric("store.received_bytes"), 300'000);
}

TEST_P(TransferTest, WritesBehindTheSlabOffset) {
  start();
  Request request = get(5, 100);
  request.slab = *pool_->try_acquire(200);
  request.slab_offset_bytes = 100;
  std::fill(request.slab.bytes().begin(), request.slab.bytes().end(), std::byte{7});
  const Completion completion = transfer(std::move(request));
  ASSERT_TRUE(completion.status.ok());
  EXPECT_EQ(completion.slab.bytes()[99], std::byte{7});
  EXPECT_EQ(static_cast<char>(completion.slab.bytes()[100]), ScriptedServer::content_byte(5));
  EXPECT_EQ(static_cast<char>(completion.slab.bytes()[199]), ScriptedServer::content_byte(104));
}

TEST_P(TransferTest, ManyRequestsShareFewConnections) {
  options_.reactor_count = 2;
  // Hedges of what a busy machine makes late have connections of their own.
  options_.hedge_fraction = 0;
  start();
  constexpr std::uint64_t kCount = 300;
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < kCount; ++i) requests.push_back(get(i * 1000, 1 + i * 7, i));
  ASSERT_EQ(handle_->submit(requests), kCount);
  std::set<std::uint64_t> seen;
  std::vector<Completion> completions(16);
  while (seen.size() < kCount) {
    const std::size_t count = handle_->wait(completions, system_clock().now() + 30s);
    ASSERT_GT(count, 0U);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(seen.insert(completions[i].tag).second);
      expect_content(completions[i], completions[i].tag * 1000, 1 + completions[i].tag * 7);
    }
  }
  EXPECT_EQ(handle_->wait(completions, system_clock().now()), 0U);
  EXPECT_LE(server_->connection_count(), 4U);
  EXPECT_EQ(metric("store.requests"), kCount);
  EXPECT_EQ(metric("store.connections_opened"), static_cast<double>(server_->connection_count()));
}

TEST_P(TransferTest, BodyMayComeInAnyPieces) {
  start([this](const SeenRequest& request, Peer& peer) {
    const std::string head =
        ScriptedServer::head(206, 3000, "Content-Range: bytes 0-2999/9999\r\n");
    const std::string all = head + server_->content(request.first, request.last);
    const std::size_t step = 1 + request.index * 97;
    for (std::size_t i = 0; i < all.size(); i += step) peer.send(all.substr(i, step));
  });
  for (int i = 0; i < 8; ++i) expect_content(transfer(get(0, 3000)), 0, 3000);
}

TEST_P(TransferTest, WholeObjectMayComeAs200) {
  start([this](const SeenRequest&, Peer& peer) {
    peer.send(ScriptedServer::head(200, 500) + server_->content(0, 499));
  });
  const Completion completion = transfer(get(0, 500));
  expect_content(completion, 0, 500);
  EXPECT_EQ(completion.object_size_bytes, 500U);
}

TEST_P(TransferTest, ChunkedBodyIsDecoded) {
  start([this](const SeenRequest&, Peer& peer) {
    peer.send(
        "HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\nContent-Range: bytes "
        "0-9/10\r\n\r\n4\r\n" +
        server_->content(0, 3) + "\r\n6\r\n");
    peer.send(server_->content(4, 9) + "\r\n0\r\n\r\n");
  });
  expect_content(transfer(get(0, 10)), 0, 10);
  expect_content(transfer(get(0, 10)), 0, 10);
  EXPECT_EQ(server_->connection_count(), 1U);
}

TEST_P(TransferTest, InterimAnswersAreSkipped) {
  start([this](const SeenRequest& request, Peer& peer) {
    peer.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
    server_->answer(request, peer);
  });
  expect_content(transfer(get(10, 20)), 10, 20);
}

TEST_P(TransferTest, PutsFromTheSlab) {
  std::string body;
  start([&](const SeenRequest& request, Peer& peer) {
    body = request.body;
    server_->answer(request, peer);
  });
  const Completion completion = transfer(put(6 << 20));
  ASSERT_TRUE(completion.status.ok()) << completion.status.message();
  EXPECT_EQ(completion.length_bytes, 6U << 20);
  EXPECT_EQ(completion.etag, "\"put\"");
  EXPECT_GE(metric("store.sent_bytes"), 6 << 20);
  stop_all();
  EXPECT_EQ(body, server_->content(0, (6 << 20) - 1));
}

TEST_P(TransferTest, PutOfNothingNeedsNoSlab) {
  start();
  Request request;
  request.op = Op::kPut;
  request.key = "empty";
  EXPECT_TRUE(transfer(std::move(request)).status.ok());
}

TEST_P(TransferTest, EarlyRefusalOfAPutIsReported) {
  start([](const SeenRequest&, Peer& peer) {
    peer.send(ScriptedServer::head(403, 2, "Connection: close\r\n") + "no");
    peer.wait_for_client_to_leave();
  });
  const Completion completion = transfer(put(16 << 20, "refused"));
  EXPECT_EQ(completion.status.code(), Code::kDenied) << completion.status.message();
  EXPECT_TRUE(completion.slab);
}

TEST_P(TransferTest, HostNamesAreResolved) {
  server_ = std::make_unique<ScriptedServer>();
  start_engine(server_->port(), "localhost");
  expect_content(transfer(get(0, 100)), 0, 100);
}

// --- cancel, stop, wait ---

TEST_P(TransferTest, CancelEndsARequestOnTheWire) {
  std::binary_semaphore is_sent(0);
  start([&](const SeenRequest&, Peer& peer) {
    peer.send(ScriptedServer::head(206, 100'000, "Content-Range: bytes 0-99999/1048576\r\n") +
              "part");
    is_sent.release();
    peer.wait_for_client_to_leave();
  });
  Request request = get(0, 100'000, 9);
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  is_sent.acquire();
  handle_->cancel(8);
  handle_->cancel(9);
  handle_->cancel(9);
  const Completion completion = take();
  EXPECT_EQ(completion.status.code(), Code::kCancelled);
  EXPECT_TRUE(completion.slab);
  EXPECT_EQ(metric("store.cancellations"), 1);
  stop_all();
}

TEST_P(TransferTest, CancelEndsABackoff) {
  // The clock stands still: the back-off never ends by itself.
  options_.max_in_flight = 1;
  options_.clock = &clock_;
  start([](const SeenRequest&, Peer& peer) { peer.send(ScriptedServer::head(500, 0)); });
  Request first = get(0, 10, 1);
  ASSERT_EQ(handle_->submit({&first, 1}), 1U);
  while (metric("store.retries") == 0) std::this_thread::yield();
  handle_->cancel(1);
  EXPECT_EQ(take().status.code(), Code::kCancelled);
}

TEST_P(TransferTest, CancelAffectsOnlyItsTagAndHandle) {
  options_.max_in_flight = 1;
  std::counting_semaphore<> go(0);
  start([&](const SeenRequest& request, Peer& peer) {
    go.acquire();
    server_->answer(request, peer);
  });
  auto other = engine_->new_handle();
  Request theirs = get(0, 10, 5);
  ASSERT_EQ(other->submit({&theirs, 1}), 1U);
  std::vector<Request> mine;
  for (const std::uint64_t tag : {5U, 6U}) mine.push_back(get(0, 10, tag));
  ASSERT_EQ(handle_->submit(mine), 2U);
  handle_->cancel(5);
  Completion completion = take();
  EXPECT_EQ(completion.tag, 5U);
  EXPECT_EQ(completion.status.code(), Code::kCancelled);
  go.release(2);
  completion = take();
  EXPECT_EQ(completion.tag, 6U);
  EXPECT_TRUE(completion.status.ok());
  ASSERT_EQ(other->wait({&completion, 1}, system_clock().now() + 30s), 1U);
  EXPECT_TRUE(completion.status.ok());
  completion.slab = Slab();
  other.reset();
  stop_all();
}

TEST_P(TransferTest, StopUnderLoadCompletesEverythingOnce) {
  options_.reactor_count = 2;
  start();
  constexpr std::uint64_t kCount = 400;
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < kCount; ++i) requests.push_back(get(0, 20'000, i));
  ASSERT_EQ(handle_->submit(requests), kCount);
  std::vector<int> seen(kCount, 0);
  std::vector<Completion> completions(8);
  std::size_t total = handle_->wait(completions, system_clock().now() + 30s);
  for (std::size_t i = 0; i < total; ++i) ++seen[completions[i].tag];
  std::thread stopper([this] { handle_->stop(); });
  handle_->stop();
  while (total < kCount) {
    const std::size_t count = handle_->wait(completions, system_clock().now() + 30s);
    ASSERT_GT(count, 0U);
    for (std::size_t i = 0; i < count; ++i) {
      ++seen[completions[i].tag];
      const Code code = completions[i].status.code();
      EXPECT_TRUE(code == Code::kOk || code == Code::kCancelled) << completions[i].status.message();
    }
    total += count;
  }
  stopper.join();
  EXPECT_THAT(seen, testing::Each(1));
  Request late = get(0, 10);
  EXPECT_EQ(handle_->submit({&late, 1}), 0U);
}

TEST_P(TransferTest, DestroyedHandleGivesAllSlabsBack) {
  start([](const SeenRequest&, Peer& peer) {
    peer.send(ScriptedServer::head(206, 50'000, "Content-Range: bytes 0-49999/1048576\r\n") +
              "part");
    peer.wait_for_client_to_leave();
  });
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 50; ++i) requests.push_back(get(0, 50'000, i));
  ASSERT_EQ(handle_->submit(requests), 50U);
  while (server_->request_count() < 4) std::this_thread::yield();
  handle_.reset();
  EXPECT_EQ(pool_->used_bytes(), 0U);
  // Its queues serve the next handle.
  handle_ = engine_->new_handle();
  Completion completion;
  EXPECT_EQ(handle_->wait({&completion, 1}, system_clock().now()), 0U);
}

TEST_P(TransferTest, HandleOutlivesTheEngineObject) {
  start();
  engine_.reset();
  expect_content(transfer(get(0, 100)), 0, 100);
}

TEST_P(TransferTest, SubmitTakesWhatFits) {
  options_.max_in_flight = 2;
  options_.queue_capacity = 3;
  start([](const SeenRequest&, Peer& peer) { peer.wait_for_client_to_leave(); });
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 8; ++i) requests.push_back(get(0, 10, i));
  EXPECT_EQ(handle_->submit(requests), 5U);
  EXPECT_EQ(handle_->submit(std::span(requests).subspan(5)), 0U);
  EXPECT_TRUE(requests[5].slab);
  EXPECT_FALSE(requests[4].slab);
  handle_->cancel(0);
  EXPECT_EQ(take().tag, 0U);
  EXPECT_EQ(handle_->submit(std::span(requests).subspan(5)), 1U);
}

TEST_P(TransferTest, WaitEndsByTimeWakeAndStop) {
  start();
  Completion completion;
  const std::span<Completion> out(&completion, 1);
  EXPECT_EQ(handle_->wait(out, system_clock().now() + 1ms), 0U);
  handle_->wake();
  EXPECT_EQ(handle_->wait(out, TimePoint::max()), 0U);
  std::thread waker([this] { handle_->wake(); });
  EXPECT_EQ(handle_->wait(out, TimePoint::max()), 0U);
  waker.join();
  std::stop_source source;
  std::thread stopper([&] { source.request_stop(); });
  EXPECT_EQ(handle_->wait(out, TimePoint::max(), source.get_token()), 0U);
  stopper.join();
  EXPECT_EQ(handle_->wait(out, TimePoint::max(), source.get_token()), 0U);
}

TEST_P(TransferTest, ManyThreadsMaySubmitAndCancel) {
  start();
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kEach = 100;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        Request request = get(i, 500, thread * kEach + i);
        EXPECT_EQ(handle_->submit({&request, 1}), 1U);
        if (i % 3 == 0) handle_->cancel(thread * kEach + i);
      }
    });
  }
  std::set<std::uint64_t> seen;
  while (seen.size() < kThreads * kEach) {
    const Completion completion = take();
    EXPECT_TRUE(seen.insert(completion.tag).second);
    if (completion.status.ok()) {
      expect_content(completion, completion.tag % kEach, 500);
    } else {
      EXPECT_EQ(completion.status.code(), Code::kCancelled);
    }
  }
  for (std::thread& thread : threads) thread.join();
}

// --- control plane ---

TEST_P(TransferTest, CallReturnsTheAnswer) {
  start([](const SeenRequest& request, Peer& peer) {
    peer.send(ScriptedServer::head(200, 5 + request.body.size(), "X-Kind: answer\r\n") + "hello" +
              request.body);
  });
  HttpCall call;
  call.method = "POST";
  call.what = "TEST call";
  call.body = "-body";
  auto answer = engine_->call(call);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "hello-body");
  http::ResponseHead head;
  ASSERT_TRUE(http::parse_response_head(answer->head, head));
  EXPECT_EQ(head.header("x-kind"), "answer");
}

TEST_P(TransferTest, CallsWithoutBody) {
  start([](const SeenRequest& request, Peer& peer) {
    peer.send(request.head[0] == 'H' ? ScriptedServer::head(200, 12345)
                                     : "HTTP/1.1 204 No Content\r\n\r\n");
  });
  HttpCall head_call;
  head_call.method = "HEAD";
  HttpCall delete_call;
  delete_call.method = "DELETE";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine_->call(head_call)->status, 200);
    EXPECT_EQ(engine_->call(delete_call)->status, 204);
  }
  EXPECT_EQ(server_->connection_count(), 1U);
}

TEST_P(TransferTest, HeadOfNothingEndsThoughTheAnswerSaysChunked) {
  start([](const SeenRequest&, Peer& peer) {
    peer.send("HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n");
  });
  HttpCall call;
  call.method = "HEAD";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(engine_->call(call).error().code(), Code::kNotFound);
  EXPECT_EQ(server_->connection_count(), 1U);
}

TEST_P(TransferTest, IdempotentCallIsRetriedAlsoForAnErrorInside200) {
  start([](const SeenRequest& request, Peer& peer) {
    const std::string body = request.index == 1 ? "<Error>" : "fine";
    request.index == 0 ? peer.send(ScriptedServer::head(500, 0))
                       : peer.send(ScriptedServer::head(200, body.size()) + body);
  });
  auto answer = engine_->call(HttpCall{});
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->body, "fine");
  EXPECT_EQ(server_->request_count(), 3U);
}

TEST_P(TransferTest, OtherCallsAreSentOnce) {
  start([](const SeenRequest&, Peer& peer) { peer.reset(); });
  HttpCall call;
  call.is_idempotent = false;
  call.what = "POST thing";
  auto answer = engine_->call(call);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
  EXPECT_THAT(text(answer.error().message()),
              MatchesRegex("POST thing: .*, attempt 1 of 10, [0-9]+ ms"));
  EXPECT_EQ(server_->request_count(), 1U);
}

TEST_P(TransferTest, CallEndsByStopAndDeadline) {
  std::stop_source source;
  start([&](const SeenRequest& request, Peer& peer) {
    if (request.index == 0) source.request_stop();
    peer.wait_for_client_to_leave();
  });
  CallOptions call_options;
  call_options.stop = source.get_token();
  EXPECT_EQ(engine_->call(HttpCall{}, call_options).error().code(), Code::kCancelled);
  EXPECT_EQ(engine_->call(HttpCall{}, call_options).error().code(), Code::kCancelled);
  CallOptions short_options;
  short_options.deadline = system_clock().now() + 30ms;
  EXPECT_EQ(engine_->call(HttpCall{}, short_options).error().code(), Code::kDeadline);
  stop_all();
}

TEST_P(TransferTest, FreshConnectionIsANewOne) {
  start();
  expect_content(transfer(get(0, 10)), 0, 10);
  Request request = get(0, 10);
  request.fresh_connection = true;
  expect_content(transfer(std::move(request)), 0, 10);
  EXPECT_EQ(server_->connection_count(), 2U);
  EXPECT_EQ(metric("store.fresh_requests"), 1);
  expect_content(transfer(get(0, 10)), 0, 10);  // the wish was for one request
  EXPECT_EQ(server_->connection_count(), 2U);
}

TEST_P(TransferTest, CallOvertakesQueuedTransfers) {
  options_.max_in_flight = 1;
  std::counting_semaphore<> go(0);
  std::vector<std::string> order;
  start([&](const SeenRequest& request, Peer& peer) {
    order.push_back(request.head.substr(0, request.head.find(' ')));
    if (request.index == 0) go.acquire();
    request.head[0] == 'L' ? peer.send(ScriptedServer::head(200, 0))
                           : server_->answer(request, peer);
  });
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 5; ++i) requests.push_back(get(0, 10, i));
  ASSERT_EQ(handle_->submit(requests), 5U);
  while (server_->request_count() == 0) std::this_thread::yield();
  std::thread caller([this] {
    HttpCall call;
    call.method = "LIST";
    EXPECT_TRUE(engine_->call(call));
  });
  // Nothing wakes a reactor without a free connection for a call; requests that are late already
  // do.
  for (int nudges = 1; metric("store.requests") < 5 + nudges; ++nudges) {
    Request nudge = get(0, 10, 78);
    nudge.deadline = system_clock().now();
    ASSERT_EQ(handle_->submit({&nudge, 1}), 1U);
    EXPECT_EQ(take().tag, 78U);
  }
  go.release();
  caller.join();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(take().status.ok());
  stop_all();
  ASSERT_GE(order.size(), 3U);
  EXPECT_EQ(std::count(order.begin(), order.begin() + 3, "LIST"), 1);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TransferTest,
                         testing::Values(PollerKind::kUring, PollerKind::kEpoll),
                         [](const auto& param_info) {
                           return param_info.param == PollerKind::kUring ? "Uring" : "Epoll";
                         });

// --- options ---

TEST(TransferEngine, RefusesWhatItCannotDo) {
  const auto code_with = [](auto change) {
    StoreOptions options;
    HttpEndpoint endpoint{"127.0.0.1", 1, false};
    change(options, endpoint);
    auto engine = TransferEngine::create(std::make_shared<FakeProtocol>(endpoint), options);
    return engine ? Code::kOk : engine.error().code();
  };
  EXPECT_EQ(code_with([](auto&, auto&) {}), Code::kOk);
  EXPECT_EQ(code_with([](auto& options, auto& endpoint) {
              endpoint.use_tls = true;
              options.ca_bundle = "/nonexistent/authorities.pem";
            }),
            Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& options, auto&) { options.max_in_flight = 0; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& options, auto&) { options.queue_capacity = 0; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& options, auto&) { options.max_attempts = 0; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& options, auto&) { options.connect_timeout = 0ms; }),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
