// Misbehaviour over the wire: bodies, heads, addresses, limits, time.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "sim/server_fixture.h"

namespace headrace::sim {
namespace {

using namespace std::chrono_literals;

class FaultTest : public ServerTest {
 protected:
  void SetUp() override {
    write_file("b/x", body_);
    options_.behaviour = SimBehaviour();
  }
  SimBehaviour& behaviour() { return *options_.behaviour; }
  void change(void (*edit)(SimBehaviour&)) {
    SimBehaviour changed;
    edit(changed);
    ASSERT_TRUE(server_->set_behaviour(changed).ok());
  }
  nlohmann::json stats_of(TestClient& asking) {
    return nlohmann::json::parse(asking.get("/_headrace/stats").body);
  }
  std::size_t differing_bytes(const std::string& got) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < got.size(); ++i) count += got[i] != body_[i];
    return count;
  }
  const std::string body_ = pattern(300'000);
  std::atomic<bool> is_done_{false};
};

TEST_F(FaultTest, CorruptBodiesHaveTheRightLengthAndOneWrongByte) {
  behaviour().corrupt_rate = 1;
  const TestResponse response = client().get("/b/x");
  EXPECT_TRUE(response.is_complete);
  ASSERT_EQ(response.body.size(), body_.size());
  EXPECT_EQ(differing_bytes(response.body), 1u);
  const TestResponse one_byte = client().get("/b/x", {{"range", "bytes=7-7"}});
  EXPECT_NE(one_byte.body, body_.substr(7, 1));
}

TEST_F(FaultTest, CorruptionHappensAtItsRate) {
  behaviour().corrupt_rate = 0.25;
  options_.seed = 5;
  int corrupt = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string range = "bytes=" + std::to_string(i) + "-" + std::to_string(i + 9);
    corrupt += client().get("/b/x", {{"range", range}}).body !=
               body_.substr(static_cast<std::size_t>(i), 10);
  }
  EXPECT_NEAR(corrupt, 50, 20);
}

