#include "auth/google_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/manual_clock.h"

namespace headrace::auth {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

/// Answers in order; keeps the requests.
class ScriptedWeb final : public WebClient {
 public:
  Result<WebAnswer> fetch(const WebRequest& request, std::stop_token) override {
    requests.push_back(request);
    if (answers.empty()) return Status(Code::kUnavailable, "connection refused");
    WebAnswer answer = answers.front();
    answers.erase(answers.begin());
    return answer;
  }
  std::vector<WebAnswer> answers;
  std::vector<WebRequest> requests;
};

std::string test_key() {
  std::ifstream in(std::filesystem::path(HEADRACE_SOURCE_DIR) /
                   "tests/data/google/signed_url_v4.json");
  return json::parse(in)["account"]["private_key"].get<std::string>();
}

json account(const std::string& token_uri) {
  return {{"type", "service_account"},   {"client_email", "robot@p.iam.gserviceaccount.com"},
          {"private_key_id", "kid1"},    {"private_key", test_key()},
          {"project_id", "the-project"}, {"token_uri", token_uri}};
}

class GoogleTokens : public testing::Test {
 protected:
  Result<Token> fetch(const json& file) {
    auto identity = parse_google_identity(file.dump());
    if (!identity) return std::move(identity).error();
    return fetch_google_token(*identity, tools(), {});
  }
  GoogleTokenTools tools() {
    return {web_,
            [this](const std::string& path) -> std::optional<std::string> {
              const auto it = files_.find(path);
              if (it == files_.end()) return std::nullopt;
              return it->second;
            },
            &clock_};
  }
  Result<GoogleSettings> resolve(std::map<std::string, std::string> variables) {
    Environment environment;
    environment.variables = std::move(variables);
    return resolve_google_settings(environment, tools().read_file);
  }
  std::string header(std::size_t request, const std::string& name) {
    for (const auto& [key, value] : web_->requests.at(request).headers) {
      if (key == name) return value;
    }
    return {};
  }
  WallTime now() { return clock_.wall_now(); }

  std::shared_ptr<ScriptedWeb> web_ = std::make_shared<ScriptedWeb>();
  std::map<std::string, std::string> files_;
  ManualClock clock_;
};

TEST_F(GoogleTokens, AServiceAccountSignsItsOwnTokenForGoogle) {
  auto token = fetch(account("https://oauth2.googleapis.com/token"));
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_TRUE(web_->requests.empty());
  EXPECT_EQ(std::count(token->text.begin(), token->text.end(), '.'), 2);
  EXPECT_THAT(token->text,
              testing::StartsWith(base64_url(R"({"alg":"RS256","kid":"kid1","typ":"JWT"})") + "."));
  EXPECT_EQ(token->expires, now() + std::chrono::hours(1));
}

TEST_F(GoogleTokens, AServiceAccountOfAnotherTokenServiceExchangesAnAssertion) {
  web_->answers = {{200, {}, R"({"access_token":"ya29.x","expires_in":600})"}};
  auto token = fetch(account("https://tokens.example/t"));
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ(token->text, "ya29.x");
  EXPECT_EQ(token->expires, now() + std::chrono::seconds(600));
  EXPECT_EQ(web_->requests[0].url, "https://tokens.example/t");
  EXPECT_THAT(web_->requests[0].body,
              testing::StartsWith("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-"
                                  "bearer&assertion="));
}

TEST_F(GoogleTokens, AUserRefreshes) {
  const json user = {{"type", "authorized_user"},
                     {"client_id", "id"},
                     {"client_secret", "s e"},
                     {"refresh_token", "1//r"}};
  web_->answers = {{200, {}, R"({"access_token":"ya29.u","expires_in":3599})"},
                   {400, {}, R"({"error":"invalid_grant","error_description":"Bad Request"})"}};
  auto token = fetch(user);
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ(web_->requests[0].url, "https://oauth2.googleapis.com/token");
  EXPECT_EQ(web_->requests[0].body,
            "grant_type=refresh_token&client_id=id&client_secret=s%20e&refresh_token=1%2F%2Fr");
  auto refused = fetch(user);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kDenied);
  const std::string message(refused.error().message());
  EXPECT_THAT(message, HasSubstr("invalid_grant"));
  EXPECT_THAT(message, HasSubstr("gcloud auth application-default login"));
  EXPECT_THAT(message, Not(HasSubstr("1//r")));
}

json federation() {
  return {{"type", "external_account"},
          {"audience", "//iam.googleapis.com/pool"},
          {"subject_token_type", "urn:ietf:params:oauth:token-type:jwt"},
          {"token_url", "https://sts.googleapis.com/v1/token"},
          {"credential_source", {{"file", "/var/run/token"}}}};
}

