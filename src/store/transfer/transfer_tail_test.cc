// Late answers and their second attempts, the limit of requests in flight, dead addresses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <semaphore>
#include <thread>

#include "base/fd.h"
#include "base/running_clock.h"
#include "base/sanitizer.h"
#include "base/temporary_directory.h"
#include "net/dead_address.h"
#include "net/resolver.h"
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
  /// An engine that has seen nothing but quick answers, on a clock that stands still.
  void start_warm(ScriptedServer::Script script) {
    options_.clock = &clock_;
    start(std::move(script));
    warm_up();
  }
  void submit_special(std::uint64_t tag = 0) {
    Request request = get(kSpecial, 1000, tag);
    ASSERT_EQ(handle_->submit({&request, 1}), 1U);
    is_sent_.acquire();
  }
  /// Counts a special request before the test learns of it. Returns how many came before.
  int count_special() {
    const int before = special_count_++;
    is_sent_.release();
    return before;
  }
  /// A get that waits becomes late.
  void make_late() { clock_.advance(25ms); }
  /// A right answer, a byte at a time, while drops_ come.
  void drip(const SeenRequest& request, Peer& peer) {
    peer.send(ScriptedServer::head(206, 1000,
                                   "ETag: \"v1\"\r\nContent-Range: bytes " +
                                       std::to_string(request.first) + "-" +
                                       std::to_string(request.last) + "/1048576\r\n"));
    is_sent_.release();
    // The drops are for the newest attempt: one that was given up must not take them.
    ++living_drips_;
    const int number = ++drip_count_;
    for (std::uint64_t i = request.first; i < request.first + 1000 && !is_over_; ++i) {
      drops_.acquire();
      if (number != drip_count_) {
        drops_.release();
        break;
      }
      peer.send(server_->content(i, i));
      ++fallen_count_;
    }
    --living_drips_;
    peer.close();
  }
  void answer_special(const SeenRequest& request, Peer& peer) {
    server_->answer(request, peer);
    ++answer_count_;
  }
  /// Only the first answer to the special request drips.
  void start_warm_with_one_drip() {
    start_warm([this](const SeenRequest& request, Peer& peer) {
      if (!is_special(request)) return server_->answer(request, peer);
      special_count_++ > 0 ? answer_special(request, peer) : drip(request, peer);
    });
  }
  /// Lets a drop fall, and then `time` pass. Before, the server has answered every attempt, or
  /// drips: a busy machine is no slow store. `is_over`: there is nothing more to wait for.
  void let_a_drop_fall(std::chrono::milliseconds time, const std::function<bool()>& is_over) {
    const auto has_answered = [&] {
      const auto attempts = static_cast<std::size_t>(metric("store.attempts"));
      return server_->request_count() >= attempts && answer_count_ + drip_count_ >= special_count_;
    };
    while (!has_answered() && !is_over()) std::this_thread::yield();
    const int fallen = fallen_count_;
    drops_.release();
    while (living_drips_ > 0 && fallen_count_ == fallen && !is_over()) std::this_thread::yield();
    clock_.advance(time);
    // So that the reactor has looked at what its timers are for.
    const double waits = metric("store.reactor_waits");
    while (metric("store.reactor_waits") < waits + 2) std::this_thread::yield();
  }
  /// Lets drops fall and time pass until the completion comes.
  Completion take_with_drips(std::chrono::milliseconds step) {
    Completion completion;
    bool has_come = false;
    const auto is_over = [&] {
      has_come = has_come || handle_->wait({&completion, 1}, system_clock().now()) == 1;
      return has_come;
    };
    for (int i = 0; i < 1000 && !is_over(); ++i) let_a_drop_fall(step, is_over);
    EXPECT_TRUE(has_come) << "no completion came";
    is_over_ = true;
    drops_.release(100);
    return completion;
  }
  /// Reads what drips once, on a clock that goes on in such steps.
  void read_past_one_drip(std::chrono::milliseconds step, std::chrono::seconds within) {
    start_warm_with_one_drip();
    const TimePoint start = clock_.now();
    submit_special();
    const Completion completion = take_with_drips(step);
    expect_content(completion, kSpecial, 1000);
    // The second attempt may be late as well, on a clock that runs ahead of the server.
    EXPECT_GE(completion.attempts, 2U);
    EXPECT_LT(clock_.now() - start, within);
  }
  static bool is_special(const SeenRequest& request) { return request.first >= kSpecial; }

  /// Of 128 requests of so many bytes, `count` are sent before the first is answered.
  void expect_first_wave(int count, std::uint64_t length_bytes) {
    options_.max_in_flight = 128;
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
    for (int i = 0; i < 128; ++i) requests.push_back(get(kSpecial, length_bytes));
    ASSERT_EQ(handle_->submit(requests), 128U);
    for (int i = 0; i < count; ++i) is_sent.acquire();
    EXPECT_EQ(metric("store.concurrency_limit"), 32);
    EXPECT_FALSE(is_sent.try_acquire_for(10ms));
    go.release(1000);
    for (int i = 0; i < 128; ++i) expect_content(take(), kSpecial, length_bytes);
    stop_all();
  }
  std::atomic<int> special_count_{0};
  std::atomic<int> drip_count_{0};
  std::atomic<int> living_drips_{0};
  std::atomic<int> fallen_count_{0};
  std::atomic<int> answer_count_{0};      // special requests that were answered and did not drip
  std::counting_semaphore<> is_sent_{0};  // special requests that have reached the server
  std::counting_semaphore<> go_{0};
  std::counting_semaphore<> drops_{0};
  std::atomic<bool> is_over_{false};
};

