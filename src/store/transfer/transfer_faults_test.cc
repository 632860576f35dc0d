// What goes wrong on the way: wrong answers, lost connections, time running out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "base/log_capture.h"
#include "store/transfer/scripted_server.h"
#include "store/transfer/transfer_fixture.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using transfer::DeafPort;

class TransferFaultTest : public TransferTest {};

// --- answers that are wrong ---

struct WrongAnswer {
  const char* name;
  const char* answer;
  Code code;
  const char* message;
};

class WrongAnswerTest : public TransferTest {};

// None of them is anything that a sound server sends.
constexpr WrongAnswer kDoubtful[] = {
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
    {"other version",
     "HTTP/1.1 206 P\r\nContent-Length: 10\r\nETag: \"v2\"\r\nContent-Range: bytes 0-9/99\r\n\r\n"
     "0123456789",
     Code::kChanged, "now version \"v2\""},
    {"not modified", "HTTP/1.1 304 N\r\n\r\n", Code::kInternal, "HTTP 304"},
    {"redirect to nowhere",
     "HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: file:///etc/passwd\r\n\r\n", Code::kCorrupt,
     "file:///etc/passwd"},
    {"chunk without a size",
     "HTTP/1.1 206 P\r\nTransfer-Encoding: chunked\r\nContent-Range: bytes "
     "0-9/99\r\n\r\n-1\r\nabc\r\n",
     Code::kCorrupt, "chunk size"},
};

// The store's own word.
constexpr WrongAnswer kRefusals[] = {
    {"not found", "HTTP/1.1 404 N\r\nContent-Length: 7\r\n\r\nmissing", Code::kNotFound,
     "HTTP 404 missing"},
    {"denied", "HTTP/1.1 403 D\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
     Code::kDenied, "HTTP 403 no"},
    {"precondition", "HTTP/1.1 412 P\r\nContent-Length: 0\r\n\r\n", Code::kChanged, "HTTP 412"},
};

TEST_P(WrongAnswerTest, OnceIsAskedForAgainOnAnotherConnection) {
  for (const WrongAnswer& row : kDoubtful) {
    SCOPED_TRACE(row.name);
    start([this, &row](const SeenRequest& request, Peer& peer) {
      request.index == 0 ? peer.send(row.answer) : server_->answer(request, peer);
    });
    Request request = get(0, 10);
    request.etag = "\"v1\"";
    const Completion completion = transfer(std::move(request));
    expect_content(completion, 0, 10);
    EXPECT_EQ(completion.attempts, 2U);
    EXPECT_EQ(server_->connection_count(), 2U);
    handle_.reset();
  }
}

TEST_P(WrongAnswerTest, AgainAndAgainIsAnError) {
  for (const WrongAnswer& row : kDoubtful) {
    SCOPED_TRACE(row.name);
    start([&row](const SeenRequest&, Peer& peer) { peer.send(row.answer); });
    Request request = get(0, 10);
    request.etag = "\"v1\"";
    const Completion completion = transfer(std::move(request));
    EXPECT_EQ(completion.status.code(), row.code) << completion.status.message();
    EXPECT_THAT(text(completion.status.message()), HasSubstr(row.message));
    EXPECT_THAT(text(completion.status.message()),
                MatchesRegex("GET fake://object \\[0, 10\\): .*, attempt 3 of 10, [0-9]+ ms"));
    EXPECT_EQ(completion.length_bytes, 0U);
    EXPECT_EQ(server_->request_count(), 3U);
    EXPECT_EQ(server_->connection_count(), 3U);
    handle_.reset();
  }
}

TEST_P(WrongAnswerTest, RefusalsAreNotRetried) {
  for (const WrongAnswer& row : kRefusals) {
    SCOPED_TRACE(row.name);
    start([&row](const SeenRequest&, Peer& peer) { peer.send(row.answer); });
    const Completion completion = transfer(get(0, 10));
    EXPECT_EQ(completion.status.code(), row.code) << completion.status.message();
    EXPECT_THAT(text(completion.status.message()), HasSubstr(row.message));
    EXPECT_THAT(text(completion.status.message()),
                MatchesRegex("GET fake://object \\[0, 10\\): .*, attempt 1 of 10, [0-9]+ ms"));
    EXPECT_EQ(server_->request_count(), 1U);
    handle_.reset();
  }
}

TEST_P(WrongAnswerTest, AnAnswerTooManyIsNotTakenForTheNext) {
  // Whoever sends two answers to one request would be believed to speak of the next object.
  const std::string head =
      ScriptedServer::head(206, 5000, "Content-Range: bytes 0-4999/1048576\r\n");
  start([this, head](const SeenRequest& request, Peer& peer) {
    const std::string right = head + server_->content(0, 4999);
    request.connection == 0 ? peer.send(right + head + std::string(5000, 'x')) : peer.send(right);
  });
  for (int i = 0; i < 3; ++i) expect_content(transfer(get(0, 5000)), 0, 5000);
  EXPECT_EQ(server_->connection_count(), 2U);
}

