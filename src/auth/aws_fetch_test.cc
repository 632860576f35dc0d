#include "auth/aws_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "auth/fake_world.h"

namespace headrace::auth {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kExpiry = "2026-11-21T13:00:00Z";  // an hour after FakeWorld::kNow

WebAnswer json_answer(std::string body, int status = 200) {
  return {status, {{"content-type", "application/json"}}, std::move(body)};
}

/// As STS answers (AWS's documentation of AssumeRole).
WebAnswer sts_answer(const std::string& action, const std::string& id = "ASIAROLE") {
  return {
      200,
      {},
      "<" + action + "Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n  <" + action +
          "Result>\n    <AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/me</Arn>"
          "</AssumedRoleUser>\n    <Credentials>\n      <AccessKeyId>" +
          id +
          "</AccessKeyId>\n      <SecretAccessKey>rolesecret</SecretAccessKey>\n"
          "      <SessionToken>roletoken</SessionToken>\n      <Expiration>" +
          kExpiry + "</Expiration>\n    </Credentials>\n  </" + action +
          "Result>\n  <ResponseMetadata><RequestId>c6104cbe</RequestId></ResponseMetadata>\n</" +
          action + "Response>"};
}

WebAnswer sts_error(const std::string& code, int status) {
  return {status,
          {},
          "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender"
          "</Type><Code>" +
              code +
              "</Code><Message>said so</Message></Error><RequestId>x</RequestId>"
              "</ErrorResponse>"};
}

class Fetch : public testing::Test, protected FakeWorld {
 protected:
  void config(std::string text) { files["/home/u/.aws/config"] = std::move(text); }
  Credentials fetched() {
    auto found = fetch();
    EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message());
    return found ? *std::move(found) : Credentials();
  }
  /// "denied: ...", and never with a secret.
  std::string failure() {
    auto found = fetch();
    if (found) return "no failure";
    const std::string message(found.error().message());
    for (const char* secret : {"verysecret", "verytoken", "rolesecret", "roletoken", "refreshme"})
      EXPECT_THAT(message, Not(HasSubstr(secret)));
    return std::string(code_name(found.error().code())) + ": " + message;
  }
  WebAnswer& answer(const std::string& request) { return web->answers[request]; }
};

// --- STS ---

