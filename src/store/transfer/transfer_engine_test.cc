#include "store/transfer/transfer_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <map>
#include <semaphore>
#include <set>
#include <thread>

#include "base/manual_clock.h"
#include "reactor/poller.h"
#include "store/transfer/scripted_server.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::MatchesRegex;
using transfer::FakeProtocol;
using transfer::Peer;
using transfer::ScriptedServer;
using transfer::SeenRequest;

std::string text(std::string_view view) { return std::string(view); }

class TransferTest : public testing::TestWithParam<PollerKind> {
 protected:
  void SetUp() override {
    if (!create_poller(GetParam())) GTEST_SKIP() << "not available here";
    options_.poller = GetParam();
    options_.max_in_flight = 4;
    options_.default_timeout = 20s;
    options_.retry_seed = 1;
    SlabPool::Options pool_options;
    pool_options.limit_bytes = 64 << 20;
    auto pool = SlabPool::create(pool_options);
    ASSERT_TRUE(pool);
    pool_ = *std::move(pool);
  }
  void TearDown() override {
    handle_.reset();
    engine_.reset();
    server_.reset();
    if (pool_) {
      EXPECT_EQ(pool_->used_bytes(), 0U);
    }
  }
  /// `script` answers; without one the server is a good one.
  void start(ScriptedServer::Script script = nullptr, std::uint64_t object_bytes = 1 << 20) {
    server_ = std::make_unique<ScriptedServer>(std::move(script), object_bytes);
    start_engine(server_->port());
  }
  void start_engine(std::uint16_t port, const std::string& host = "127.0.0.1") {
    auto engine = TransferEngine::create(std::make_shared<FakeProtocol>(port, host), options_);
    ASSERT_TRUE(engine) << engine.error().message();
    engine_ = *std::move(engine);
    handle_ = engine_->new_handle();
  }
  Request get(std::uint64_t offset_bytes, std::uint64_t length_bytes, std::uint64_t tag = 0) {
    Request request;
    request.key = "object";
    request.offset_bytes = offset_bytes;
    request.length_bytes = length_bytes;
    request.tag = tag;
    request.slab = *pool_->try_acquire(length_bytes);
    return request;
  }
  Request put(std::uint64_t length_bytes, std::string_view key = "object") {
    Request request = get(0, length_bytes);
    request.op = Op::kPut;
    request.key = key;
    for (std::size_t i = 0; i < length_bytes; ++i) {
      request.slab.bytes()[i] = static_cast<std::byte>(ScriptedServer::content_byte(i));
    }
    return request;
  }
  Completion take() {
    Completion completion;
    const std::size_t count = handle_->wait({&completion, 1}, system_clock().now() + 30s);
    EXPECT_EQ(count, 1U) << "no completion came";
    return completion;
  }
  Completion transfer(Request request) {
    EXPECT_EQ(handle_->submit({&request, 1}), 1U);
    return take();
  }
  double metric(const std::string& name) const {
    MetricList metrics;
    engine_->append_metrics(metrics);
    for (const Metric& entry : metrics) {
      if (entry.name == name) return entry.value;
    }
    ADD_FAILURE() << "no metric " << name;
    return -1;
  }
  void expect_content(const Completion& completion, std::uint64_t offset_bytes,
                      std::uint64_t length_bytes) const {
    ASSERT_TRUE(completion.status.ok()) << completion.status.message();
    ASSERT_EQ(completion.length_bytes, length_bytes);
    const auto bytes = completion.slab.bytes().first(length_bytes);
    for (std::uint64_t i = 0; i < length_bytes; ++i) {
      ASSERT_EQ(static_cast<char>(bytes[i]), ScriptedServer::content_byte(offset_bytes + i)) << i;
    }
  }

  ManualClock clock_;
  StoreOptions options_;
  std::unique_ptr<SlabPool> pool_;
  std::unique_ptr<ScriptedServer> server_;
  std::shared_ptr<TransferEngine> engine_;
  std::unique_ptr<TransferHandle> handle_;
};

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
  EXPECT_EQ(body, server_->content(0, (6 << 20) - 1));
  EXPECT_GE(metric("store.sent_bytes"), 6 << 20);
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

// --- answers that are wrong ---

