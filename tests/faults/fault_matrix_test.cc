// The fault matrix: each row a fault of a store, injected by the simulator from a seed. Always:
// right bytes or the right error, before the deadline, one end per request, all memory back.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "faults/fault_world.h"

extern char** environ;

namespace headrace::faults {
namespace {

class FaultMatrix : public ::testing::TestWithParam<PollerKind> {
 protected:
  void start(const SimOptions& options) {
    world_ = std::make_unique<World>(options);
    ASSERT_NE(world_->server, nullptr);
    options_ = world_->options(GetParam());
  }
  void start(const SimBehaviour& behaviour) {
    SimOptions options;
    options.behaviour = behaviour;
    options.seed = 7;
    start(options);
  }
  void open() {
    store_ = world_->open(options_);
    ASSERT_NE(store_, nullptr);
  }
  Outcomes run(RangeWorkload::Shape shape = {}, const std::function<void(std::size_t)>& each = {}) {
    if (store_ == nullptr) open();
    if (store_ == nullptr) return {};
    return RangeWorkload(*store_, world_->keys, std::move(shape)).run(each);
  }
  void expect_all_right(const Outcomes& outcomes) {
    EXPECT_EQ(outcomes.failed(), 0U) << outcomes.first_failure;
    EXPECT_GT(outcomes.ok, 0U);
  }