class WebIdentity : public Fetch {
 protected:
  WebIdentity() {
    environment.variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/var/token";
    environment.variables["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/pods";
    environment.variables["AWS_REGION"] = "eu-west-1";
    files["/var/token"] = "ey.verytoken.x\n";
  }
  static constexpr const char* kSts = "POST https://sts.eu-west-1.amazonaws.com/";
};

TEST_F(WebIdentity, TradesTheTokenUnsigned) {
  answer(kSts) = sts_answer("AssumeRoleWithWebIdentity");
  const Credentials found = fetched();
  EXPECT_EQ(found.access_key_id, "ASIAROLE");
  EXPECT_EQ(found.secret_access_key, "rolesecret");
  EXPECT_EQ(found.session_token, "roletoken");
  EXPECT_EQ(found.expires, clock.wall_now() + std::chrono::hours(1));
  const WebRequest& sent = web->requests.at(0);
  EXPECT_EQ(sent.body,
            "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fpods&"
            "RoleSessionName=headrace-1795262400&WebIdentityToken=ey.verytoken.x&"
            "Version=2011-06-15");
  EXPECT_EQ(header_of(sent, "authorization"), "");
}

TEST_F(WebIdentity, ReadsTheTokenAnewEachTime) {
  answer(kSts) = sts_answer("AssumeRoleWithWebIdentity");
  (void)fetched();
  files["/var/token"] = "second";
  (void)fetched();
  EXPECT_THAT(web->requests.at(1).body, HasSubstr("WebIdentityToken=second"));
}

TEST_F(WebIdentity, WithoutRegionAsksTheGlobalEndpointAndInChinaItsOwn) {
  environment.variables["AWS_REGION"] = "";
  answer("POST https://sts.amazonaws.com/") = sts_answer("AssumeRoleWithWebIdentity");
  EXPECT_EQ(fetched().access_key_id, "ASIAROLE");
  environment.variables["AWS_REGION"] = "cn-north-1";
  answer("POST https://sts.cn-north-1.amazonaws.com.cn/") = sts_answer("X", "ASIACHINA");
  EXPECT_EQ(fetched().access_key_id, "ASIACHINA");
}

TEST_F(WebIdentity, RespectsTheEndpointVariable) {
  environment.variables["AWS_ENDPOINT_URL_STS"] = "http://127.0.0.1:9000/minio";
  answer("POST http://127.0.0.1:9000/minio/") = sts_answer("AssumeRoleWithWebIdentity");
  EXPECT_EQ(fetched().access_key_id, "ASIAROLE");
}

TEST_F(WebIdentity, RefusalsSayWhatToDo) {
  struct Row {
    const char* code;
    int status;
    const char* expected;
  };
  for (const Row& row :
       std::initializer_list<Row>{{"ExpiredTokenException", 400,
                                   "denied: web identity (AWS_WEB_IDENTITY_TOKEN_FILE): "
                                   "arn:aws:iam::1:role/pods: STS: HTTP 400"},
                                  {"AccessDenied", 403, "trust policy"},
                                  {"InvalidIdentityToken", 400, "check the identity provider"},
                                  {"RegionDisabledException", 403, "enable STS"},
                                  {"IDPCommunicationError", 400, "unavailable: "},
                                  {"Throttling", 400, "throttled: "},
                                  {"InternalFailure", 500, "unavailable: "}}) {
    answer(kSts) = sts_error(row.code, row.status);
    EXPECT_THAT(failure(), HasSubstr(row.expected)) << row.code;
  }
}

TEST_F(WebIdentity, MalformedAnswersAreDenied) {
  for (const char* body : {"", "no xml", "<a><b><Credentials/></b></a>", "<html></html>"}) {
    answer(kSts) = WebAnswer{200, {}, body};
    EXPECT_THAT(failure(), HasSubstr("denied: ")) << body;
  }
  web->answers.clear();
  EXPECT_THAT(failure(), HasSubstr("unavailable: "));
  files.erase("/var/token");
  EXPECT_THAT(failure(), HasSubstr("cannot read a token from /var/token"));
}

TEST_F(Fetch, AssumeRoleIsSignedWithTheSourcesKeys) {
  environment.variables["AWS_REGION"] = "us-west-2";
  config(
      "[default]\nrole_arn=arn:r\nsource_profile=a\nexternal_id=ext&1\nduration_seconds=900\n"
      "role_session_name=me\n[profile a]\naws_access_key_id=AKIDBASE\n"
      "aws_secret_access_key=verysecret\naws_session_token=verytoken\n");
  answer("POST https://sts.us-west-2.amazonaws.com/") = sts_answer("AssumeRole");
  EXPECT_EQ(fetched().access_key_id, "ASIAROLE");
  const WebRequest& sent = web->requests.at(0);
  EXPECT_EQ(sent.body,
            "Action=AssumeRole&RoleArn=arn%3Ar&RoleSessionName=me&DurationSeconds=900&"
            "ExternalId=ext%261&Version=2011-06-15");
  EXPECT_EQ(header_of(sent, "x-amz-security-token"), "verytoken");
  EXPECT_EQ(header_of(sent, "x-amz-date"), "20261121T120000Z");
  // The signature of botocore's SigV4Auth for the same request.
  EXPECT_EQ(header_of(sent, "authorization"),
            "AWS4-HMAC-SHA256 "
            "Credential=AKIDBASE/20261121/us-west-2/sts/aws4_request, "
            "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, "
            "Signature=05cb01948d0f97c5f8f84a64732b31f2ef3ff887d01b0a3536186a133cb673b0");
  EXPECT_THAT(sent.body, Not(HasSubstr("verysecret")));
}

TEST_F(Fetch, AFailureInsideAChainNamesTheWay) {
  config(
      "[default]\nrole_arn=arn:outer\nsource_profile=b\n[profile b]\nrole_arn=arn:inner\n"
      "source_profile=c\n[profile c]\ncredential_process=/opt/tool\n");
  processes->answer = {1, "", "locked"};
  const std::string message = failure();
  EXPECT_THAT(message, HasSubstr("role (profile \"default\""));
  EXPECT_THAT(message, HasSubstr("role (profile \"b\""));
  EXPECT_THAT(message, HasSubstr("ended with 1: locked"));
}

TEST_F(Fetch, CallerIdentity) {
  answer("POST https://sts.amazonaws.com/") =
      WebAnswer{200,
                {},
                "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
                "<GetCallerIdentityResult><Arn>arn:aws:iam::1:user/Alice</Arn><UserId>AID</UserId>"
                "<Account>1</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"};
  auto name = caller_identity({"AKID", "verysecret", "", {}}, {}, world(), {});
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(*name, "arn:aws:iam::1:user/Alice");
  EXPECT_THAT(header_of(web->requests.at(0), "authorization"), HasSubstr("us-east-1/sts"));
  answer("POST https://sts.amazonaws.com/") = sts_error("InvalidClientTokenId", 403);
  EXPECT_EQ(caller_identity({"AKID", "verysecret", "", {}}, {}, world(), {}).error().code(),
            Code::kDenied);
}

// --- IAM Identity Center ---

class Sso : public Fetch {
 protected:
  Sso() {
    config(
        "[default]\nsso_session=corp\nsso_account_id=123\nsso_role_name=Reader/x\n"
        "[sso-session corp]\nsso_start_url=https://corp\nsso_region=eu-west-1\n");
    cache_file_ = resolve()->plan.sso.cache_file;
    login("2026-11-21T20:00:00Z");
    answer(kKeys) =
        json_answer(R"({"roleCredentials":{"accessKeyId":"ASIASSO","secretAccessKey":"rolesecret",)"
                    R"("sessionToken":"roletoken","expiration":1795266000000}})");
  }
  void login(const std::string& expires) {
    files[cache_file_] =
        R"({"startUrl":"https://corp","region":"eu-west-1","accessToken":"verytoken","expiresAt":")" +
        expires +
        R"(","clientId":"id","clientSecret":"verysecret",)"
        R"("registrationExpiresAt":"2027-01-01T00:00:00Z","refreshToken":"refreshme"})";
  }