TEST_P(TailTest, LateGetIsHedgedOnAnotherConnection) {
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    count_special() == 0 ? peer.wait_for_client_to_leave() : server_->answer(request, peer);
  });
  submit_special();
  make_late();
  const Completion completion = take();
  expect_content(completion, kSpecial, 1000);
  EXPECT_EQ(completion.attempts, 2U);
  EXPECT_EQ(metric("store.hedges"), 1);
  EXPECT_EQ(metric("store.hedges_won"), 1);
  EXPECT_EQ(metric("store.retries"), 0);
  EXPECT_GE(metric("store.first_byte_max_us"), 25'000);  // Since the first attempt was sent.
  EXPECT_GE(metric("store.answer_wait_us"), 25'000);
  EXPECT_GE(metric("store.answered_gets"), 2);  // It and those before it, which were quick.
  EXPECT_LT(metric("store.first_byte_p50_us"), 25'000);
  stop_all();
}

TEST_P(TailTest, TheLastOfManyAreHedgedAlthoughAllThatWaitAreLate) {
  constexpr int kLate = 4;
  options_.max_in_flight = 16;
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    count_special() < kLate ? peer.wait_for_client_to_leave() : server_->answer(request, peer);
  });
  for (int i = 0; i < kLate; ++i) submit_special();
  warm_up(10 * kLate);  // While they wait.
  make_late();
  for (int i = 0; i < kLate; ++i) expect_content(take(), kSpecial, 1000);
  EXPECT_EQ(metric("store.hedges_won"), kLate);
  EXPECT_EQ(metric("store.retries"), 0);
  stop_all();
}

TEST_P(TailTest, FirstAttemptMayStillWin) {
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    if (count_special() > 0) return peer.wait_for_client_to_leave();
    go_.acquire();
    server_->answer(request, peer);
  });
  submit_special();
  make_late();
  is_sent_.acquire();
  go_.release();
  expect_content(take(), kSpecial, 1000);
  EXPECT_EQ(metric("store.hedges"), 1);
  EXPECT_EQ(metric("store.hedges_won"), 0);
  stop_all();
}

TEST_P(TailTest, FailureOfOneAttemptLeavesTheOther) {
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    if (count_special() > 0) return peer.send(ScriptedServer::head(503, 8) + "SlowDown");
    go_.acquire();
    server_->answer(request, peer);
  });
  submit_special();
  make_late();
  while (metric("store.throttles") == 0) std::this_thread::yield();
  go_.release();
  expect_content(take(), kSpecial, 1000);
  EXPECT_EQ(metric("store.retries"), 0);
  stop_all();
}

TEST_P(TailTest, BothAttemptsFailingIsARetry) {
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    if (count_special() >= 2) return server_->answer(request, peer);
    go_.acquire();
    peer.reset();
  });
  submit_special();
  make_late();
  is_sent_.acquire();
  go_.release(2);
  Completion completion;
  while (handle_->wait({&completion, 1}, system_clock().now() + 2ms) == 0) clock_.advance(1ms);
  expect_content(completion, kSpecial, 1000);
  EXPECT_GE(metric("store.hedges"), 1);  // the next attempt may be late as well
  stop_all();
}