TEST_F(GoogleTokens, AFederatedIdentityTradesItsTokenAndImpersonates) {
  files_["/var/run/token"] = "subject.jwt\n";
  json file = federation();
  file["service_account_impersonation_url"] =
      "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@b:generateAccessToken";
  web_->answers = {{200, {}, R"({"access_token":"fed","expires_in":3600})"},
                   {200, {}, R"({"accessToken":"ya29.i","expireTime":"2026-11-21T13:00:00Z"})"}};
  auto token = fetch(file);
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ(token->text, "ya29.i");
  EXPECT_EQ(token->expires->time_since_epoch().count(), 1'795'266'000);
  EXPECT_THAT(web_->requests[0].body, HasSubstr("&subject_token=subject.jwt&"));
  EXPECT_EQ(header(1, "authorization"), "Bearer fed");
  EXPECT_EQ(json::parse(web_->requests[1].body)["lifetime"], "3600s");
}

TEST_F(GoogleTokens, ASubjectTokenMayComeFromAUrlAsJson) {
  json file = federation();
  file["credential_source"] = {
      {"url", "http://169.254.169.254/token"},
      {"headers", {{"Metadata", "True"}}},
      {"format", {{"type", "json"}, {"subject_token_field_name", "access_token"}}}};
  web_->answers = {{200, {}, R"({"access_token":"azure"})"},
                   {200, {}, R"({"access_token":"fed","expires_in":3600})"}};
  auto token = fetch(file);
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ(header(0, "Metadata"), "True");
  EXPECT_THAT(web_->requests[1].body, HasSubstr("&subject_token=azure&"));
}

TEST_F(GoogleTokens, WhatIsMissingOfAFederatedIdentityIsNamed) {
  EXPECT_EQ(fetch(federation()).error().code(), Code::kNotFound);  // no such file
  files_["/var/run/token"] = "\n";
  EXPECT_EQ(fetch(federation()).error().code(), Code::kCorrupt);
  json program = federation();
  program["credential_source"] = {{"executable", {{"command", "/bin/x"}}}};
  EXPECT_EQ(fetch(program).error().code(), Code::kUnsupported);
  json aws = federation();
  aws["credential_source"] = {{"environment_id", "aws1"}};
  EXPECT_EQ(fetch(aws).error().code(), Code::kUnsupported);
}

TEST_F(GoogleTokens, AnImpersonatedAccountAsksWithItsSource) {
  const json file = {{"type", "impersonated_service_account"},
                     {"service_account_impersonation_url", "https://iam/x:generateAccessToken"},
                     {"delegates", {"d1"}},
                     {"source_credentials", account("https://oauth2.googleapis.com/token")}};
  web_->answers = {{200, {}, R"({"accessToken":"ya29.i","expireTime":"2026-11-21T13:00:00Z"})"}};
  auto token = fetch(file);
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ(json::parse(web_->requests[0].body)["delegates"][0], "d1");
}

TEST_F(GoogleTokens, AMachineAsksItsMetadataServer) {
  auto settings = resolve({{"GCE_METADATA_HOST", "meta:8080"}});
  ASSERT_TRUE(settings);
  web_->answers = {{200, {}, R"({"access_token":"ya29.c..","expires_in":1000})"}};
  auto token = fetch_google_token(*settings->identity, tools(), {});
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ(token->text, "ya29.c..");
  EXPECT_THAT(web_->requests[0].url,
              testing::StartsWith("http://meta:8080/computeMetadata/v1/instance/service-accounts/"
                                  "default/token"));
  EXPECT_EQ(header(0, "metadata-flavor"), "Google");
  EXPECT_TRUE(web_->requests[0].is_local);
}

TEST_F(GoogleTokens, AnswersThatAreNoTokensSayWhetherToTryAgain) {
  const json user = {{"type", "authorized_user"}, {"client_id", "i"}, {"refresh_token", "r"}};
  const std::pair<WebAnswer, Code> cases[] = {
      {{500, {}, ""}, Code::kUnavailable},
      {{408, {}, ""}, Code::kUnavailable},
      {{429, {}, ""}, Code::kThrottled},
      {{403, {}, ""}, Code::kDenied},
      {{200, {}, "<html>"}, Code::kCorrupt},
      {{200, {}, "{}"}, Code::kCorrupt},
      {{200, {}, "{\"access_token\":\"a\\nb\"}"}, Code::kCorrupt}};
  for (const auto& [answer, code] : cases) {
    web_->answers = {answer};
    EXPECT_EQ(fetch(user).error().code(), code) << answer.status << answer.body;
  }
  EXPECT_EQ(fetch(user).error().code(), Code::kUnavailable) << "nobody answers";
}

TEST_F(GoogleTokens, FindsWhatIsSetFirst) {
  files_["/home/u/.config/gcloud/application_default_credentials.json"] = json{
      {"type", "authorized_user"},
      {"client_id", "i"},
      {"refresh_token", "r"},
      {"quota_project_id", "paying"}}.dump();
  files_["/key.json"] = account("https://oauth2.googleapis.com/token").dump();
  auto hmac = resolve({{"GS_ACCESS_KEY_ID", "GOOGX"},
                       {"GS_SECRET_ACCESS_KEY", "s"},
                       {"GOOGLE_APPLICATION_CREDENTIALS", "/key.json"}});
  ASSERT_TRUE(hmac);
  EXPECT_TRUE(hmac->hmac);
  EXPECT_FALSE(hmac->identity);
  auto file = resolve({{"GOOGLE_APPLICATION_CREDENTIALS", "/key.json"}, {"HOME", "/home/u"}});
  ASSERT_TRUE(file);
  EXPECT_EQ(file->identity->kind, GoogleIdentity::Kind::kServiceAccount);
  EXPECT_EQ(file->project, "the-project");
  EXPECT_THAT(file->credentials_source, HasSubstr("robot@p.iam.gserviceaccount.com (/key.json)"));
  auto home = resolve({{"HOME", "/home/u"}, {"GOOGLE_CLOUD_PROJECT", "mine"}});
  ASSERT_TRUE(home);
  EXPECT_EQ(home->identity->kind, GoogleIdentity::Kind::kAuthorizedUser);
  EXPECT_EQ(home->project, "mine");
  auto elsewhere = resolve({{"HOME", "/home/u"}, {"CLOUDSDK_CONFIG", "/nowhere"}});
  ASSERT_TRUE(elsewhere);
  EXPECT_FALSE(elsewhere->identity);
}

TEST_F(GoogleTokens, AMachineElsewhereIsNeverAskedForItsMetadata) {
  files_["/sys/class/dmi/id/product_name"] = "Standard PC (Q35)\n";
  auto settings = resolve({{"HOME", "/home/u"}});
  ASSERT_TRUE(settings);
  EXPECT_FALSE(settings->identity);
  const Status missing = settings->missing_credentials();
  EXPECT_EQ(missing.code(), Code::kDenied);
  for (const char* part : {"GS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS",
                           "/home/u/.config/gcloud/application_default_credentials.json",
                           "not at Google", "--anonymous"}) {
    EXPECT_THAT(std::string(missing.message()), HasSubstr(part));
  }
  files_["/sys/class/dmi/id/product_name"] = "Google Compute Engine\n";
  EXPECT_EQ(resolve({})->identity->metadata_host, "169.254.169.254");
  EXPECT_FALSE(resolve({{"NO_GCE_CHECK", "true"}})->identity);
  EXPECT_TRUE(resolve({{"K_SERVICE", "run"}})->identity);
}

TEST_F(GoogleTokens, HalfAPairAndBadFilesAreErrorsThatShowNothingSecret) {
  EXPECT_EQ(resolve({{"GS_ACCESS_KEY_ID", "x"}}).error().code(), Code::kDenied);
  EXPECT_EQ(resolve({{"GS_SECRET_ACCESS_KEY", "x"}}).error().code(), Code::kDenied);
  EXPECT_EQ(resolve({{"GOOGLE_APPLICATION_CREDENTIALS", "/none"}}).error().code(), Code::kDenied);
  const std::pair<std::string, Code> files[] = {
      {"no json", Code::kInvalidArgument},
      {"[]", Code::kInvalidArgument},
      {"{}", Code::kInvalidArgument},
      {R"({"type":"service_account","client_email":"a"})", Code::kInvalidArgument},
      {R"({"type":"service_account","client_email":"a","private_key":"HIDDEN"})",
       Code::kInvalidArgument},
      {R"({"type":"authorized_user","client_id":"a"})", Code::kInvalidArgument},
      {R"({"type":"external_account","audience":"a"})", Code::kInvalidArgument},
      {R"({"type":"gdch_service_account"})", Code::kUnsupported}};
  for (const auto& [text, code] : files) {
    files_["/bad"] = text;
    auto settings = resolve({{"GOOGLE_APPLICATION_CREDENTIALS", "/bad"}});
    ASSERT_FALSE(settings) << text;
    EXPECT_EQ(settings.error().code(), code) << text;
    EXPECT_THAT(std::string(settings.error().message()), HasSubstr("/bad"));
    EXPECT_THAT(std::string(settings.error().message()), Not(HasSubstr("HIDDEN")));
  }
}

}  // namespace
}  // namespace headrace::auth