  static constexpr const char* kKeys =
      "GET https://portal.sso.eu-west-1.amazonaws.com/federation/credentials?"
      "role_name=Reader%2Fx&account_id=123";
  static constexpr const char* kToken = "POST https://oidc.eu-west-1.amazonaws.com/token";
  std::string cache_file_;
};

TEST_F(Sso, TradesTheCachedToken) {
  const Credentials found = fetched();
  EXPECT_EQ(found.access_key_id, "ASIASSO");
  EXPECT_EQ(found.expires, clock.wall_now() + std::chrono::hours(1));
  EXPECT_EQ(header_of(web->requests.at(0), "x-amz-sso_bearer_token"), "verytoken");
}

TEST_F(Sso, RenewsATokenThatEndsAndKeepsTheNewOne) {
  login("2026-11-21T12:10:00Z");
  answer(kToken) = json_answer(
      R"({"accessToken":"newtoken","expiresIn":28800,"refreshToken":"next","tokenType":"Bearer"})");
  EXPECT_EQ(fetched().access_key_id, "ASIASSO");
  EXPECT_THAT(web->requests.at(0).body, HasSubstr(R"("grantType":"refresh_token")"));
  EXPECT_EQ(header_of(web->requests.at(1), "x-amz-sso_bearer_token"), "newtoken");
  EXPECT_THAT(files[cache_file_], HasSubstr(R"("expiresAt":"2026-11-21T20:00:00Z")"));
  EXPECT_THAT(files[cache_file_], HasSubstr(R"("refreshToken":"next")"));
  EXPECT_THAT(files[cache_file_], HasSubstr(R"("clientId":"id")"));
}

TEST_F(Sso, ATokenThatStillServesOutlivesAFailedRenewal) {
  login("2026-11-21T12:10:00Z");
  answer(kToken) = json_answer(R"({"error":"invalid_grant"})", 400);
  EXPECT_EQ(fetched().access_key_id, "ASIASSO");
}