  std::unique_ptr<World> world_;
  StoreOptions options_;
  std::unique_ptr<Store> store_;
};

TEST_P(FaultMatrix, TwoPercentSlowDown) {
  start(SimBehaviour{.throttle_rate = 0.02});
  expect_all_right(run());
  EXPECT_GT(metric_of(*store_, "store.retries"), 0);
  EXPECT_GT(metric_of(*store_, "store.throttles"), 0);
}

TEST_P(FaultMatrix, OnePercentOfFirstBytesLate) {
  start(SimBehaviour{.slow_first_byte_rate = 0.01, .slow_first_byte_ms = 5000});
  RangeWorkload::Shape shape;
  shape.count = 2000;
  expect_all_right(run(shape));
  EXPECT_GT(metric_of(*store_, "store.hedges_won"), 0);
  EXPECT_LE(metric_of(*store_, "store.hedges"), 0.02 * 2000 + 32);
}

TEST_P(FaultMatrix, ResetsInMidBody) {
  start(SimBehaviour{.reset_rate = 0.05});
  expect_all_right(run());
  EXPECT_GT(metric_of(*store_, "store.retries"), 0);
}

TEST_P(FaultMatrix, ConnectionsDroppedInsteadOfAnswers) {
  start(SimBehaviour{.drop_rate = 0.05});
  expect_all_right(run());
}

TEST_P(FaultMatrix, Truncation) {
  start(SimBehaviour{.truncate_rate = 0.05});
  expect_all_right(run());
  EXPECT_GT(metric_of(*store_, "store.retries"), 0);
}

TEST_P(FaultMatrix, BodiesThatStall) {
  start(SimBehaviour{.stall_rate = 0.02, .stall_ms = 600'000});
  options_.progress_timeout = std::chrono::milliseconds(300);
  expect_all_right(run());
  EXPECT_GT(metric_of(*store_, "store.timeouts"), 0);
}

TEST_P(FaultMatrix, CorruptBytesAreFoundByTheStoresChecksum) {
  start(SimBehaviour{});
  open();
  // Uploads leave their checksum with the object; files that merely lie there have none.
  auto pool = *SlabPool::create({});
  for (const std::string& key : world_->keys) {
    std::string bytes(kObjectBytes, '\0');
    fill(key, 0, std::as_writable_bytes(std::span(bytes)));
    const auto written = write_object(*store_, *pool, key, bytes);
    ASSERT_TRUE(written) << written.error().message();
  }
  SimBehaviour behaviour;
  behaviour.corrupt_rate = 0.2;
  ASSERT_TRUE(world_->server->set_behaviour(behaviour).ok());
  RangeWorkload::Shape shape;
  shape.count = 60;
  shape.in_flight = 8;
  shape.whole_objects = true;
  const Outcomes outcomes = run(shape);
  // A fifth of a fifth and so on stays corrupt through all attempts: an error then, never bad
  // bytes.
  EXPECT_EQ(outcomes.failed(), outcomes.count(Code::kCorrupt)) << outcomes.first_failure;
  EXPECT_GT(outcomes.ok, 40U);
  EXPECT_GT(outcomes.most_attempts, 1U) << "nothing was found to be corrupt";
}

TEST_P(FaultMatrix, WrongContentRange) {
  start(SimBehaviour{.wrong_range_rate = 0.05});
  const Outcomes outcomes = run();
  EXPECT_EQ(outcomes.failed(), outcomes.count(Code::kCorrupt)) << outcomes.first_failure;
  EXPECT_GT(outcomes.ok, 300U);
}

TEST_P(FaultMatrix, ChangedVersionIsAnErrorNeverAMixture) {
  start(SimBehaviour{});
  open();
  RangeWorkload::Shape shape;
  for (const std::string& key : world_->keys) {
    auto info = store_->head(key);
    ASSERT_TRUE(info) << info.error().message();
    shape.etags[key] = info->etag;
  }
  const Outcomes outcomes = run(shape, [this](std::size_t done) {
    if (done == 200) {
      EXPECT_TRUE(world_->server->touch("bucket", world_->keys[0]).ok());
    }
  });
  EXPECT_GT(outcomes.count(Code::kChanged), 0U);
  EXPECT_EQ(outcomes.failed(), outcomes.count(Code::kChanged)) << outcomes.first_failure;
  EXPECT_GT(outcomes.ok, 300U);
}

class DeadAddress : public FaultMatrix {
 protected:
  void run_with(SimAddress::State state) {
    SimOptions options;
    options.address_count = 3;
    start(options);
    SimAddress dead;
    dead.state = state;
    ASSERT_TRUE(world_->server->set_address(1, dead).ok());
    const std::string endpoint = world_->server->endpoint();
    options_.endpoint = "http://three.example" + endpoint.substr(endpoint.rfind(':'));
    options_.resolver = [](const std::string&) -> Result<std::vector<std::string>> {
      return std::vector<std::string>{"127.0.0.1", "127.0.0.2", "127.0.0.3"};
    };
    options_.connect_timeout = std::chrono::seconds(2);
    options_.first_byte_timeout = std::chrono::seconds(2);
    expect_all_right(run());
  }
};

TEST_P(DeadAddress, OneOfThreeRefuses) { run_with(SimAddress::State::kRefuse); }
TEST_P(DeadAddress, OneOfThreeIsABlackHole) { run_with(SimAddress::State::kBlackhole); }
TEST_P(DeadAddress, OneOfThreeAcceptsAndIsMute) { run_with(SimAddress::State::kMute); }

TEST_P(FaultMatrix, NameServerFailsForAWhile) {
  start(SimBehaviour{});
  const std::string endpoint = world_->server->endpoint();
  options_.endpoint = "http://store.example" + endpoint.substr(endpoint.rfind(':'));
  auto calls = std::make_shared<std::atomic<int>>(0);
  options_.resolver = [calls](const std::string&) -> Result<std::vector<std::string>> {
    if (calls->fetch_add(1) < 4) return Status(Code::kUnavailable, "name server failure");
    return std::vector<std::string>{"127.0.0.1"};
  };
  RangeWorkload::Shape shape;
  shape.count = 64;
  expect_all_right(run(shape));
  EXPECT_GE(calls->load(), 5);
}

TEST_P(FaultMatrix, ServerGoneAndBack) {
  start(SimBehaviour{});
  open();
  SimAddress gone;
  gone.state = SimAddress::State::kRefuse;
  bool is_back = false;
  RangeWorkload::Shape shape;
  shape.count = 300;
  std::size_t left_at = 0;
  // While it is gone nothing completes, so another thread brings it back once attempts have failed.
  std::atomic<bool> is_gone{false};
  std::jthread janitor([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (is_gone.load() && metric_of(*store_, "store.connect_failures") >= 40) {
        EXPECT_TRUE(world_->server->set_address(0, SimAddress{}).ok());
        is_back = true;
        return;
      }
      std::this_thread::yield();
    }
  });
  const Outcomes outcomes = run(shape, [&](std::size_t done) {
    if (done == 100 && left_at == 0) {
      left_at = done;
      EXPECT_TRUE(world_->server->set_address(0, gone).ok());
      is_gone = true;
    }
  });
  janitor.request_stop();
  janitor.join();
  expect_all_right(outcomes);
  EXPECT_TRUE(is_back);
}

TEST_P(FaultMatrix, ExpiredCredentialsThatCannotBeRenewedAreDenied) {
  SimOptions options;
  options.session_token = "a-session";
  start(options);
  Environment environment = World::environment();
  environment.variables["AWS_SESSION_TOKEN"] = "a-session";
  auto store = open_store(options_, environment);
  ASSERT_TRUE(store) << store.error().message();
  store_ = *std::move(store);
  const Outcomes outcomes = run({}, [this](std::size_t done) {
    if (done == 200) world_->server->expire_credentials();
  });
  EXPECT_GE(outcomes.ok, 200U);
  EXPECT_GT(outcomes.count(Code::kDenied), 0U);
  EXPECT_EQ(outcomes.failed(), outcomes.count(Code::kDenied)) << outcomes.first_failure;
  EXPECT_EQ(outcomes.first_failure.find("a-session"), std::string::npos);
}

TEST_P(FaultMatrix, EverythingAtOnce) {
  start(SimBehaviour{.slow_first_byte_rate = 0.005,
                     .slow_first_byte_ms = 1000,
                     .throttle_rate = 0.02,
                     .error_rate = 0.01,
                     .request_timeout_rate = 0.01,
                     .drop_rate = 0.01,
                     .reset_rate = 0.02,
                     .truncate_rate = 0.02,
                     .close_after_requests = 20});
  RangeWorkload::Shape shape;
  shape.count = 1000;
  expect_all_right(run(shape));
}

// The process of the workload is stopped in the middle and goes on later: its timers then all are
// due, but the bytes have been in the sockets for long.
TEST_P(FaultMatrix, ProcessStoppedAndResumed) {
  start(SimBehaviour{.first_byte_p50_ms = 5, .first_byte_p99_ms = 10});
  const std::string endpoint = "HEADRACE_FAULT_CHILD=" + world_->server->endpoint();
  const std::string poller = GetParam() == PollerKind::kUring ? "HEADRACE_FAULT_POLLER=uring"
                                                              : "HEADRACE_FAULT_POLLER=epoll";
  std::vector<char*> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.push_back(*entry);
  variables.push_back(const_cast<char*>(endpoint.c_str()));
  variables.push_back(const_cast<char*>(poller.c_str()));
  variables.push_back(nullptr);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  char filter[] = "--gtest_filter=StoppedChild.*";
  char* const arguments[] = {const_cast<char*>(self.c_str()), filter, nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, self.c_str(), nullptr, nullptr, arguments, variables.data()), 0);
  const std::string before = world_->server->stats_json();
  while (world_->server->stats_json() == before) std::this_thread::yield();  // until it is at work
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(state));
  // Longer than every timeout of the child (300 ms); only time can make its timers due.
  std::this_thread::sleep_for(std::chrono::milliseconds(900));
  ASSERT_EQ(kill(child, SIGCONT), 0);
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << "state " << state;
}

// Runs in the child of ProcessStoppedAndResumed only.
TEST(StoppedChild, Works) {
  const char* endpoint = std::getenv("HEADRACE_FAULT_CHILD");
  if (endpoint == nullptr) GTEST_SKIP() << "a part of ProcessStoppedAndResumed";
  StoreOptions options;
  options.url = "s3://bucket";
  options.endpoint = endpoint;
  const char* poller = std::getenv("HEADRACE_FAULT_POLLER");
  options.poller = std::string_view(poller) == "uring" ? PollerKind::kUring : PollerKind::kEpoll;
  options.first_byte_timeout = options.progress_timeout = std::chrono::milliseconds(300);
  options.max_attempts = 3;
  auto store = open_store(options, World::environment());
  ASSERT_TRUE(store) << store.error().message();
  std::vector<std::string> keys;
  for (int i = 0; i < kObjectCount; ++i) keys.push_back("object-" + std::to_string(i));
  RangeWorkload::Shape shape;
  shape.count = 3000;
  const Outcomes outcomes = RangeWorkload(**store, keys, shape).run();
  EXPECT_EQ(outcomes.failed(), 0U) << outcomes.first_failure;
}

bool is_available(PollerKind poller) {
  StoreOptions options;
  options.url = "s3://bucket";
  options.endpoint = "http://127.0.0.1:1";
  options.poller = poller;
  return open_store(options, World::environment()).has_value();
}

std::vector<PollerKind> pollers() {
  std::vector<PollerKind> result = {PollerKind::kEpoll};
  if (is_available(PollerKind::kUring)) result.push_back(PollerKind::kUring);
  return result;
}

std::string poller_name(const ::testing::TestParamInfo<PollerKind>& info) {
  return info.param == PollerKind::kUring ? "uring" : "epoll";
}

INSTANTIATE_TEST_SUITE_P(Pollers, FaultMatrix, ::testing::ValuesIn(pollers()), poller_name);
INSTANTIATE_TEST_SUITE_P(Pollers, DeadAddress, ::testing::ValuesIn(pollers()), poller_name);

}  // namespace
}  // namespace headrace::faults