TEST_F(FaultTest, StalledBodiesGoOnAfterTheirTime) {
  behaviour().stall_rate = 1;
  behaviour().stall_ms = 3'600'000;
  start();
  std::thread helper([this] {
    while (!is_done_) {
      server_->advance(std::chrono::hours(1));
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(client().get("/b/x").body == body_);
  is_done_ = true;
  helper.join();
}

TEST_F(FaultTest, HeadsOfGetsLie) {
  const TestFields range = {{"range", "bytes=10-19"}};
  behaviour().wrong_range_rate = 1;
  EXPECT_EQ(client().get("/b/x", range).header("content-range"), "bytes 20-29/300000");
  change([](SimBehaviour& b) { b.missing_range_rate = 1; });
  TestResponse response = client().get("/b/x", range);
  EXPECT_EQ(response.status, 206);
  EXPECT_EQ(response.header("content-range"), "");
  EXPECT_EQ(response.body, body_.substr(10, 10));
  change([](SimBehaviour& b) { b.missing_etag_rate = 1; });
  response = client().get("/b/x", range);
  EXPECT_EQ(response.header("etag"), "");
  EXPECT_NE(response.header("last-modified"), "");
}

TEST_F(FaultTest, ChangedETagsFailIfMatch) {
  const std::string etag = client().get("/b/x").header("etag");
  change([](SimBehaviour& b) { b.changed_etag_rate = 1; });
  const TestResponse other = client().get("/b/x");
  EXPECT_EQ(other.status, 200);
  EXPECT_NE(other.header("etag"), etag);
  EXPECT_EQ(other.header("etag").size(), etag.size());
  EXPECT_EQ(client().get("/b/x", {{"if-match", etag}}).status, 412);
}

TEST_F(FaultTest, TouchMakesANewVersionOfTheSameBytes) {
  const std::string etag = client().get("/b/x").header("etag");
  ASSERT_TRUE(server_->touch("b", "x").ok());
  EXPECT_EQ(client().get("/b/x", {{"if-match", etag}}).status, 412);
  EXPECT_TRUE(client().get("/b/x").body == body_);
  EXPECT_EQ(server_->touch("b", "none").code(), Code::kNotFound);
  EXPECT_EQ(client().post("/_headrace/touch", R"({"bucket": "b", "key": "x"})").status, 200);
  EXPECT_EQ(client().post("/_headrace/touch", R"({"bucket": "b", "key": "y"})").status, 404);
}

TEST_F(FaultTest, RefusalsHaveTheirStatus) {
  behaviour().too_many_rate = 1;
  EXPECT_EQ(client().get("/b/x").status, 429);
  change([](SimBehaviour& b) { b.request_timeout_rate = 1; });
  const TestResponse response = client().get("/b/x");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.xml("Code"), "RequestTimeout");
  EXPECT_EQ(response.header("connection"), "close");
  client().disconnect();
  change([](SimBehaviour& b) { b.drop_rate = 1; });
  EXPECT_TRUE(client().get("/b/x").was_reset);
  EXPECT_EQ(stats()["bodies_cut"], 1);
}

TEST_F(FaultTest, CopiesFailWithinA200) {
  behaviour().error_in_body_rate = 1;
  TestResponse response = client().put("/b/y", "", {{"x-amz-copy-source", "/b/x"}});
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.xml("Code"), "InternalError");
  EXPECT_EQ(client().get("/b/y").status, 404);
}

TEST_F(FaultTest, IdleConnectionsAreClosed) {
  behaviour().idle_close_ms = 5000;
  EXPECT_EQ(client().get("/b/x").status, 200);
  EXPECT_EQ(client().get("/b/x").status, 200);
  server_->advance(6s);
  EXPECT_TRUE(client().reads_end());
  EXPECT_EQ(stats()["connections"], 1);
}

TEST_F(FaultTest, ConnectionsCloseAfterTheirRequests) {
  behaviour().close_after_requests = 2;
  EXPECT_EQ(client().get("/b/x").header("connection"), "");
  EXPECT_EQ(client().get("/b/x").header("connection"), "close");
  EXPECT_TRUE(client().reads_end());
}

TEST_F(FaultTest, PrefixLimitsAnswerSlowDownUntilTheySplit) {
  write_file("b/p/1", "1");
  write_file("b/q/1", "1");
  behaviour().read_requests_per_s = 1;
  behaviour().partition_after_ms = 60'000;
  EXPECT_EQ(client().get("/b/p/1").status, 200);
  EXPECT_EQ(client().get("/b/q/1").xml("Code"), "SlowDown");
  server_->advance(60s);
  EXPECT_EQ(client().get("/b/p/1").status, 200);
  EXPECT_EQ(client().get("/b/p/1").status, 503);  // over the limit for a minute: splits
  EXPECT_EQ(client().get("/b/p/1").status, 200);
  EXPECT_EQ(client().get("/b/q/1").status, 200);
  EXPECT_EQ(client().get("/b/q/1").status, 503);
}

TEST_F(FaultTest, RepeatedRangesAreCounted) {
  options_.count_repeats = true;
  client().get("/b/x", {{"range", "bytes=0-9"}});
  client().get("/b/x", {{"range", "bytes=10-19"}});
  EXPECT_EQ(stats_of(client())["repeats"], 0);
  client().get("/b/x", {{"range", "bytes=0-9"}});
  EXPECT_EQ(stats_of(client())["repeats"], 1);
  EXPECT_EQ(stats_of(client())["objects"]["b/x"]["repeats"], 1);
  EXPECT_EQ(stats_of(client())["duplicates"], 0);
  EXPECT_EQ(stats_of(client())["bytes"]["get_object"]["sent"], 30);
}

TEST_F(FaultTest, RangesAskedForTwiceAtOnceAreDuplicates) {
  behaviour().first_byte_p50_ms = behaviour().first_byte_p99_ms = 3'600'000;
  start();
  TestClient other(server_->port());
  for (TestClient* each : {client_.get(), &other}) {
    each->send_text(
        each->text_of({"GET", "/b/x", "", {}, "", std::string(auth::kUnsignedPayload)}));
  }
  std::thread helper([this] {
    while (!is_done_) {
      std::this_thread::sleep_for(1ms);
      server_->advance(std::chrono::hours(1));
    }
  });
  EXPECT_EQ(client().read_response().status, 200);
  EXPECT_EQ(other.read_response().status, 200);
  (void)stats_of(other);  // a connection counts its answers before it reads on
  is_done_ = true;
  helper.join();
  EXPECT_EQ(stats_of(client())["objects"]["b/x"]["requests"], 2);
  EXPECT_EQ(stats_of(client())["repeats"], 1);
}

class AddressTest : public FaultTest {
 protected:
  AddressTest() { options_.address_count = 3; }
  /// Connects to address number `index`: 0 or the errno; ETIMEDOUT when nothing comes in 100 ms.
  int connect_to(std::uint32_t index) {
    const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + index);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return 0;
    pollfd poll{fd.get(), POLLOUT, 0};
    if (::poll(&poll, 1, 100) == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
  }
};

TEST_F(AddressTest, AllAddressesServeOnOnePort) {
  start();
  const std::string port = std::to_string(server_->port());
  EXPECT_THAT(server_->addresses(), ::testing::ElementsAre("127.0.0.1:" + port, "127.0.0.2:" + port,
                                                           "127.0.0.3:" + port));
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(connect_to(i), 0) << i;
}

TEST_F(AddressTest, DeadAddressesRefuseOrSwallow) {
  start();
  ASSERT_TRUE(server_->set_address(1, {SimAddress::State::kRefuse}).ok());
  ASSERT_TRUE(server_->set_address(2, {SimAddress::State::kBlackhole}).ok());
  EXPECT_EQ(connect_to(0), 0);
  EXPECT_EQ(connect_to(1), ECONNREFUSED);
  EXPECT_EQ(connect_to(2), ETIMEDOUT);
  ASSERT_TRUE(server_->set_address(1, {}).ok());
  ASSERT_TRUE(server_->set_address(2, {}).ok());
  EXPECT_EQ(connect_to(1), 0);
  EXPECT_EQ(connect_to(2), 0);
  EXPECT_EQ(server_->set_address(3, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(server_->set_address(0, {SimAddress::State::kUp, -1}).code(), Code::kInvalidArgument);
}

TEST_F(AddressTest, AServerThatGoesResetsItsConnectionsAndComesBack) {
  EXPECT_EQ(client().get("/b/x").status, 200);
  ASSERT_TRUE(server_->set_address(0, {SimAddress::State::kRefuse}).ok());
  EXPECT_TRUE(client().reads_end());
  EXPECT_EQ(connect_to(0), ECONNREFUSED);
  ASSERT_TRUE(server_->set_address(0, {}).ok());
  EXPECT_EQ(client().get("/b/x").status, 200);
}

TEST_F(AddressTest, AddressesAreChangedByTheirEndpoint) {
  start();
  EXPECT_EQ(client().post("/_headrace/addresses", R"({"index": 2, "state": "refuse"})").status,
            200);
  EXPECT_EQ(connect_to(2), ECONNREFUSED);
  const auto json = nlohmann::json::parse(client().get("/_headrace/addresses").body);
  EXPECT_EQ(json[2]["state"], "refuse");
  for (const char* text : {"", "{}", R"({"index": 3})", R"({"index": 0, "state": "dead"})",
                           R"({"index": 0, "slowness": 1})"}) {
    EXPECT_EQ(client().post("/_headrace/addresses", text).status, 400) << text;
  }
}

TEST_F(FaultTest, SeveralAddressesNeedIpv4) {
  options_.host = "::1";
  options_.address_count = 2;
  EXPECT_EQ(SimServer::start(options_).error().code(), Code::kInvalidArgument);
  options_.address_count = 65;
  EXPECT_EQ(SimServer::start(options_).error().code(), Code::kInvalidArgument);
}

TEST_F(FaultTest, BandwidthIsShared) {
  behaviour().total_bytes_per_s = 20e6;
  start();
  const TimePoint begin = system_clock().now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      TestClient mine(server_->port());
      EXPECT_TRUE(mine.get("/b/x").body == body_);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> took = system_clock().now() - begin;
  EXPECT_GE(took.count(), 1.2e6 / 20e6 - 0.025);  // less what 20 ms of burst allow
}

}  // namespace
}  // namespace headrace::sim