TEST_F(Sso, AnEndedSessionAsksForALogin) {
  login("2026-11-21T11:00:00Z");
  answer(kToken) = json_answer(R"({"error":"invalid_grant"})", 400);
  EXPECT_THAT(failure(), HasSubstr("run: aws sso login --profile default"));
  answer(kToken) = json_answer("{}", 503);
  EXPECT_THAT(failure(), HasSubstr("unavailable: "));
  files.erase(cache_file_);
  EXPECT_THAT(failure(), HasSubstr("nobody is logged in"));
  files[cache_file_] = "{broken";
  EXPECT_THAT(failure(), HasSubstr("holds no token"));
}

TEST_F(Sso, RefusalsOfThePortal) {
  answer(kKeys) = json_answer(R"({"message":"Session token not found or invalid"})", 401);
  EXPECT_THAT(failure(), HasSubstr("aws sso login"));
  answer(kKeys) = json_answer(R"({"message":"No access"})", 403);
  EXPECT_THAT(failure(), HasSubstr("Reader/x in account 123 is assigned to you"));
  answer(kKeys) = json_answer("{}", 500);
  EXPECT_THAT(failure(), HasSubstr("unavailable: "));
  answer(kKeys) = json_answer(R"({"roleCredentials":[]})");
  EXPECT_THAT(failure(), HasSubstr("answer without keys"));
}

TEST_F(Sso, TheLegacyFormHasNoRenewal) {
  config(
      "[default]\nsso_start_url=https://old\nsso_region=eu-west-1\nsso_account_id=123\n"
      "sso_role_name=Reader/x\n");
  cache_file_ = resolve()->plan.sso.cache_file;
  login("2026-11-21T12:10:00UTC");
  EXPECT_EQ(fetched().access_key_id, "ASIASSO");
  login("2026-11-21T11:59:00UTC");
  EXPECT_THAT(failure(), HasSubstr("aws sso login"));
}

// --- credential_process ---

class Process : public Fetch {
 protected:
  Process() { config("[default]\ncredential_process = /opt/tool --user \"a b\" 'c'\n"); }
  void prints(std::string text) { processes->answer = {0, std::move(text), ""}; }
};

TEST_F(Process, ReadsVersionOne) {
  prints(R"({"Version":1,"AccessKeyId":"ASIAPROC","SecretAccessKey":"s","SessionToken":"t",)"
         R"("Expiration":"2026-11-21T14:00:00+01:00"})");
  const Credentials found = fetched();
  EXPECT_EQ(found.access_key_id, "ASIAPROC");
  EXPECT_EQ(found.expires, clock.wall_now() + std::chrono::hours(1));
  EXPECT_THAT(processes->started.at(0), testing::ElementsAre("/opt/tool", "--user", "a b", "c"));
}

TEST_F(Process, WithoutExpirationItServesForEver) {
  prints(R"({"Version":1,"AccessKeyId":"ASIAPROC","SecretAccessKey":"s"})");
  EXPECT_FALSE(fetched().expires.has_value());
}

TEST_F(Process, MistakesOfTheTool) {
  for (const char* text : {"", "{", "[]", R"({"Version":2})", R"({"Version":1,"AccessKeyId":"A"})",
                           R"({"Version":1,"AccessKeyId":7,"SecretAccessKey":"rolesecret"})"}) {
    prints(text);
    EXPECT_THAT(failure(), HasSubstr("denied: process (profile \"default\"")) << text;
  }
  prints(R"({"Version":1,"AccessKeyId":"A","SecretAccessKey":"s","Expiration":"soon"})");
  EXPECT_THAT(failure(), HasSubstr("ISO 8601"));
  prints(R"({"Version":1,"AccessKeyId":"A\r\nX: y","SecretAccessKey":"s"})");
  EXPECT_THAT(failure(), HasSubstr("control character"));
  processes->answer = {3, "verysecret", "please log in first\nmore"};
  EXPECT_THAT(failure(), HasSubstr("ended with 3: please log in first"));
  config("[default]\ncredential_process = 'open\n");
  EXPECT_THAT(failure(), HasSubstr("open quote"));
}

// --- container ---

class Container : public Fetch {
 protected:
  Container() {
    environment.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://169.254.170.23/v1/creds";
    answer(kUrl) = json_answer(R"({"AccessKeyId":"ASIAPOD","SecretAccessKey":"s","Token":"t",)"
                               R"("Expiration":"2026-11-21T13:00:00Z","AccountId":"1"})");
  }
  static constexpr const char* kUrl = "GET http://169.254.170.23/v1/creds";
};

