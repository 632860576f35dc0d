// Starting and stopping, signatures, connections, misbehaviour, statistics.
#include <gmock/gmock.h>

#include <thread>

#include "sim/server_fixture.h"

namespace headrace::sim {
namespace {

using ::testing::HasSubstr;

Status start_error(const SimOptions& options) {
  auto server = SimServer::start(options);
  EXPECT_FALSE(server.has_value());
  return server ? Status(Code::kInternal, "started") : std::move(server).error();
}

TEST_F(ServerTest, BadOptionsAreRefusedWithTheirNames) {
  SimOptions options = options_;
  options.directory = dir_.path() + "/none";
  Status status = start_error(options);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/none"));
  options = options_;
  options.profile = "s3";
  EXPECT_EQ(start_error(options).code(), Code::kInvalidArgument);
  options = options_;
  options.thread_count = 0;
  EXPECT_EQ(start_error(options).code(), Code::kInvalidArgument);
  options = options_;
  options.behaviour = SimBehaviour();
  options.behaviour->error_rate = 2;
  EXPECT_EQ(start_error(options).code(), Code::kInvalidArgument);
}

TEST_F(ServerTest, TakenPortsAndUnknownHostsAreUnavailable) {
  start();
  SimOptions options = options_;
  options.port = server_->port();
  Status status = start_error(options);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(options.port)));
  options.port = 0;
  options.host = "256.0.0.1";
  EXPECT_EQ(start_error(options).code(), Code::kUnavailable);
}

TEST_F(ServerTest, StopsWithConnectionsOpenAndIsIdempotent) {
  options_.thread_count = 3;
  write_file("b/x", "text");
  EXPECT_EQ(client().get("/b/x").status, 200);
  EXPECT_EQ(server_->endpoint(), "http://127.0.0.1:" + std::to_string(server_->port()));
  server_->stop();
  server_->stop();
  EXPECT_TRUE(client().reads_end());
  EXPECT_EQ(stats()["request_count"], 1);  // what was counted stays
}

TEST_F(ServerTest, SignaturesAreVerified) {
  write_file("b/x", "text");
  EXPECT_EQ(client().get("/b/x").status, 200);
  client().is_signing = false;
  EXPECT_EQ(client().get("/b/x").xml("Code"), "AccessDenied");
  client().is_signing = true;
  client().credentials.secret_access_key = "wrong";
  EXPECT_EQ(client().get("/b/x").xml("Code"), "SignatureDoesNotMatch");
  EXPECT_EQ(client().put("/b/x", "overwritten").xml("Code"), "SignatureDoesNotMatch");
  client().credentials.access_key_id = "other";
  EXPECT_EQ(client().get("/b/x").xml("Code"), "InvalidAccessKeyId");
  client().credentials = {"headrace", "headrace-secret", "", {}};
  client().clock_offset = std::chrono::minutes(-16);
  EXPECT_EQ(client().get("/b/x").xml("Code"), "RequestTimeTooSkewed");
  client().clock_offset = std::chrono::minutes(14);
  EXPECT_EQ(client().get("/b/x").body, "text");
}

TEST_F(ServerTest, UnsignedRequestsPassWhenAllowed) {
  options_.require_signature = false;
  write_file("b/x", "text");
  client().is_signing = false;
  EXPECT_EQ(client().get("/b/x").body, "text");
}

TEST_F(ServerTest, SessionTokensAreRequiredAndExpire) {
  options_.session_token = "token";
  write_file("b/x", "text");
  EXPECT_EQ(client().get("/b/x").xml("Code"), "InvalidToken");
  client().credentials.session_token = "token";
  EXPECT_EQ(client().get("/b/x").status, 200);
  EXPECT_EQ(client().post("/_headrace/expire-token", "").status, 200);
  EXPECT_EQ(client().get("/b/x").xml("Code"), "ExpiredToken");
}