TEST_P(TailTest, CancelEndsBothAttempts) {
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    is_sent_.release();
    peer.wait_for_client_to_leave();
  });
  submit_special(7);
  make_late();
  is_sent_.acquire();
  handle_->cancel(7);
  EXPECT_EQ(take().status.code(), Code::kCancelled);
  expect_content(transfer(get(0, 100)), 0, 100);
  stop_all();
}

TEST_P(TailTest, DeadlineThatPassesWhileLateIsTheEnd) {
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    count_special() == 0 ? peer.wait_for_client_to_leave() : server_->answer(request, peer);
  });
  for (int i = 0; i < 20; ++i) {
    special_count_ = 0;
    Request request = get(kSpecial, 1000);
    request.deadline = clock_.now() + 20ms;
    ASSERT_EQ(handle_->submit({&request, 1}), 1U);
    is_sent_.acquire();
    make_late();  // and past the deadline, in one step
    ASSERT_EQ(take().status.code(), Code::kDeadline) << i;
  }
  EXPECT_EQ(metric("store.hedges"), 0);
  stop_all();
}

TEST_P(TailTest, CancelOfALateGetStartsNothing) {
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    count_special() == 0 ? peer.wait_for_client_to_leave() : server_->answer(request, peer);
  });
  for (std::uint64_t tag = 100; tag < 120; ++tag) {
    special_count_ = 0;
    submit_special(tag);
    handle_->cancel(tag);
    make_late();
    Completion completion;
    while (handle_->wait({&completion, 1}, system_clock().now() + 2ms) == 0) clock_.advance(1ms);
    ASSERT_EQ(completion.status.code(), Code::kCancelled);
  }
  stop_all();
}

TEST_P(TailTest, StoresWordOnOneAttemptEndsBoth) {
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    if (count_special() == 0) return peer.wait_for_client_to_leave();
    peer.send(ScriptedServer::head(404, 7) + "no such");
  });
  submit_special();
  make_late();
  const Completion completion = take();
  EXPECT_EQ(completion.status.code(), Code::kNotFound);
  EXPECT_NE(completion.first_byte, TimePoint{});
  expect_content(transfer(get(0, 100)), 0, 100);
  stop_all();
}

TEST_P(TailTest, RedirectOfOneAttemptIsFollowed) {
  ScriptedServer other;
  start_warm([&](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    if (count_special() == 0) return peer.wait_for_client_to_leave();
    peer.send(ScriptedServer::head(
        307, 0, "Location: http://127.0.0.1:" + std::to_string(other.port()) + "/x\r\n"));
  });
  submit_special();
  make_late();
  expect_content(take(), kSpecial, 1000);
  EXPECT_EQ(metric("store.redirects"), 1);
  EXPECT_EQ(other.request_count(), 1U);
  stop_all();
}

// --- answers that drip ---

TEST_P(TailTest, DripThatIsSlowerThanUsualTakesAHedge) {
  read_past_one_drip(50ms, 2s);
  EXPECT_GE(metric("store.hedges"), 1);
  EXPECT_EQ(metric("store.retries"), 0);
  stop_all();
}

TEST_P(TailTest, DripIsRetriedWithoutAHedgeToSpend) {
  options_.hedge_fraction = 0;
  read_past_one_drip(100ms, 5s);
  EXPECT_GE(metric("store.retries"), 1);
  EXPECT_EQ(metric("store.hedges"), 0);
  stop_all();
}

TEST_P(TailTest, FirstDripOfAStoreIsRetriedWithinItsDeadline) {
  options_.clock = &clock_;
  start([this](const SeenRequest& request, Peer& peer) {
    special_count_++ > 0 ? answer_special(request, peer) : drip(request, peer);
  });
  options_.default_timeout = 60s;
  const TimePoint start = clock_.now();
  Request request = get(kSpecial, 1000);
  request.deadline = start + 60s;
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  is_sent_.acquire();
  expect_content(take_with_drips(1s), kSpecial, 1000);
  EXPECT_LT(clock_.now() - start, 20s);
  stop_all();
}