TEST_F(Container, SendsTheTokenOfTheFile) {
  environment.variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "old";
  environment.variables["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = "/pod/token";
  files["/pod/token"] = "verytoken\n";
  EXPECT_EQ(fetched().session_token, "t");
  EXPECT_EQ(header_of(web->requests.at(0), "authorization"), "verytoken");
  EXPECT_TRUE(web->requests.at(0).is_local) << "no proxy sees the token";
  files.erase("/pod/token");
  EXPECT_THAT(failure(), HasSubstr("cannot read AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
}

TEST_F(Container, RelativeUriIsOfEcs) {
  environment.variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/credentials/uuid?a=b";
  answer("GET http://169.254.170.2/v2/credentials/uuid?a=b") = answer(kUrl);
  EXPECT_EQ(fetched().access_key_id, "ASIAPOD");
  EXPECT_EQ(header_of(web->requests.at(0), "authorization"), "");
}

TEST_F(Container, Failures) {
  environment.variables["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "bad\r\nx: verytoken";
  EXPECT_THAT(failure(), HasSubstr("line end"));
  environment.variables.erase("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  answer(kUrl) = json_answer(R"({"message":"no role"})", 400);
  EXPECT_THAT(failure(), HasSubstr("HTTP 400 no role; check the role"));
  answer(kUrl) = json_answer("", 500);
  EXPECT_THAT(failure(), HasSubstr("unavailable: "));
  answer(kUrl) = json_answer("", 429);
  EXPECT_THAT(failure(), HasSubstr("throttled: "));
}

// --- EC2 ---

class Instance : public Fetch {
 protected:
  Instance() {
    files["/sys/class/dmi/id/sys_vendor"] = "Amazon EC2\n";
    answer(kToken) = WebAnswer{200, {}, "v2token"};
    answer(kRole) = WebAnswer{200, {}, "web-role\n"};
    put_keys("2026-11-21T13:00:00Z");
  }
  void put_keys(const std::string& expires) {
    answer(std::string(kRole) + "web-role") =
        json_answer(R"({"Code":"Success","LastUpdated":"2026-11-21T11:00:00Z","Type":"AWS-HMAC",)"
                    R"("AccessKeyId":"ASIAEC2","SecretAccessKey":"s","Token":"t","Expiration":")" +
                    expires + "\"}");
  }
  static constexpr const char* kToken = "PUT http://169.254.169.254/latest/api/token";
  static constexpr const char* kRole =
      "GET http://169.254.169.254/latest/meta-data/iam/security-credentials/";
};

TEST_F(Instance, AsksByVersionTwo) {
  EXPECT_EQ(fetched().access_key_id, "ASIAEC2");
  ASSERT_EQ(web->requests.size(), 3U);
  EXPECT_EQ(header_of(web->requests[0], "x-aws-ec2-metadata-token-ttl-seconds"), "21600");
  for (const WebRequest& request : web->requests) EXPECT_TRUE(request.is_local);
  EXPECT_EQ(header_of(web->requests[1], "x-aws-ec2-metadata-token"), "v2token");
  EXPECT_EQ(header_of(web->requests[2], "x-aws-ec2-metadata-token"), "v2token");
}

TEST_F(Instance, FallsBackToVersionOneUnlessThatIsDisabled) {
  for (int status : {403, 404, 405}) {
    answer(kToken) = WebAnswer{status, {}, ""};
    EXPECT_EQ(fetched().access_key_id, "ASIAEC2");
    EXPECT_EQ(header_of(web->requests.back(), "x-aws-ec2-metadata-token"), "");
  }
  web->answers.erase(kToken);  // one hop too far: no answer
  EXPECT_EQ(fetched().access_key_id, "ASIAEC2");
  environment.variables["AWS_EC2_METADATA_V1_DISABLED"] = "true";
  EXPECT_THAT(failure(), HasSubstr("unavailable: "));
  answer(kToken) = WebAnswer{403, {}, ""};
  EXPECT_THAT(failure(), HasSubstr("metadata options forbid it"));
}

TEST_F(Instance, Failures) {
  answer(kRole) = WebAnswer{404, {}, ""};
  EXPECT_THAT(failure(), HasSubstr("no role; attach an instance profile"));
  answer(kRole) = WebAnswer{401, {}, ""};
  EXPECT_THAT(failure(), HasSubstr("hop limit to 2"));
  answer(kRole) = WebAnswer{500, {}, ""};
  EXPECT_THAT(failure(), HasSubstr("unavailable: "));
  answer(kRole) = WebAnswer{200, {}, "web-role"};
  answer(std::string(kRole) + "web-role") =
      json_answer(R"({"Code":"AssumeRoleUnauthorizedAccess","Message":"trust"})");
  EXPECT_THAT(failure(), HasSubstr("denied: "));
}

TEST_F(Instance, ExpiredKeysOfADisturbedServiceServeTenMinutesMore) {
  put_keys("2026-11-21T11:59:00Z");
  EXPECT_EQ(fetched().expires, clock.wall_now() + std::chrono::minutes(10));
}

TEST_F(Instance, NobodyThereIsDeniedAfterOneTryWhereItIsUncertain) {
  files.clear();
  web->answers.clear();
  EXPECT_THAT(failure(), HasSubstr("denied: instance (instance metadata service at"));
  EXPECT_EQ(web->requests.size(), 1U);
  EXPECT_LE(web->requests[0].timeout, std::chrono::seconds(1));
}

TEST_F(Instance, TheWholeSearchIsTheStory) {
  files.clear();
  web->answers.clear();
  auto provider = make_aws_provider(*resolve(), world());
  auto got = provider->current(clock.wall_now());
  while (!got && got.error().code() == Code::kUnavailable) {
    std::this_thread::yield();
    got = provider->current(clock.wall_now());
  }
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().code(), Code::kDenied);
  EXPECT_THAT(std::string(got.error().message()), HasSubstr("AWS_ACCESS_KEY_ID"));
  EXPECT_THAT(std::string(got.error().message()), HasSubstr("/home/u/.aws/credentials"));
}

// --- providers ---

TEST_F(Instance, AProviderContactsNobodyBeforeItsFirstUse) {
  auto provider = make_aws_provider(*resolve(), world());
  ASSERT_NE(provider, nullptr);
  provider.reset();
  EXPECT_TRUE(web->requests.empty());
}

TEST_F(Instance, ARefusalByTheStoreFetchesNewOnes) {
  auto provider = make_aws_provider(*resolve(), world());
  const auto settled = [&] {
    auto got = provider->current(clock.wall_now());
    while (!got && got.error().code() == Code::kUnavailable) {
      std::this_thread::yield();
      got = provider->current(clock.wall_now());
    }
    return *got;
  };
  const auto first = settled();
  put_keys("2026-11-21T18:00:00Z");
  EXPECT_TRUE(provider->invalidate(*first));
  EXPECT_EQ(settled()->expires, clock.wall_now() + std::chrono::hours(6));
}

TEST_F(Fetch, KeysInTheEnvironmentNeedNoProvidersThread) {
  environment.variables["AWS_ACCESS_KEY_ID"] = "AKID";
  environment.variables["AWS_SECRET_ACCESS_KEY"] = "verysecret";
  auto provider = make_aws_provider(*resolve(), {});
  EXPECT_EQ((*provider->current(clock.wall_now()))->access_key_id, "AKID");
}

TEST(Timestamps, AllFormsOfTheServices) {
  const WallTime noon{std::chrono::seconds(FakeWorld::kNow)};
  for (const char* text :
       {"2026-11-21T12:00:00Z", "2026-11-21T12:00:00.123Z", "2026-11-21T12:00:00UTC",
        "2026-11-21T12:00:00+00:00", "2026-11-21T14:30:00+02:30", "2026-11-21T11:00:00.5-01:00"})
    EXPECT_EQ(parse_timestamp(text), noon) << text;
  for (const char* text : {"", "UTC", "soon", "2026-11-21", "2026-11-21T12:00:00+0:00", "+00:00"})
    EXPECT_FALSE(parse_timestamp(text).has_value()) << text;
}

}  // namespace
}  // namespace headrace::auth