TEST_P(WrongAnswerTest, CallsAreReadAgainWhenTheyMakeNoSense) {
  start([](const SeenRequest& request, Peer& peer) {
    peer.send(ScriptedServer::head(200, 4) + (request.index == 1 ? "good" : "wood"));
  });
  HttpCall call;
  call.what = "LIST thing";
  int reads = 0;
  const auto read = [&reads](const HttpAnswer& answer) -> Result<std::string> {
    ++reads;
    if (answer.body == "good") return answer.body;
    return Status(Code::kCorrupt, "no list");
  };
  const auto good = engine_->call(call, {}, read);
  ASSERT_TRUE(good) << good.error().message();
  EXPECT_EQ(*good, "good");
  EXPECT_EQ(reads, 2);
  EXPECT_EQ(server_->connection_count(), 2U);
  const auto bad = engine_->call(call, {}, read);
  EXPECT_EQ(bad.error().code(), Code::kCorrupt);
  EXPECT_EQ(bad.error().message(), "LIST thing: no list");
  EXPECT_EQ(reads, 5);
  call.is_idempotent = false;
  EXPECT_EQ(engine_->call(call, {}, read).error().code(), Code::kCorrupt);
  EXPECT_EQ(reads, 6);
}

INSTANTIATE_TEST_SUITE_P(Kinds, WrongAnswerTest,
                         testing::Values(PollerKind::kUring, PollerKind::kEpoll));

