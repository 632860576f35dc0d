#include "auth/azure_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/manual_clock.h"

namespace headrace::auth {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using Kind = AzureIdentity::Kind;

/// Answers every request with the same.
class FakeWeb final : public WebClient {
 public:
  Result<WebAnswer> fetch(const WebRequest& request, std::stop_token) override {
    last = request;
    count.fetch_add(1);
    if (!failure.ok()) return failure.clone();
    return answer;
  }
  WebAnswer answer{200, {}, R"({"access_token":"token1","expires_in":3599})"};
  Status failure;
  WebRequest last;
  std::atomic<int> count{0};
};

class AzureTokens : public testing::Test {
 protected:
  AzureTokens() {
    identity_.authority = "https://login.example";
    identity_.tenant_id = "tenant";
    identity_.client_id = "client";
  }
  Result<Token> fetch() {
    return fetch_azure_token(identity_, web_,
                             [&](const std::string& path) {
                               return path == "/token" ? assertion_ : std::optional<std::string>();
                             },
                             clock_, {});
  }
  AzureIdentity identity_;
  std::optional<std::string> assertion_ = "jwt.text.x\n";
  FakeWeb web_;
  ManualClock clock_;
};

TEST_F(AzureTokens, TradesAClientSecret) {
  identity_.kind = Kind::kClientSecret;
  identity_.client_secret = "s&c=t";
  auto token = fetch();
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ(token->text, "token1");
  EXPECT_EQ(token->expires, clock_.wall_now() + std::chrono::seconds(3599));
  EXPECT_EQ(web_.last.method, "POST");
  EXPECT_FALSE(web_.last.is_local);
  EXPECT_EQ(web_.last.url, "https://login.example/tenant/oauth2/v2.0/token");
  EXPECT_EQ(web_.last.body,
            "grant_type=client_credentials&client_id=client&client_secret=s%26c%3Dt"
            "&scope=https%3A%2F%2Fstorage.azure.com%2F.default");
}

TEST_F(AzureTokens, TradesTheTokenOfAWorkload) {
  identity_.kind = Kind::kWorkload;
  identity_.token_file = "/token";
  ASSERT_TRUE(fetch());
  EXPECT_THAT(web_.last.body,
              HasSubstr("client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type"
                        "%3Ajwt-bearer&client_assertion=jwt.text.x&scope="));
  assertion_.reset();
  auto missing = fetch();
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kDenied);
  EXPECT_THAT(std::string(missing.error().message()), HasSubstr("/token"));
}

TEST_F(AzureTokens, AsksTheMachinesMetadataService) {
  identity_.kind = Kind::kMachine;
  identity_.endpoint = "http://169.254.169.254";
  identity_.client_id.clear();
  web_.answer.body = R"({"access_token":"t","expires_in":"86399","expires_on":"1"})";
  auto token = fetch();
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ(token->expires, clock_.wall_now() + std::chrono::seconds(86399));
  EXPECT_EQ(web_.last.method, "GET");
  EXPECT_EQ(web_.last.url,
            "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
            "&resource=https%3A%2F%2Fstorage.azure.com%2F");
  EXPECT_THAT(web_.last.headers, ElementsAre(Pair("metadata", "true")));
  EXPECT_TRUE(web_.last.is_local);
  EXPECT_LE(web_.last.connect_timeout, std::chrono::seconds(1));
  identity_.client_id = "user assigned";
  ASSERT_TRUE(fetch());
  EXPECT_THAT(web_.last.url, HasSubstr("&client_id=user%20assigned"));
}

TEST_F(AzureTokens, AsksAppService) {
  identity_.kind = Kind::kAppService;
  identity_.endpoint = "http://127.0.0.1:41/msi/token";
  identity_.header_secret = "header";
  web_.answer.body = R"({"access_token":"t","expires_on":"1586984735"})";
  auto token = fetch();
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ(token->expires, WallTime(std::chrono::seconds(1586984735)));
  EXPECT_EQ(web_.last.url,
            "http://127.0.0.1:41/msi/token?api-version=2019-08-01"
            "&resource=https%3A%2F%2Fstorage.azure.com%2F&client_id=client");
  EXPECT_THAT(web_.last.headers, ElementsAre(Pair("x-identity-header", "header")));
  EXPECT_TRUE(web_.last.is_local);
}

TEST_F(AzureTokens, SaysWhyThereIsNone) {
  identity_.kind = Kind::kClientSecret;
  identity_.client_secret = "sEcReT";
  web_.answer = {
      401, {}, R"({"error":"invalid_client","error_description":"AADSTS7000215: Invalid.\r\nId"})"};
  auto refused = fetch();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kDenied);
  EXPECT_EQ(std::string(refused.error().message()),
            "invalid_client: AADSTS7000215: Invalid. (HTTP 401)");
  web_.failure = Status(Code::kUnavailable, "nobody there");
  EXPECT_EQ(fetch().error().code(), Code::kUnavailable);
}

TEST_F(AzureTokens, KnowsWhatMayPass) {
  for (const auto& [status, code] :
       {std::pair(400, Code::kDenied), std::pair(403, Code::kDenied),
        std::pair(404, Code::kUnavailable), std::pair(410, Code::kUnavailable),
        std::pair(429, Code::kThrottled), std::pair(500, Code::kUnavailable),
        std::pair(503, Code::kUnavailable)}) {
    web_.answer = {status, {}, "no json"};
    EXPECT_EQ(fetch().error().code(), code) << status;
  }
}

TEST_F(AzureTokens, TakesOnlyWhatIsAToken) {
  for (const char* body : {"", "[]", "{}", "\x01\xff", R"({"access_token":""})",
                           R"({"access_token":7})", R"({"access_token":"a\r\nb: c"})",
                           R"({"access_token":"a b"})", R"({"access_token":null})"}) {
    web_.answer = {200, {}, body};
    auto token = fetch();
    ASSERT_FALSE(token) << body;
    EXPECT_EQ(token.error().code(), Code::kDenied);
  }
  for (const char* life : {"-1", "1e9", "\"soon\"", "99999999999999999999", "null"}) {
    web_.answer = {200, {}, std::string(R"({"access_token":"t","expires_in":)") + life + "}"};
    auto token = fetch();
    ASSERT_TRUE(token) << life;
    EXPECT_FALSE(token->expires) << life;
  }
}

TEST_F(AzureTokens, ProviderFetchesInTheBackground) {
  identity_.kind = Kind::kMachine;
  identity_.endpoint = "http://169.254.169.254";
  auto web = std::make_shared<FakeWeb>();
  auto provider = azure_tokens(
      identity_, "test", web, [](const std::string&) { return std::nullopt; }, &clock_);
  EXPECT_EQ(web->count.load(), 0) << "nothing is asked before it is needed";
  auto token = provider->current(clock_.wall_now());
  while (!token && token.error().code() == Code::kUnavailable) {
    std::this_thread::yield();
    token = provider->current(clock_.wall_now());
  }
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ((*token)->text, "token1");
}

}  // namespace
}  // namespace headrace::auth