TEST_P(TailTest, DrippingAnswerToACallIsAskedForAgain) {
  options_.clock = &clock_;
  start([this](const SeenRequest& request, Peer& peer) {
    if (special_count_++ == 0) return drip(request, peer);
    peer.send(ScriptedServer::head(200, 4) + "good");
    ++answer_count_;
  });
  const TimePoint start = clock_.now();
  std::atomic<bool> has_ended{false};
  std::thread caller([&] {
    HttpCall call;
    call.what = "LIST thing";
    auto answer = engine_->call(call);
    has_ended = true;
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(answer->body, "good");
  });
  is_sent_.acquire();
  for (int i = 0; i < 100 && !has_ended; ++i) let_a_drop_fall(1s, [&] { return has_ended.load(); });
  is_over_ = true;
  drops_.release(1000);
  caller.join();
  EXPECT_LT(clock_.now() - start, 60s);
  stop_all();
}

TEST_P(TailTest, ADripThatLastsIsAnErrorWithinTheDeadline) {
  options_.hedge_fraction = 0;
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (!is_special(request)) return server_->answer(request, peer);
    ++special_count_;
    drip(request, peer);
  });
  Request request = get(kSpecial, 1000);
  const TimePoint deadline = request.deadline = clock_.now() + 30s;
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  is_sent_.acquire();
  const Completion completion = take_with_drips(100ms);
  EXPECT_EQ(completion.status.code(), Code::kDeadline);
  EXPECT_THAT(text(completion.status.message()), HasSubstr("of 1000 bytes in"));
  EXPECT_GE(completion.attempts, 3U);
  EXPECT_LE(completion.attempts, 5U) << "each may take twice as long as the one before";
  EXPECT_LE(clock_.now(), deadline + 200ms);
  stop_all();
}

TEST_P(TailTest, RedirectsGiveNoShareOfHedges) {
  // 200 gets earn 0.8 hedges; counted at each of their hops they would earn 4.8.
  options_.hedge_fraction = 0.004;
  start_warm([this](const SeenRequest& request, Peer& peer) {
    const bool is_last = request.head.find("GET /4 ") != std::string::npos;
    const auto hop = static_cast<char>(request.head[5] == 'o' ? '0' : request.head[5] + 1);
    if (!is_special(request) && !is_last)
      return peer.send(ScriptedServer::head(307, 0, std::string("Location: /") + hop + "\r\n"));
    if (is_special(request)) {
      is_sent_.release();
      go_.acquire();
    }
    server_->answer(request, peer);
  });
  EXPECT_EQ(metric("store.redirects"), 1000);
  submit_special();
  make_late();
  Completion none;
  EXPECT_EQ(handle_->wait({&none, 1}, system_clock().now() + 20ms), 0U);
  EXPECT_EQ(metric("store.hedges"), 0);
  go_.release();
  expect_content(take(), kSpecial, 1000);
  stop_all();
}

TEST_P(TailTest, OutageIsNotHedged) {
  options_.max_in_flight = 32;
  options_.is_adaptive = false;
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (is_special(request)) {
      is_sent_.release();
      go_.acquire();
    }
    server_->answer(request, peer);
  });
  std::vector<Request> requests;
  for (int i = 0; i < 32; ++i) requests.push_back(get(kSpecial, 1000));
  ASSERT_EQ(handle_->submit(requests), 32U);
  for (int i = 0; i < 32; ++i) is_sent_.acquire();
  make_late();
  Completion none;
  EXPECT_EQ(handle_->wait({&none, 1}, system_clock().now() + 20ms), 0U);
  EXPECT_EQ(metric("store.hedges"), 0);
  go_.release(1000);
  for (int i = 0; i < 32; ++i) expect_content(take(), kSpecial, 1000);
  stop_all();
}

TEST_P(TailTest, PutsAreNeverHedged) {
  start_warm([this](const SeenRequest& request, Peer& peer) {
    if (request.head.substr(0, 3) == "PUT") {
      is_sent_.release();
      go_.acquire();
    }
    server_->answer(request, peer);
  });
  Request request = put(1000);
  ASSERT_EQ(handle_->submit({&request, 1}), 1U);
  is_sent_.acquire();
  make_late();
  Completion none;
  EXPECT_EQ(handle_->wait({&none, 1}, system_clock().now() + 20ms), 0U);
  go_.release();
  EXPECT_TRUE(take().status.ok());
  EXPECT_EQ(metric("store.hedges"), 0);
  stop_all();
}