TEST_P(TransferFaultTest, ShortObjectIsFineWhenAllowed) {
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

TEST_P(TransferFaultTest, OtherVersionIsAChange) {
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

TEST_P(TransferFaultTest, ErrorAnswersKeepTheConnection) {
  start([](const SeenRequest&, Peer& peer) { peer.send(ScriptedServer::head(404, 3) + "abc"); });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(transfer(get(0, 10)).status.code(), Code::kNotFound);
  EXPECT_EQ(server_->connection_count(), 1U);
}

TEST_P(TransferFaultTest, EndlessErrorBodyIsCutOff) {
  start([](const SeenRequest&, Peer& peer) {
    peer.send("HTTP/1.1 404 N\r\n\r\n" + std::string(1 << 20, 'x'));
    peer.wait_for_client_to_leave();
  });
  EXPECT_EQ(transfer(get(0, 10)).status.code(), Code::kNotFound);
}

TEST_P(TransferFaultTest, WrongRequestsCompleteWithInvalidArgument) {
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

TEST_P(TransferFaultTest, ResetInsideTheBodyIsRetried) {
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

TEST_P(TransferFaultTest, TruncatedBodyIsRetriedAndReported) {
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

TEST_P(TransferFaultTest, ThrottledRequestSucceedsLater) {
  start([this](const SeenRequest& request, Peer& peer) {
    request.index < 2 ? peer.send(ScriptedServer::head(503, 8) + "SlowDown")
                      : server_->answer(request, peer);
  });
  const Completion completion = transfer(get(0, 1000));
  expect_content(completion, 0, 1000);
  EXPECT_EQ(completion.attempts, 3U);
  EXPECT_EQ(metric("store.throttles"), 2);
  EXPECT_EQ(server_->connection_count(), 1U);
  EXPECT_TRUE(completion.was_held_off);
  EXPECT_FALSE(transfer(get(0, 1000)).was_held_off);
}

TEST_P(TransferFaultTest, WhatIsRepeatedIsLoggedByStoreAndKind) {
  LogCapture log(LogLevel::kInfo);
  options_.url = "fake://store?sig=secret";
  start([this](const SeenRequest& request, Peer& peer) {
    if (request.index < 2) return peer.send(ScriptedServer::head(503, 8) + "SlowDown");
    if (request.index == 2) return peer.send(ScriptedServer::head(500, 0));
    server_->answer(request, peer);
  });
  expect_content(transfer(get(0, 1000)), 0, 1000);
  const auto lines = log.take();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(
      lines[0],
      MatchesRegex("store info: 2 requests to fake://store refused for their rate, and repeated "
                   "more slowly, in the last [0-9]+ s, last: GET fake://object \\[0, "
                   "1000\\): .*503.*, attempt 2 of 10, [0-9]+ ms"));
  EXPECT_THAT(lines[1],
              MatchesRegex("store info: 1 request to fake://store repeated after failures in "
                           "the last [0-9]+ s, last: GET .*, attempt 3 of 10, .*"));
  expect_content(transfer(get(0, 1000)), 0, 1000);
  EXPECT_THAT(log.take(), IsEmpty());
}

TEST_P(TransferFaultTest, RetryAfterIsHonoured) {
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
  stop_all();
}

TEST_P(TransferFaultTest, StaleConnectionIsReplacedWithoutAnAttempt) {
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

TEST_P(TransferFaultTest, IdleConnectionIsDroppedBeforeTheServerDoesIt) {
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
  stop_all();
}

TEST_P(TransferFaultTest, ConnectionThatTheServerClosedWhileIdleIsNotUsed) {
  options_.clock = &clock_;
  start([&](const SeenRequest& request, Peer& peer) {
    server_->answer(request, peer);
    peer.close();
  });
  expect_content(transfer(get(0, 10)), 0, 10);
  clock_.advance(1s);
  expect_content(transfer(get(0, 10)), 0, 10);
  EXPECT_EQ(server_->connection_count(), 2U);
}

TEST_P(TransferFaultTest, RefusedConnectIsReported) {
  options_.max_attempts = 2;
  const DeafPort deaf;
  start_engine(deaf.port());
  const Completion completion = transfer(get(0, 10));
  EXPECT_EQ(completion.status.code(), Code::kUnavailable);
  EXPECT_THAT(
      text(completion.status.message()),
      HasSubstr("connect to 127.0.0.1:" + std::to_string(deaf.port()) + ": connection refused"));
  EXPECT_GE(metric("store.connect_failures"), 2);
}

TEST_P(TransferFaultTest, AServerOutOfReachIsToldWhileItIsTried) {
  LogCapture log(LogLevel::kWarning);
  const DeafPort deaf;
  options_.url = "fake://store";
  start_engine(deaf.port());
  Request request = get(0, 10);
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  std::vector<std::string> lines;
  while (lines.empty()) {  // The request itself is still being tried.
    std::this_thread::yield();
    process_log().take([&](const LogLine& line) { lines.push_back(line.text); });
  }
  EXPECT_THAT(lines[0], MatchesRegex("1 request to fake://store found no server so far, .*: "
                                     "connection refused, attempt [2-9] of 10, [0-9]+ ms"));
  Completion completion;
  EXPECT_EQ(handle_->wait({&completion, 1}, system_clock().now()), 0U);
}

TEST_P(TransferFaultTest, UnknownHostIsNoMissingObject) {
  start_engine(80, "headrace.invalid");
  const Completion completion = transfer(get(0, 10));
  EXPECT_EQ(completion.status.code(), Code::kUnavailable);
  EXPECT_THAT(text(completion.status.message()),
              HasSubstr("cannot resolve host \"headrace.invalid\""));
}

// --- time ---

TEST_P(TransferFaultTest, ServerThatNeverAnswersEndsAtTheDeadline) {
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

TEST_P(TransferFaultTest, QueuedRequestEndsAtItsDeadlineToo) {
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

TEST_P(TransferFaultTest, DeadlineThatHasPassedEndsAtOnce) {
  start();
  EXPECT_EQ(read_within(-1s).status.code(), Code::kDeadline);
}

TEST_P(TransferFaultTest, DeadlineNamesTheLastFailure) {
  start([](const SeenRequest&, Peer& peer) { peer.send(ScriptedServer::head(500, 4) + "oops"); });
  const Completion completion = read_within(60ms);
  EXPECT_EQ(completion.status.code(), Code::kDeadline);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("HTTP 500 oops"));
}

TEST_P(TransferFaultTest, SlowFirstByteIsRetried) {
  options_.first_byte_timeout = 40ms;
  start([this](const SeenRequest& request, Peer& peer) {
    request.index == 0 ? peer.wait_for_client_to_leave() : server_->answer(request, peer);
  });
  const Completion completion = transfer(get(0, 10));
  expect_content(completion, 0, 10);
  EXPECT_EQ(completion.attempts, 2U);
  EXPECT_EQ(metric("store.timeouts"), 1);
}

TEST_P(TransferFaultTest, StalledBodyIsRetried) {
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

TEST_P(TransferFaultTest, SlowButSteadyBodyIsNotCutOff) {
  options_.clock = &clock_;
  std::counting_semaphore<> go(0), sent(0);
  start([&](const SeenRequest& request, Peer& peer) {
    peer.send(ScriptedServer::head(206, 60, "Content-Range: bytes 0-59/1048576\r\n"));
    for (std::uint64_t i = 0; i < 6; ++i) {
      go.acquire();
      peer.send(server_->content(request.first + i * 10, request.first + i * 10 + 9));
      sent.release();
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
    sent.acquire();
    // Long enough in all to exceed the 10 s of progress_timeout, never in one step.
    if (i == 5) break;
    EXPECT_EQ(handle_->wait({&completion, 1}, system_clock().now() + 5ms), 0U);
    clock_.advance(2600ms);
  }
  completion = take();
  expect_content(completion, 0, 60);
  EXPECT_EQ(completion.attempts, 1U);
  stop_all();
}

INSTANTIATE_TEST_SUITE_P(Kinds, TransferFaultTest,
                         testing::Values(PollerKind::kUring, PollerKind::kEpoll),
                         [](const auto& param_info) {
                           return param_info.param == PollerKind::kUring ? "Uring" : "Epoll";
                         });

}  // namespace
}  // namespace headrace
