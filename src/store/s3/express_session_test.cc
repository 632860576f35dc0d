#include "store/s3/express_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "auth/sigv4.h"
#include "base/mutex.h"

namespace headrace::s3 {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Pair;

constexpr std::chrono::sys_seconds kNow{std::chrono::seconds(1'440'938'160)};  // 12:36:00

std::string session(const std::string& name, const std::string& expiration) {
  return "<CreateSessionResult><Credentials><SessionToken>token/" + name +
         "==</SessionToken><SecretAccessKey>secret-" + name + "</SecretAccessKey><AccessKeyId>ID" +
         name + "</AccessKeyId><Expiration>" + expiration +
         "</Expiration></Credentials></CreateSessionResult>";
}

/// Answers from a list and keeps the requests.
class ScriptedWeb final : public auth::WebClient {
 public:
  explicit ScriptedWeb(std::deque<auth::WebAnswer> answers) : answers_(std::move(answers)) {}
  Result<auth::WebAnswer> fetch(const auth::WebRequest& request, std::stop_token) override {
    MutexLock lock(mutex_);
    requests_.push_back(request);
    if (answers_.empty()) return Status(Code::kInternal, "no answer left");
    auto answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }
  std::vector<auth::WebRequest> requests() {
    MutexLock lock(mutex_);
    return requests_;
  }

 private:
  Mutex mutex_;
  std::deque<auth::WebAnswer> answers_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<auth::WebRequest> requests_ HEADRACE_GUARDED_BY(mutex_);
};

struct Fixture {
  explicit Fixture(std::deque<auth::WebAnswer> answers)
      : web(std::make_shared<ScriptedWeb>(std::move(answers))) {
    config.bucket = "data--use1-az4--x-s3";
    config.root_url = "s3://data--use1-az4--x-s3";
    config.endpoint = {"h.example", 443, true};
    config.host_field = "h.example";
    config.region = "us-east-1";
    config.is_express = true;
    config.credentials = auth::static_credentials({"AKID", "secret", "own/token", std::nullopt});
    provider =
        *express_sessions({config, web, std::make_shared<ServerClock>(), [] { return kNow; }});
  }
  /// The session in use at `now`, once the fetch under way has ended.
  Result<std::shared_ptr<const auth::Credentials>> settled(std::chrono::sys_seconds now) {
    while (true) {
      auto current = provider->current(now);
      if (current || current.error().code() != Code::kUnavailable) return current;
      std::this_thread::yield();
    }
  }
  S3Config config;
  std::shared_ptr<ScriptedWeb> web;
  std::shared_ptr<auth::CredentialProvider> provider;
};

TEST(ExpressSession, IsAskedForWithTheAccountsOwnCredentials) {
  Fixture f({{200, {}, session("A", "2015-08-30T12:41:00Z")}});
  EXPECT_EQ(f.provider->current(kNow).error().code(), Code::kUnavailable);  // does not wait
  auto current = f.settled(kNow);
  ASSERT_TRUE(current.has_value()) << current.error().message();
  EXPECT_EQ((*current)->access_key_id, "IDA");
  EXPECT_EQ((*current)->session_token, "token/A==");
  const auto requests = f.web->requests();
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].url, "https://h.example/?session=");
  EXPECT_THAT(requests[0].headers, Contains(Pair("x-amz-create-session-mode", "ReadWrite")));
  EXPECT_THAT(requests[0].headers, Contains(Pair("x-amz-security-token", "own/token")));
  EXPECT_THAT(
      requests[0].headers,
      Contains(Pair("authorization", HasSubstr("Credential=AKID/20150830/us-east-1/s3express/"))));
  // What a server that knows the secret says of it.
  std::string text = "GET /?session= HTTP/1.1\r\nhost: h.example\r\n";
  for (const auto& [name, value] : requests[0].headers) text += name + ": " + value + "\r\n";
  text += "\r\n";
  http::RequestHead head;
  ASSERT_TRUE(http::parse_request_head(text, head).has_value());
  auto verifier = auth::SigV4Verifier::create({{{"AKID", "secret", "own/token", std::nullopt}},
                                               "us-east-1",
                                               "s3express",
                                               std::chrono::seconds(900)});
  EXPECT_TRUE((*verifier)->verify(head, kNow).ok());
}

TEST(ExpressSession, IsRenewedBeforeItsEndWhileTheOldOneServes) {
  Fixture f({{200, {}, session("A", "2015-08-30T12:41:00Z")},
             {200, {}, session("B", "2015-08-30T12:45:00Z")}});
  ASSERT_TRUE(f.settled(kNow).has_value());
  const auto late = kNow + std::chrono::seconds(240);  // a minute before the end
  std::string id = "IDA";
  while (id == "IDA") {
    auto current = f.provider->current(late);
    ASSERT_TRUE(current.has_value()) << current.error().message();  // never without one
    id = (*current)->access_key_id;
    std::this_thread::yield();
  }
  EXPECT_EQ(id, "IDB");
}

TEST(ExpressSession, ReadersGetASessionForReading) {
  Fixture f({{403, {}, "<Error><Code>AccessDenied</Code></Error>"},
             {200, {}, session("R", "2015-08-30T12:41:00Z")}});
  auto current = f.settled(kNow);
  ASSERT_TRUE(current.has_value()) << current.error().message();
  const auto requests = f.web->requests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_THAT(requests[1].headers, Contains(Pair("x-amz-create-session-mode", "ReadOnly")));
}

TEST(ExpressSession, DeniedOnesSayWhy) {
  Fixture f({{403, {}, "<Error><Code>AccessDenied</Code></Error>"},
             {403, {}, "<Error><Code>AccessDenied</Code></Error>"}});
  auto current = f.settled(kNow);
  ASSERT_FALSE(current.has_value());
  EXPECT_EQ(current.error().code(), Code::kDenied);
  EXPECT_THAT(std::string(current.error().message()),
              HasSubstr("CreateSession s3://data--use1-az4--x-s3: AccessDenied"));
}

TEST(ExpressSession, ReadsTheAnswer) {
  auto good = parse_session(session("A", "2015-08-30T12:41:00.000Z"));
  ASSERT_TRUE(good.has_value());
  EXPECT_EQ(good->expires, kNow + std::chrono::seconds(300));
  for (const std::string& bad : {std::string(), std::string("<html/>"), session("A", "soon")})
    EXPECT_EQ(parse_session(bad).error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace::s3