TEST_F(ServerTest, PresignedRequestsAreServed) {
  write_file("b/x", "text");
  client().is_signing = false;
  auto signer = auth::SigV4Signer::create("us-east-1", "s3");
  ASSERT_TRUE(signer.has_value());
  const std::string host = "127.0.0.1:" + std::to_string(server_->port());
  const http::Field field{"host", host};
  const std::string query = (*signer)->presigned_query(
      {"GET", "/b/x", "", {&field, 1}, auth::kUnsignedPayload}, client().credentials,
      system_clock().wall_now(), std::chrono::seconds(60));
  EXPECT_EQ(client().get("/b/x", {}, query).body, "text");
  EXPECT_EQ(client().get("/b/y", {}, query).xml("Code"), "SignatureDoesNotMatch");
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrder) {
  const std::string big = pattern(1'000'000);
  write_file("b/big", big);
  write_file("b/small", "small");
  std::string text;
  for (int i = 0; i < 10; ++i) {
    text += client().text_of({"GET", "/b/big", "", {}, "", std::string(auth::kUnsignedPayload)});
    text += client().text_of(
        {"PUT", "/b/new", "", {}, "put body", std::string(auth::kUnsignedPayload)});
    text += client().text_of({"PUT",
                              "/b/new2",
                              "",
                              {{"transfer-encoding", "chunked"}},
                              "3\r\nabc\r\n0\r\n\r\n",
                              std::string(auth::kUnsignedPayload)});
    text += client().text_of({"GET", "/b/small", "", {}, "", std::string(auth::kUnsignedPayload)});
  }
  client().connect_now();
  std::thread sender([&] { client().send_text(text); });
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(client().read_response().body == big);
    EXPECT_EQ(client().read_response().status, 200);
    EXPECT_EQ(client().read_response().status, 200);
    EXPECT_EQ(client().read_response().body, "small");
  }
  sender.join();
  EXPECT_EQ(client().get("/b/new2").body, "abc");
}

