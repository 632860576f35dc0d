// Random gets, puts, cancels, handles that come and go, and faults of every kind the scripted
// server knows, from a seed. Everything ends exactly once, with the right bytes or an error, and
// nothing is left. HEADRACE_SOAK_SECONDS runs it for that long, HEADRACE_SOAK_SEED from another
// seed.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <thread>

#include "base/random.h"
#include "store/transfer/scripted_server.h"
#include "store/transfer/transfer_fixture.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;

constexpr int kDefaultRequests = 400;

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

class SoakTest : public TransferTest {
 protected:
  /// Answers right in most cases. The fault of a request follows from the seed and its number.
  void answer(const SeenRequest& request, Peer& peer) {
    Random random(seed_ * 1'000'003 + request.index);
    const std::string range = "Content-Range: bytes " + std::to_string(request.first) + "-" +
                              std::to_string(request.last) + "/1048576\r\n";
    const std::uint64_t size = request.last - request.first + 1;
    switch (random.below(100)) {
      case 0:
        return peer.reset();
      case 1:
        return peer.close();
      case 2:
      case 3:
        return peer.send(ScriptedServer::head(503, 8) + "SlowDown");
      case 4:
        return peer.send(ScriptedServer::head(500, 4) + "oops");
      case 5:
        if (is_get(request)) peer.send(ScriptedServer::head(206, size, range) + "x");
        return peer.reset();
      case 6:
        if (is_get(request)) peer.send(ScriptedServer::head(206, size, range));
        return peer.close();
      case 7:
        std::this_thread::sleep_for(std::chrono::milliseconds(random.below(30)));
        return server_->answer(request, peer);
      case 8:
        if (is_get(request)) return send_slowly(range, size, request, peer);
        [[fallthrough]];
      default:
        return server_->answer(request, peer);
    }
  }
  static bool is_get(const SeenRequest& request) { return request.head.substr(0, 3) == "GET"; }
  void send_slowly(const std::string& range, std::uint64_t size, const SeenRequest& request,
                   Peer& peer) {
    const std::string all =
        ScriptedServer::head(206, size, range) + server_->content(request.first, request.last);
    const std::size_t half = all.size() / 2;
    peer.send(all.substr(0, half));
    std::this_thread::sleep_for(3ms);
    peer.send(all.substr(half));
  }

  struct Sent {
    std::uint64_t offset_bytes = 0;
    std::uint64_t length_bytes = 0;
    bool is_put = false;
    bool is_cancelled = false;
  };
  Request random_request(Random& random, std::uint64_t tag) {
    Sent sent;
    sent.is_put = random.below(8) == 0;
    sent.length_bytes = 1 + random.below(random.below(4) == 0 ? 200'000 : 3'000);
    sent.offset_bytes = random.below((1 << 20) - sent.length_bytes);
    Request request =
        sent.is_put ? put(sent.length_bytes) : get(sent.offset_bytes, sent.length_bytes);
    request.tag = tag;
    if (random.below(50) == 0)
      request.deadline = system_clock().now() + std::chrono::microseconds(random.below(5'000));
    out_[tag] = sent;
    return request;
  }
  void take_some(TimePoint until) {
    Completion completions[16];
    const std::size_t count = handle_->wait(completions, until);
    for (std::size_t i = 0; i < count; ++i) {
      const auto sent = out_.find(completions[i].tag);
      ASSERT_NE(sent, out_.end()) << "an unknown request, or one that ended twice";
      check(completions[i], sent->second);
      out_.erase(sent);
    }
  }
  void check(const Completion& completion, const Sent& sent) {
    EXPECT_TRUE(completion.slab);
    const Code code = completion.status.code();
    if (code == Code::kOk) {
      ++ok_count_;
      if (!sent.is_put) expect_content(completion, sent.offset_bytes, sent.length_bytes);
      return;
    }
    EXPECT_TRUE(code == Code::kCancelled || code == Code::kDeadline || code == Code::kUnavailable ||
                code == Code::kThrottled)
        << completion.status.message();
    if (code == Code::kCancelled) {
      EXPECT_TRUE(sent.is_cancelled);
    }
  }

  std::uint64_t seed_ = 1;
  std::map<std::uint64_t, Sent> out_;
  std::uint64_t ok_count_ = 0;
};

TEST_P(SoakTest, EverythingEndsOnceAndNothingIsLeft) {
  seed_ = number_from("HEADRACE_SOAK_SEED", 1);
  const std::uint64_t seconds = number_from("HEADRACE_SOAK_SECONDS", 0);
  const TimePoint until = system_clock().now() + std::chrono::seconds(seconds);
  options_.max_in_flight = 16;
  options_.reactor_count = 2;
  options_.max_attempts = 6;
  start([this](const SeenRequest& request, Peer& peer) { answer(request, peer); });
  Random random(seed_);
  std::uint64_t tag = 0;
  while (tag < kDefaultRequests || system_clock().now() < until) {
    if (out_.size() < 48 && random.below(4) != 0) {
      Request request = random_request(random, ++tag);
      if (handle_->submit({&request, 1}) == 0) out_.erase(tag);
    } else {
      take_some(system_clock().now() + 1ms);
    }
    if (!out_.empty() && random.below(20) == 0) {
      const auto victim = out_.lower_bound(random.below(tag) + 1);
      if (victim != out_.end()) {
        victim->second.is_cancelled = true;
        handle_->cancel(victim->first);
      }
    }
    if (random.below(300) == 0) {  // a consumer goes and leaves everything behind
      handle_ = engine_->new_handle();
      out_.clear();
    }
    if (HasFatalFailure()) return;
  }
  while (!out_.empty()) {
    const std::size_t before = out_.size();
    take_some(system_clock().now() + 30s);
    if (HasFatalFailure()) return;
    ASSERT_LT(out_.size(), before) << "a request never ends";
  }
  EXPECT_GT(ok_count_, tag / 3);
  stop_all();
  EXPECT_EQ(pool_->used_bytes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SoakTest, testing::Values(PollerKind::kUring, PollerKind::kEpoll),
                         [](const auto& param_info) {
                           return param_info.param == PollerKind::kUring ? "Uring" : "Epoll";
                         });

}  // namespace
}  // namespace headrace
