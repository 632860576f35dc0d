#include "auth/aws_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "auth/fake_world.h"

namespace headrace::auth {
namespace {

using testing::HasSubstr;

class Plan : public testing::Test, protected FakeWorld {
 protected:
  void config(std::string text) { files["/home/u/.aws/config"] = std::move(text); }
  void shared(std::string text) { files["/home/u/.aws/credentials"] = std::move(text); }
  AwsPlan plan() {
    auto settings = resolve();
    EXPECT_TRUE(settings.has_value()) << (settings ? "" : settings.error().message());
    return settings ? settings->plan : AwsPlan();
  }
  std::string refusal(Code code = Code::kDenied) {
    auto settings = resolve();
    if (settings) return "accepted";
    EXPECT_EQ(settings.error().code(), code);
    return std::string(settings.error().message());
  }
};

constexpr const char* kKeys = "aws_access_key_id=AKIDKEYS\naws_secret_access_key=s\n";
constexpr const char* kRole = "role_arn=arn:aws:iam::1:role/r\n";

TEST_F(Plan, SourcesComeInTheSdksOrder) {
  // Each row adds a source that comes before those of the rows above.
  files["/sys/class/dmi/id/sys_vendor"] = "Amazon EC2\n";
  EXPECT_EQ(plan().kind, AwsSource::kInstance);
  environment.variables["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = "/v2/credentials/x";
  EXPECT_EQ(plan().kind, AwsSource::kContainer);
  std::string text = std::string("[default]\n") + kKeys;
  config(text);
  EXPECT_EQ(plan().source, "profile \"default\" in /home/u/.aws/config");
  config(text += "credential_process = tool\n");
  EXPECT_EQ(plan().kind, AwsSource::kProcess);
  shared(std::string("[default]\n") + kKeys);
  EXPECT_EQ(plan().source, "profile \"default\" in /home/u/.aws/credentials");
  config(text +=
         "sso_account_id=1\nsso_role_name=r\nsso_start_url=https://x\nsso_region=eu-west-1\n");
  EXPECT_EQ(plan().kind, AwsSource::kSso);
  config(text + kRole + "web_identity_token_file=/token\n");
  EXPECT_EQ(plan().source, "profile \"default\" in /home/u/.aws/config");
  EXPECT_EQ(plan().kind, AwsSource::kWebIdentity);
  environment.variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/var/token";
  environment.variables["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/env";
  config(text);
  EXPECT_EQ(plan().kind, AwsSource::kWebIdentity);
  EXPECT_EQ(plan().source, "AWS_WEB_IDENTITY_TOKEN_FILE");
  config(text + kRole + "source_profile=default\n");
  EXPECT_EQ(plan().kind, AwsSource::kAssumeRole);
  environment.variables["AWS_ACCESS_KEY_ID"] = "AKIDENV";
  environment.variables["AWS_SECRET_ACCESS_KEY"] = "s";
  EXPECT_EQ(plan().kind, AwsSource::kStatic);
  EXPECT_EQ(plan().source, "environment variables");
}

TEST_F(Plan, RolesChain) {
  environment.variables["AWS_PROFILE"] = "c";
  config(std::string("[profile a]\n") + kKeys +
         "[profile b]\nrole_arn=arn:b\nsource_profile=a\n[profile c]\nrole_arn=arn:c\n"
         "source_profile=b\nexternal_id=x\nrole_session_name=me\nduration_seconds=1800\n");
  const AwsPlan found = plan();
  EXPECT_EQ(found.role.arn, "arn:c");
  EXPECT_EQ(found.role.external_id, "x");
  EXPECT_EQ(found.role.session_name, "me");
  EXPECT_EQ(found.role.duration_s, 1800U);
  ASSERT_NE(found.base, nullptr);
  EXPECT_EQ(found.base->role.arn, "arn:b");
  ASSERT_NE(found.base->base, nullptr);
  EXPECT_EQ(found.base->base->keys.access_key_id, "AKIDKEYS");
}

TEST_F(Plan, AProfileMayBeItsOwnSourceWhenItHasKeys) {
  config(std::string("[default]\nrole_arn=arn:x\nsource_profile=default\n") + kKeys);
  EXPECT_EQ(plan().base->keys.access_key_id, "AKIDKEYS");
}

TEST_F(Plan, CirclesAreToldWithTheirMembers) {
  config(
      "[default]\nrole_arn=arn:x\nsource_profile=b\n[profile b]\nrole_arn=arn:y\n"
      "source_profile=default\n");
  EXPECT_THAT(refusal(), HasSubstr("circle: default -> b -> default"));
  config("[default]\nrole_arn=arn:x\nsource_profile=default\n");
  EXPECT_THAT(refusal(), HasSubstr("circle: default -> default"));
}

TEST_F(Plan, RoleMistakesSayWhatToDo) {
  const auto with = [&](const std::string& rest) {
    config("[default]\nrole_arn=arn:x\n" + rest);
    return refusal();
  };
  EXPECT_THAT(with(""), HasSubstr("needs source_profile or credential_source"));
  EXPECT_THAT(with("source_profile=a\ncredential_source=Environment\n"), HasSubstr("not both"));
  EXPECT_THAT(with("source_profile=a\n"), HasSubstr("\"a\" is neither in"));
  EXPECT_THAT(with("source_profile=a\n[profile a]\nregion=x\n"), HasSubstr("has no credentials"));
  EXPECT_THAT(with("credential_source=Toaster\n"), HasSubstr("is not one of Environment, "));
  EXPECT_THAT(with("credential_source=Environment\n"), HasSubstr("AWS_ACCESS_KEY_ID is not set"));
  EXPECT_THAT(with("credential_source=EcsContainer\n"), HasSubstr("AWS_CONTAINER_CREDENTIALS_"));
  EXPECT_THAT(with("source_profile=a\nmfa_serial=arn:m\n"), HasSubstr("export-credentials"));
}

TEST_F(Plan, NamedSourcesOfRoles) {
  config("[default]\nrole_arn=arn:x\ncredential_source = Ec2InstanceMetadata\n");
  EXPECT_EQ(plan().base->kind, AwsSource::kInstance);
  config("[default]\nrole_arn=arn:x\ncredential_source = EcsContainer\n");
  environment.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "https://creds.example/x?y=z";
  EXPECT_EQ(plan().base->kind, AwsSource::kContainer);
  EXPECT_EQ(plan().base->container.url, "https://creds.example/x?y=z");
}

TEST_F(Plan, DurationIsChecked) {
  config(std::string("[default]\nrole_arn=arn:x\nsource_profile=default\nduration_seconds=10\n") +
         kKeys);
  EXPECT_THAT(refusal(Code::kInvalidArgument), HasSubstr("900 to 43200"));
}

TEST_F(Plan, SsoSessionIsJoined) {
  config(
      "[default]\nsso_session=corp\nsso_account_id=123\nsso_role_name=Reader\n"
      "[sso-session corp]\nsso_start_url=https://corp\nsso_region=eu-west-1\n");
  const AwsSso sso = plan().sso;
  EXPECT_EQ(sso.start_url, "https://corp");
  EXPECT_EQ(sso.region, "eu-west-1");
  // SHA-1 of "corp".
  EXPECT_EQ(sso.cache_file, "/home/u/.aws/sso/cache/ee0bfd2552fbd840c02cc48b6e823320543c450f.json");
}

TEST_F(Plan, SsoMistakesSayWhatToDo) {
  config("[default]\nsso_account_id=1\n");
  EXPECT_THAT(refusal(), HasSubstr("lacks sso_start_url, sso_region, sso_role_name"));
  config("[default]\nsso_account_id=1\nsso_role_name=r\nsso_session=x\n");
  EXPECT_THAT(refusal(), HasSubstr("sso-session \"x\", which is not in"));
  config(
      "[default]\nsso_account_id=1\nsso_role_name=r\nsso_session=x\nsso_region=a\n"
      "[sso-session x]\nsso_start_url=u\nsso_region=b\n");
  EXPECT_THAT(refusal(), HasSubstr("differ in sso_region"));
}

TEST_F(Plan, LoginSessionsAreRefused) {
  config("[default]\nlogin_session=arn:x\n");
  EXPECT_THAT(refusal(), HasSubstr("aws configure export-credentials"));
}

TEST_F(Plan, WebIdentityNeedsARole) {
  environment.variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/t";
  EXPECT_THAT(refusal(), HasSubstr("set AWS_ROLE_ARN"));
}

TEST_F(Plan, ContainerHostsAreLimitedOverPlainHttp) {
  const auto with = [&](const char* url) {
    environment.variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = url;
    return refusal();
  };
  for (const char* url : {"http://169.254.170.23/v1/credentials", "http://[fd00:ec2::23]/x",
                          "http://localhost:8080/x", "http://127.8.9.1/x", "https://any.example/"})
    EXPECT_EQ(with(url), "accepted") << url;
  for (const char* url : {"http://169.254.169.254/x", "http://example.com/x",
                          "http://127.evil.example/x", "http://127.0.0.1.evil.example/"})
    EXPECT_THAT(with(url), HasSubstr("needs https")) << url;
}

TEST_F(Plan, MetadataIsAskedOnlyWhereItMayBe) {
  files["/sys/class/dmi/id/sys_vendor"] = "Dell Inc.\n";
  EXPECT_EQ(plan().kind, AwsSource::kNone);
  files["/sys/hypervisor/uuid"] = "ec2e1916-9099-7caf-fd21-012345abcdef\n";
  EXPECT_TRUE(plan().is_instance_certain);
  files.clear();
  EXPECT_EQ(plan().kind, AwsSource::kInstance);
  EXPECT_FALSE(plan().is_instance_certain);
  files["/sys/class/dmi/id/sys_vendor"] = "Dell Inc.\n";
  environment.variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:1338/";
  EXPECT_TRUE(plan().is_instance_certain);
  EXPECT_EQ(resolve()->services.metadata_endpoint, "http://127.0.0.1:1338");
  environment.variables["AWS_EC2_METADATA_DISABLED"] = "True";
  EXPECT_EQ(plan().kind, AwsSource::kNone);
  EXPECT_THAT(std::string(resolve()->missing_credentials().message()), HasSubstr("disabled by"));
}

TEST_F(Plan, MetadataModes) {
  environment.variables["AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"] = "IPv6";
  EXPECT_EQ(resolve()->services.metadata_endpoint, "http://[fd00:ec2::254]");
  config("[default]\nec2_metadata_v1_disabled = true\n");
  EXPECT_TRUE(resolve()->services.is_metadata_v1_disabled);
}

TEST_F(Plan, EndpointsOfServices) {
  environment.variables["AWS_ENDPOINT_URL_STS"] = "http://sts";
  config("[default]\nservices=x\n[services x]\nsso =\n  endpoint_url = http://sso\n");
  EXPECT_EQ(resolve()->services.sts_endpoint, "http://sts");
  EXPECT_EQ(resolve()->services.sso_endpoint, "http://sso");
  environment.variables["AWS_ENDPOINT_URL"] = "http://all";
  EXPECT_EQ(resolve()->services.sso_oidc_endpoint, "http://all");
}

}  // namespace
}  // namespace headrace::auth