TEST_P(TailTest, LimitStartsLowAndGrows) { expect_first_wave(32, 100'000); }

TEST_P(TailTest, OfSmallRequestsTwiceAsManyStart) { expect_first_wave(64, 1000); }

TEST_P(TailTest, NameThatNobodyKnowsIsToldSoon) {
  std::atomic<int> look_ups{0};
  options_.resolver = [&](const std::string&) -> Result<std::vector<std::string>> {
    ++look_ups;
    return Status(Code::kNotFound, "no such name");
  };
  start_engine(80, "mistyped.example");
  EXPECT_EQ(transfer(get(0, 1000)).status.code(), Code::kUnavailable);
  EXPECT_EQ(look_ups.load(), 6);
  stop_all();
}

/// The system's clock, which runs ahead at a chosen question of a reactor: as if its turn had taken
/// so long there.
class LeapingClock final : public RunningClock {
 public:
  TimePoint now() const noexcept override {
    if (questions_ > 0 && is_reactor() && --questions_ == 0) {
      is_leaping_.release();
      go_on_.acquire();
      ahead_ = 3h;
    }
    return system_clock().now() + ahead_.load();
  }
  std::chrono::sys_seconds wall_now() const noexcept override { return system_clock().wall_now(); }
  void leap_at(int question) noexcept { questions_ = question; }
  void wait_for_leap() noexcept { is_leaping_.acquire(); }
  void go_on() noexcept { go_on_.release(); }

 private:
  static bool is_reactor() noexcept {
    char name[16] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof(name));
    return std::string_view(name).starts_with("hr-net");
  }
  mutable std::atomic<int> questions_ = 0;
  mutable std::atomic<std::chrono::nanoseconds> ahead_ = {};
  mutable std::binary_semaphore is_leaping_{0};
  mutable std::binary_semaphore go_on_{0};
};

TEST_P(TailTest, AReactorThatWasAwayForLongMakesNoTimeouts) {
  // Its questions of a turn: after the poll, at the beginning of the next turn, before the next
  // poll.
  for (const int question : {1, 2, 3}) {
    LeapingClock clock;
    options_.first_byte_timeout = 1h;
    options_.clock = &clock;
    start([&](const SeenRequest& request, Peer& peer) {
      const std::string body = server_->content(request.first, request.last);
      clock.leap_at(question);
      peer.send(ScriptedServer::head(206, body.size(),
                                     "ETag: \"v1\"\r\nContent-Range: bytes " +
                                         std::to_string(request.first) + "-" +
                                         std::to_string(request.last) + "/1048576\r\n"));
      clock.wait_for_leap();
      peer.send(body);  // It waits in the kernel when the reactor looks again.
      clock.go_on();
    });
    Request request = get(0, 1000);
    request.deadline = clock.now() + 2h;
    const Completion completion = transfer(std::move(request));
    EXPECT_TRUE(completion.status.ok()) << question << ": " << completion.status.message();
    EXPECT_EQ(completion.attempts, 1U) << question;
    EXPECT_EQ(metric("store.timeouts"), 0) << question;
    stop_all();
  }
}

// ThreadSanitizer supports no threads in a child of a process that has some.
#if !defined(HEADRACE_HAS_THREAD_SANITIZER)
TEST_P(TailTest, ProcessesShareWhatTheyKnow) {
  const TemporaryDirectory directory;
  options_.control_directory = directory.path();
  start();
  handle_.reset();
  engine_.reset();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd ended(ends[0]);
  const pid_t child = ::fork();
  // Both are at work until they have seen each other, the child also until it is killed.
  const auto work_until = [&](const auto& is_over) {
    for (int i = 0; i < 20'000 && !is_over(); ++i)
      if (!transfer(get(0, 100)).status.ok()) return false;
    return is_over();
  };
  const auto has_company = [&] { return metric("store.sharing_processes") == 2; };
  start_engine(server_->port());
  if (child == 0) {
    const bool has_seen = work_until(has_company);
    static_cast<void>(!::write(ends[1], has_seen ? "+" : "-", 1));
    work_until([] { return false; });
    ::_exit(0);
  }
  ::close(ends[1]);
  EXPECT_TRUE(work_until(has_company));
  EXPECT_EQ(metric("store.sharing_failures"), 0);
  char seen = 0;
  EXPECT_EQ(::read(ended.get(), &seen, 1), 1);
  EXPECT_EQ(seen, '+');
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  options_.control_directory = directory.path() + "/no/such/place";
  start();
  warm_up(5);
  EXPECT_EQ(metric("store.sharing_failures"), 1);
}
#endif

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

TEST_P(TailTest, DeadAddressCostsNoConnectTimeoutPerRequest) {
  start();
  const DeadAddress dead(server_->port());
  if (!dead.is_there()) GTEST_SKIP() << "no 127.0.0.2";
  options_.resolver = [](const std::string&) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{"127.0.0.2", "127.0.0.1"};
  };
  options_.is_adaptive = false;
  start_engine(server_->port(), "three-addresses.example");
  const TimePoint before = system_clock().now();
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(get(0, 1000));
  ASSERT_EQ(handle_->submit(requests), 12U);
  for (int i = 0; i < 12; ++i) {
    const Completion completion = take();
    expect_content(completion, 0, 1000);
    EXPECT_EQ(completion.attempts, 1U);
  }
  EXPECT_LT(system_clock().now() - before, 2s);  // one connect_timeout is 3 s
  EXPECT_GE(metric("store.connect_failures"), 1);
}

TEST_P(TailTest, NameThatDoesNotResolveForAWhileDelaysOnly) {
  server_ = std::make_unique<ScriptedServer>();
  std::atomic<int> look_ups{0};
  options_.resolver = [&](const std::string&) -> Result<std::vector<std::string>> {
    if (look_ups == 0) return look_ups++, Status(Code::kUnavailable, "no name server answers");
    if (look_ups == 1) return look_ups++, Status(Code::kNotFound, "no such name");
    ++look_ups;
    return std::vector<std::string>{"127.0.0.1"};
  };
  start_engine(server_->port(), "late.example");
  expect_content(transfer(get(0, 1000)), 0, 1000);
  EXPECT_EQ(look_ups.load(), 3);
  stop_all();
}

// ThreadSanitizer supports no threads in a child of a process that has some.
#if !defined(HEADRACE_HAS_THREAD_SANITIZER)
/// The system's clock, run ahead by another process: as if this one had been stopped for so long.
class SharedClock final : public RunningClock {
 public:
  static constexpr std::size_t kBytes = sizeof(std::atomic<std::int64_t>);
  SharedClock()
      : ahead_ns_(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  SharedClock(const SharedClock&) = delete;
  SharedClock& operator=(const SharedClock&) = delete;
  ~SharedClock() override { ::munmap(ahead_ns_, kBytes); }
  TimePoint now() const noexcept override {
    return system_clock().now() + std::chrono::nanoseconds(ahead().load());
  }
  std::chrono::sys_seconds wall_now() const noexcept override { return system_clock().wall_now(); }
  void advance(std::chrono::nanoseconds by) noexcept { ahead().fetch_add(by.count()); }

 private:
  std::atomic<std::int64_t>& ahead() const noexcept {
    return *static_cast<std::atomic<std::int64_t>*>(ahead_ns_);
  }
  void* const ahead_ns_;
};

TEST_P(TailTest, StoppedAndContinuedProcessMakesNoTimeouts) {
  std::binary_semaphore is_sent(0);
  std::binary_semaphore go(0);
  std::binary_semaphore is_answered(0);
  start([&](const SeenRequest& request, Peer& peer) {
    is_sent.release();
    go.acquire();
    server_->answer(request, peer);
    is_answered.release();
  });
  handle_.reset();
  engine_.reset();
  SharedClock clock;
  const pid_t child = ::fork();
  if (child == 0) {
    // So long that a busy machine stops it before.
    options_.first_byte_timeout = 1h;
    options_.clock = &clock;
    start_engine(server_->port());
    Request request = get(0, 1000);
    request.deadline = clock.now() + 2h;
    EXPECT_EQ(handle_->submit({&request, 1}), 1U);
    Completion completion;
    const bool has_come = handle_->wait({&completion, 1}, clock.now() + 100h) == 1;
    const bool is_good = has_come && completion.status.ok() && completion.attempts == 1;
    ::_exit(is_good && metric("store.timeouts") == 0 ? 0 : 1);
  }
  is_sent.acquire();
  ::kill(child, SIGSTOP);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  go.release();
  is_answered.acquire();  // The answer waits for it in the kernel.
  clock.advance(3h);      // longer than both limits of the request
  ::kill(child, SIGCONT);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  stop_all();
}
#endif

INSTANTIATE_TEST_SUITE_P(Kinds, TailTest, testing::Values(PollerKind::kUring, PollerKind::kEpoll),
                         [](const auto& param_info) {
                           return param_info.param == PollerKind::kUring ? "Uring" : "Epoll";
                         });

}  // namespace
}  // namespace headrace