TEST_F(ServerTest, NonsenseIsRefusedAndEndsTheConnection) {
  client().send_text("NONSENSE\r\n\r\n");
  EXPECT_EQ(client().read_response().status, 400);
  EXPECT_TRUE(client().reads_end());
  client().disconnect();
  client().send_text("GET /b HTTP/1.1\r\nhost: h\r\nlong: " + std::string(20'000, 'x') +
                     "\r\n\r\n");
  EXPECT_EQ(client().read_response().status, 400);
}

TEST_F(ServerTest, HalfAnUploadLeavesNothing) {
  const std::string text = client().text_of(
      {"PUT", "/b/k", "", {}, pattern(300'000), std::string(auth::kUnsignedPayload)});
  client().send_text(std::string_view(text).substr(0, text.size() - 1));
  client().disconnect();
  EXPECT_EQ(client().get("/b/k").status, 404);
  server_->stop();
  const std::string hidden = dir_.path() + "/b/.headrace-sim/tmp";
  EXPECT_TRUE(!std::filesystem::exists(hidden) || std::filesystem::is_empty(hidden));
}

TEST_F(ServerTest, ManyThreadsServeManyClients) {
  options_.thread_count = 4;
  const std::string body = pattern(200'000);
  write_file("b/x", body);
  start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      TestClient mine(server_->port());
      for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(mine.get("/b/x", {{"range", "bytes=" + std::to_string(i) + "-"}}).body ==
                    body.substr(static_cast<std::size_t>(i)));
        const std::string path = "/b/own" + std::to_string(t);
        EXPECT_EQ(mine.put(path, path).status, 200);
        EXPECT_EQ(mine.get(path).body, path);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stats()["objects"]["b/x"]["requests"], 80);
  EXPECT_EQ(stats()["requests"]["put_object"]["200"], 80);
  EXPECT_EQ(stats()["connections"], 8);
}

TEST_F(ServerTest, StatisticsCountAndReset) {
  write_file("b/x", "0123456789");
  client().get("/b/x");
  client().get("/b/x", {{"range", "bytes=2-4"}});
  client().get("/b/none");
  client().put("/b/y", "abc");
  nlohmann::json json = nlohmann::json::parse(client().get("/_headrace/stats").body);
  EXPECT_EQ(json, stats());
  EXPECT_EQ(json["requests"]["get_object"], nlohmann::json({{"200", 1}, {"206", 1}, {"404", 1}}));
  EXPECT_EQ(json["request_count"], 4);
  EXPECT_EQ(json["bytes_received"], 3);
  EXPECT_EQ(json["objects"]["b/x"], nlohmann::json({{"requests", 2}, {"bytes", 13}}));
  EXPECT_EQ(client().post("/_headrace/reset", "").status, 200);
  EXPECT_EQ(stats()["request_count"], 0);
}

class MisbehaviourTest : public ServerTest {
 protected:
  SimBehaviour& behaviour() {
    if (!options_.behaviour) options_.behaviour = SimBehaviour();
    return *options_.behaviour;
  }
  /// Status, and bytes of the body that came, for GETs of a few objects, twice each.
  std::vector<std::pair<int, std::size_t>> outcomes() {
    std::vector<std::pair<int, std::size_t>> out;
    for (int i = 0; i < 40; ++i) {
      const TestResponse response = client().get("/b/x" + std::to_string(i % 20));
      out.emplace_back(response.status, response.body.size());
    }
    return out;
  }
};

TEST_F(MisbehaviourTest, ThrottlingAndErrorsHaveTheirDocuments) {
  behaviour().throttle_rate = 1;
  write_file("b/x", "text");
  TestResponse response = client().get("/b/x");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.xml("Code"), "SlowDown");
  EXPECT_EQ(client().put("/b/y", "x").status, 503);
  EXPECT_EQ(
      client().post("/_headrace/behaviour", R"({"throttle_rate": 0, "error_rate": 1})").status,
      200);
  response = client().get("/b/x");
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(response.xml("Code"), "InternalError");
  EXPECT_EQ(client().post("/_headrace/behaviour", R"({"profile": "none"})").status, 200);
  EXPECT_EQ(client().get("/b/x").body, "text");
  EXPECT_EQ(client().get("/b/y").status, 404);
}

TEST_F(MisbehaviourTest, ResetsAndTruncationsCutBodies) {
  behaviour().reset_rate = 1;
  const std::string body = pattern(500'000);
  write_file("b/x", body);
  TestResponse response = client().get("/b/x");
  EXPECT_EQ(response.status, 200);
  EXPECT_FALSE(response.is_complete);
  EXPECT_TRUE(response.was_reset);
  EXPECT_TRUE(body.starts_with(response.body));
  client().disconnect();
  EXPECT_EQ(
      client().post("/_headrace/behaviour", R"({"reset_rate": 0, "truncate_rate": 1})").status,
      200);
  response = client().get("/b/x");
  EXPECT_FALSE(response.is_complete);
  EXPECT_FALSE(response.was_reset);
  EXPECT_TRUE(body.starts_with(response.body));
  EXPECT_EQ(stats()["bodies_cut"], 2);
}

TEST_F(MisbehaviourTest, SameSeedSameFaultsWhateverTheThreads) {
  behaviour().throttle_rate = 0.2;
  behaviour().error_rate = 0.2;
  behaviour().reset_rate = 0.3;
  behaviour().truncate_rate = 0.3;
  options_.seed = 42;
  for (int i = 0; i < 20; ++i) write_file("b/x" + std::to_string(i), pattern(1000));
  const auto first = outcomes();
  EXPECT_EQ(client().post("/_headrace/reset", "").status, 200);
  EXPECT_EQ(outcomes(), first);
  options_.thread_count = 3;
  start();
  EXPECT_EQ(outcomes(), first);
  options_.seed = 43;
  start();
  EXPECT_NE(outcomes(), first);
}

TEST_F(MisbehaviourTest, ARetryDrawsAnew) {
  behaviour().throttle_rate = 0.5;
  write_file("b/x", "text");
  int throttled = 0;
  for (int i = 0; i < 40; ++i) throttled += client().get("/b/x").status == 503;
  EXPECT_GT(throttled, 5);
  EXPECT_LT(throttled, 35);
}

TEST_F(MisbehaviourTest, FirstBytesWaitAndRatesHold) {
  behaviour().first_byte_p50_ms = behaviour().first_byte_p99_ms = 20;
  behaviour().connection_bytes_per_s = 10e6;
  const std::string body = pattern(300'000);
  write_file("b/x", body);
  client();
  const TimePoint begin = system_clock().now();
  EXPECT_TRUE(client().get("/b/x").body == body);
  const std::chrono::duration<double> took = system_clock().now() - begin;
  EXPECT_GE(took.count(),
            0.020 + 0.028 * 0.9);  // never faster; how much slower is the machine's affair
}

TEST_F(MisbehaviourTest, UploadsKeepTheRateToo) {
  behaviour().connection_bytes_per_s = 10e6;
  client();
  const TimePoint begin = system_clock().now();
  EXPECT_EQ(client().put("/b/x", pattern(300'000)).status, 200);
  const std::chrono::duration<double> took = system_clock().now() - begin;
  EXPECT_GE(took.count(), 0.025);
}

TEST_F(MisbehaviourTest, BadBehaviourDocumentsChangeNothing) {
  start();
  const std::string before = client().get("/_headrace/behaviour").body;
  for (const char* text :
       {"", "x", R"({"error_rate": 7})", R"({"nonsense": 1})", R"({"seed": -1})"}) {
    const TestResponse response = client().post("/_headrace/behaviour", text);
    EXPECT_EQ(response.status, 400) << text;
    EXPECT_THAT(response.body, HasSubstr("error"));
  }
  EXPECT_EQ(client().get("/_headrace/behaviour").body, before);
  EXPECT_EQ(client().get("/_headrace/none").status, 404);
}

}  // namespace
}  // namespace headrace::sim