struct WrongAnswer {
  const char* name;
  const char* answer;
  Code code;
  const char* message;
};

class WrongAnswerTest : public TransferTest {};

TEST_P(WrongAnswerTest, IsAnErrorAndNotRetried) {
  constexpr WrongAnswer kCases[] = {
      {"wrong range",
       "HTTP/1.1 206 P\r\nContent-Length: 10\r\nContent-Range: bytes 5-14/99\r\n\r\n0123456789",
       Code::kCorrupt, "the answer is for [5, 15)"},
      {"no range", "HTTP/1.1 206 P\r\nContent-Length: 10\r\n\r\n0123456789", Code::kCorrupt,
       "without a Content-Range"},
      {"length disagrees",
       "HTTP/1.1 206 P\r\nContent-Length: 9\r\nContent-Range: bytes 0-9/99\r\n\r\n012345678",
       Code::kCorrupt, "9 bytes where its range has 10"},
      {"short object",
       "HTTP/1.1 206 P\r\nContent-Length: 4\r\nContent-Range: bytes 0-3/4\r\n\r\n0123",
       Code::kCorrupt, "the object ends at 4"},
      {"short for no reason",
       "HTTP/1.1 206 P\r\nContent-Length: 4\r\nContent-Range: bytes 0-3/99\r\n\r\n0123",
       Code::kCorrupt, "stops at 4 inside the object"},
      {"ignores ranges", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", Code::kUnsupported,
       "ignores ranges"},
      {"past the end", "HTTP/1.1 416 R\r\nContent-Length: 0\r\nContent-Range: bytes */0\r\n\r\n",
       Code::kCorrupt, "the object ends at 0"},
      {"chunks too long",
       "HTTP/1.1 206 P\r\nTransfer-Encoding: chunked\r\nContent-Range: bytes "
       "0-9/99\r\n\r\nb\r\n01234567890",
       Code::kCorrupt, "longer than the range"},
      {"chunks too short",
       "HTTP/1.1 206 P\r\nTransfer-Encoding: chunked\r\nContent-Range: bytes "
       "0-9/99\r\n\r\n3\r\n012\r\n0\r\n\r\n",
       Code::kCorrupt, "has 3 bytes"},
      {"garbage", "220 smtp.example.com ESMTP\r\n\r\n", Code::kCorrupt, ""},
      {"not found", "HTTP/1.1 404 N\r\nContent-Length: 7\r\n\r\nmissing", Code::kNotFound,
       "HTTP 404 missing"},
      {"denied", "HTTP/1.1 403 D\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
       Code::kDenied, "HTTP 403 no"},
      {"precondition", "HTTP/1.1 412 P\r\nContent-Length: 0\r\n\r\n", Code::kChanged, "HTTP 412"},
  };
  for (const WrongAnswer& row : kCases) {
    SCOPED_TRACE(row.name);
    start([&row](const SeenRequest&, Peer& peer) { peer.send(row.answer); });
    const Completion completion = transfer(get(0, 10));
    EXPECT_EQ(completion.status.code(), row.code) << completion.status.message();
    EXPECT_THAT(text(completion.status.message()), HasSubstr(row.message));
    EXPECT_THAT(text(completion.status.message()),
                MatchesRegex("GET fake://object \\[0, 10\\): .*, attempt 1 of 10, [0-9]+ ms"));
    EXPECT_EQ(completion.length_bytes, 0U);
    EXPECT_EQ(server_->request_count(), 1U);
    handle_.reset();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, WrongAnswerTest,
                         testing::Values(PollerKind::kUring, PollerKind::kEpoll));

TEST_P(TransferTest, ShortObjectIsFineWhenAllowed) {
  start(nullptr, 1000);
  Request request = get(900, 300);
  request.allow_short = true;
  expect_content(transfer(std::move(request)), 900, 100);
  Request past = get(1000, 300);
  past.allow_short = true;
  const Completion completion = transfer(std::move(past));
  EXPECT_TRUE(completion.status.ok()) << completion.status.message();
  EXPECT_EQ(completion.length_bytes, 0U);
  EXPECT_EQ(completion.object_size_bytes, 1000U);
  EXPECT_EQ(server_->connection_count(), 1U);
}

TEST_P(TransferTest, OtherVersionIsAChange) {
  start();
  Request request = get(0, 10);
  request.etag = "\"v0\"";
  EXPECT_EQ(transfer(std::move(request)).status.code(), Code::kChanged);
  Request same = get(0, 10);
  same.etag = "\"v1\"";
  const Completion completion = transfer(std::move(same));
  expect_content(completion, 0, 10);
  EXPECT_EQ(completion.etag, "");
}

TEST_P(TransferTest, ErrorAnswersKeepTheConnection) {
  start([](const SeenRequest&, Peer& peer) { peer.send(ScriptedServer::head(404, 3) + "abc"); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(transfer(get(0, 10)).status.code(), Code::kNotFound);
  EXPECT_EQ(server_->connection_count(), 1U);
}

TEST_P(TransferTest, EndlessErrorBodyIsCutOff) {
  start([](const SeenRequest&, Peer& peer) {
    peer.send("HTTP/1.1 404 N\r\n\r\n" + std::string(1 << 20, 'x'));
    peer.wait_for_client_to_leave();
  });
  EXPECT_EQ(transfer(get(0, 10)).status.code(), Code::kNotFound);
}

TEST_P(TransferTest, WrongRequestsCompleteWithInvalidArgument) {
  start();
  std::vector<Request> requests;
  requests.push_back(get(0, 10));
  requests.back().key = "";
  requests.push_back(get(0, 10));
  requests.back().length_bytes = 0;
  requests.push_back(get(0, 10));
  requests.back().length_bytes = 11;
  requests.push_back(get(0, 10));
  requests.back().slab_offset_bytes = 1;
  requests.push_back(get(~std::uint64_t{0}, 10));
  requests.push_back(get(0, 10));
  requests.back().key = "refused-key";
  requests.push_back(put(10));
  requests.back().op = Op::kPutPart;
  requests.push_back(put(10));
  requests.back().op = Op::kPutPart;
  requests.back().upload_id = "id";
  requests.back().part_number = 10'001;
  const std::size_t count = requests.size();
  ASSERT_EQ(handle_->submit(requests), count);
  for (std::size_t i = 0; i < count; ++i) {
    const Completion completion = take();
    EXPECT_EQ(completion.status.code(), Code::kInvalidArgument) << completion.status.message();
    EXPECT_TRUE(completion.slab);
  }
  EXPECT_EQ(server_->request_count(), 0U);
}

// --- retries ---

TEST_P(TransferTest, ResetInsideTheBodyIsRetried) {
  start([this](const SeenRequest& request, Peer& peer) {
    if (request.index > 0) return server_->answer(request, peer);
    peer.send(ScriptedServer::head(206, 100'000, "Content-Range: bytes 0-99999/1048576\r\n") +
              "half of it");
    peer.reset();
  });
  const Completion completion = transfer(get(0, 100'000));
  expect_content(completion, 0, 100'000);
  EXPECT_EQ(completion.attempts, 2U);
  EXPECT_EQ(metric("store.retries"), 1);
}

TEST_P(TransferTest, TruncatedBodyIsRetriedAndReported) {
  options_.max_attempts = 2;
  start([](const SeenRequest&, Peer& peer) {
    peer.send(ScriptedServer::head(206, 1000, "Content-Range: bytes 0-999/1048576\r\n") +
              "0123456789");
    peer.close();
  });
  const Completion completion = transfer(get(0, 1000));
  EXPECT_EQ(completion.status.code(), Code::kUnavailable);
  EXPECT_THAT(text(completion.status.message()),
              MatchesRegex("GET fake://object \\[0, 1000\\): connection closed after 10 of 1000 "
                           "bytes, attempt 2 of 2, [0-9]+ ms"));
  EXPECT_EQ(completion.attempts, 2U);
  EXPECT_EQ(server_->request_count(), 2U);
}

TEST_P(TransferTest, ThrottledRequestSucceedsLater) {
  start([this](const SeenRequest& request, Peer& peer) {
    request.index < 2 ? peer.send(ScriptedServer::head(503, 8) + "SlowDown")
                      : server_->answer(request, peer);
  });
  const Completion completion = transfer(get(0, 1000));
  expect_content(completion, 0, 1000);
  EXPECT_EQ(completion.attempts, 3U);
  EXPECT_EQ(metric("store.throttles"), 2);
  EXPECT_EQ(server_->connection_count(), 1U);
}

TEST_P(TransferTest, RetryAfterIsHonoured) {
  options_.clock = &clock_;
  std::binary_semaphore is_refused(0);
  start([&](const SeenRequest& request, Peer& peer) {
    if (request.index > 0) return server_->answer(request, peer);
    peer.send(ScriptedServer::head(503, 0, "Retry-After: 7\r\n"));
    is_refused.release();
  });
  Request request = get(0, 10);
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  is_refused.acquire();
  while (metric("store.retries") == 0) std::this_thread::yield();
  clock_.advance(6900ms);
  Completion completion;
  EXPECT_EQ(handle_->wait({&completion, 1}, system_clock().now() + 20ms), 0U);
  EXPECT_EQ(server_->request_count(), 1U);
  clock_.advance(300ms);
  expect_content(take(), 0, 10);
}

TEST_P(TransferTest, StaleConnectionIsReplacedWithoutAnAttempt) {
  start([this](const SeenRequest& request, Peer& peer) {
    request.connection == 0 && request.on_connection == 1 ? peer.close()
                                                          : server_->answer(request, peer);
  });
  expect_content(transfer(get(0, 10)), 0, 10);
  const Completion completion = transfer(get(10, 10));
  expect_content(completion, 10, 10);
  EXPECT_EQ(completion.attempts, 1U);
  EXPECT_EQ(metric("store.stale_connections"), 1);
  EXPECT_EQ(metric("store.retries"), 0);
}

TEST_P(TransferTest, IdleConnectionIsDroppedBeforeTheServerDoesIt) {
  options_.clock = &clock_;
  std::binary_semaphore has_left(0);
  start([&](const SeenRequest& request, Peer& peer) {
    server_->answer(request, peer);
    if (request.connection > 0) return;
    peer.wait_for_client_to_leave();
    has_left.release();
  });
  expect_content(transfer(get(0, 10)), 0, 10);
  clock_.advance(4100ms);
  has_left.acquire();
  expect_content(transfer(get(0, 10)), 0, 10);
  EXPECT_EQ(metric("store.stale_connections"), 0);
}

TEST_P(TransferTest, ConnectionThatTheServerClosedWhileIdleIsNotUsed) {
  options_.clock = &clock_;
  std::binary_semaphore is_closed(0);
  start([&](const SeenRequest& request, Peer& peer) {
    server_->answer(request, peer);
    peer.close();
  });
  expect_content(transfer(get(0, 10)), 0, 10);
  clock_.advance(1s);
  expect_content(transfer(get(0, 10)), 0, 10);
  EXPECT_EQ(server_->connection_count(), 2U);
}

TEST_P(TransferTest, RefusedConnectIsReported) {
  options_.max_attempts = 2;
  std::uint16_t port = 0;
  {
    const ScriptedServer gone;
    port = gone.port();
  }
  start_engine(port);
  const Completion completion = transfer(get(0, 10));
  EXPECT_EQ(completion.status.code(), Code::kUnavailable);
  EXPECT_THAT(text(completion.status.message()),
              HasSubstr("connect to 127.0.0.1:" + std::to_string(port) + ": connection refused"));
  EXPECT_GE(metric("store.connect_failures"), 2);
}

TEST_P(TransferTest, UnknownHostIsReported) {
  options_.max_attempts = 2;
  start_engine(80, "headrace.invalid");
  const Completion completion = transfer(get(0, 10));
  EXPECT_TRUE(completion.status.code() == Code::kNotFound ||
              completion.status.code() == Code::kUnavailable);
  EXPECT_THAT(text(completion.status.message()),
              HasSubstr("cannot resolve host \"headrace.invalid\""));
}

// --- time ---

TEST_P(TransferTest, ServerThatNeverAnswersEndsAtTheDeadline) {
  start([](const SeenRequest&, Peer& peer) { peer.wait_for_client_to_leave(); });
  Request request = get(0, 10);
  const TimePoint deadline = system_clock().now() + 50ms;
  request.deadline = deadline;
  const Completion completion = transfer(std::move(request));
  EXPECT_EQ(completion.status.code(), Code::kDeadline);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("the deadline passed, attempt 1 of 10"));
  EXPECT_GE(completion.finished, deadline);
  EXPECT_LT(completion.finished, deadline + 5s);
}

TEST_P(TransferTest, QueuedRequestEndsAtItsDeadlineToo) {
  options_.max_in_flight = 1;
  start([](const SeenRequest&, Peer& peer) { peer.wait_for_client_to_leave(); });
  Request first = get(0, 10, 1);
  ASSERT_EQ(handle_->submit({&first, 1}), 1U);
  while (server_->request_count() == 0) std::this_thread::yield();
  Request second = get(0, 10, 2);
  second.deadline = system_clock().now() + 30ms;
  ASSERT_EQ(handle_->submit({&second, 1}), 1U);
  const Completion completion = take();
  EXPECT_EQ(completion.tag, 2U);
  EXPECT_EQ(completion.status.code(), Code::kDeadline);
  EXPECT_EQ(completion.attempts, 0U);
}

TEST_P(TransferTest, DeadlineThatHasPassedEndsAtOnce) {
  start();
  Request request = get(0, 10);
  request.deadline = system_clock().now() - 1s;
  EXPECT_EQ(transfer(std::move(request)).status.code(), Code::kDeadline);
}

TEST_P(TransferTest, DeadlineNamesTheLastFailure) {
  start([](const SeenRequest&, Peer& peer) { peer.send(ScriptedServer::head(500, 4) + "oops"); });
  Request request = get(0, 10);
  request.deadline = system_clock().now() + 60ms;
  const Completion completion = transfer(std::move(request));
  EXPECT_EQ(completion.status.code(), Code::kDeadline);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("HTTP 500 oops"));
}

TEST_P(TransferTest, SlowFirstByteIsRetried) {
  options_.first_byte_timeout = 40ms;
  start([this](const SeenRequest& request, Peer& peer) {
    request.index == 0 ? peer.wait_for_client_to_leave() : server_->answer(request, peer);
  });
  const Completion completion = transfer(get(0, 10));
  expect_content(completion, 0, 10);
  EXPECT_EQ(completion.attempts, 2U);
  EXPECT_EQ(metric("store.timeouts"), 1);
}

TEST_P(TransferTest, StalledBodyIsRetried) {
  options_.progress_timeout = 40ms;
  start([this](const SeenRequest& request, Peer& peer) {
    if (request.index > 0) return server_->answer(request, peer);
    peer.send(ScriptedServer::head(206, 1000, "Content-Range: bytes 0-999/1048576\r\n") +
              "0123456789");
    peer.wait_for_client_to_leave();
  });
  const Completion completion = transfer(get(0, 1000));
  expect_content(completion, 0, 1000);
  EXPECT_EQ(completion.attempts, 2U);
}

TEST_P(TransferTest, SlowButSteadyBodyIsNotCutOff) {
  options_.clock = &clock_;
  std::counting_semaphore<> go(0);
  start([&](const SeenRequest& request, Peer& peer) {
    peer.send(ScriptedServer::head(206, 60, "Content-Range: bytes 0-59/1048576\r\n"));
    for (std::uint64_t i = 0; i < 6; ++i) {
      go.acquire();
      peer.send(server_->content(request.first + i * 10, request.first + i * 10 + 9));
    }
  });
  options_.default_timeout = 10min;
  Request request = get(0, 60);
  request.deadline = clock_.now() + 1h;
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  while (server_->request_count() == 0) std::this_thread::yield();
  Completion completion;
  for (int i = 0; i < 6; ++i) {
    go.release();
    // Long enough in all to exceed the 10 s of progress_timeout, never in one step.
    EXPECT_EQ(handle_->wait({&completion, 1}, system_clock().now() + 5ms), i < 5 ? 0U : 1U);
    if (i < 5) clock_.advance(2600ms);
  }
  expect_content(completion, 0, 60);
  EXPECT_EQ(completion.attempts, 1U);
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
  for (std::uint64_t tag : {5, 6}) mine.push_back(get(0, 10, tag));
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
  ASSERT_GE(order.size(), 2U);
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
  EXPECT_EQ(code_with([](auto&, auto& endpoint) { endpoint.use_tls = true; }), Code::kUnsupported);
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
