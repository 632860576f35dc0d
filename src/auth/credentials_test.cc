#include "auth/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "auth/config_file.h"

namespace headrace::auth {
namespace {

using testing::HasSubstr;
using testing::Not;

class Settings : public testing::Test {
 protected:
  Result<AwsSettings> resolve() {
    return resolve_aws_settings(environment_,
                                [this](const std::string& path) -> std::optional<std::string> {
                                  const auto it = files_.find(path);
                                  if (it == files_.end()) return std::nullopt;
                                  return it->second;
                                });
  }
  AwsSettings resolved() {
    auto settings = resolve();
    EXPECT_TRUE(settings.has_value());
    return settings ? *std::move(settings) : AwsSettings();
  }

  Environment environment_{{{"HOME", "/home/u"}}};
  std::map<std::string, std::string> files_;
};

TEST_F(Settings, EnvironmentComesFirst) {
  environment_.variables["AWS_ACCESS_KEY_ID"] = "AKIDENV";
  environment_.variables["AWS_SECRET_ACCESS_KEY"] = "envsecret";
  environment_.variables["AWS_SESSION_TOKEN"] = "envtoken";
  files_["/home/u/.aws/credentials"] =
      "[default]\naws_access_key_id=AKIDFILE\naws_secret_access_key=filesecret\n";
  const AwsSettings settings = resolved();
  ASSERT_TRUE(settings.credentials.has_value());
  EXPECT_EQ(settings.credentials->access_key_id, "AKIDENV");
  EXPECT_EQ(settings.credentials->session_token, "envtoken");
  EXPECT_EQ(settings.credentials_source, "environment variables");
}

TEST_F(Settings, CredentialsFileComesBeforeConfigFile) {
  files_["/home/u/.aws/credentials"] =
      "[default]\naws_access_key_id = AKIDFILE\naws_secret_access_key = file/+=secret\n";
  files_["/home/u/.aws/config"] =
      "[default]\naws_access_key_id=AKIDCONFIG\naws_secret_access_key=x\nregion = eu-west-1\n";
  const AwsSettings settings = resolved();
  ASSERT_TRUE(settings.credentials.has_value());
  EXPECT_EQ(settings.credentials->access_key_id, "AKIDFILE");
  EXPECT_EQ(settings.credentials->secret_access_key, "file/+=secret");
  EXPECT_EQ(settings.credentials_source, "profile \"default\" in /home/u/.aws/credentials");
  EXPECT_EQ(settings.region.text, "eu-west-1");
}

TEST_F(Settings, NamedProfileAndPathsByVariables) {
  environment_.variables["AWS_PROFILE"] = "dev";
  environment_.variables["AWS_CONFIG_FILE"] = "/etc/aws.config";
  environment_.variables["AWS_SHARED_CREDENTIALS_FILE"] = "~/keys";
  files_["/etc/aws.config"] =
      "[profile dev]\nregion=ap-south-1\ns3 =\n  addressing_style = virtual\n[dev]\nregion=wrong\n";
  files_["/home/u/keys"] = "[dev]\naws_access_key_id=A\naws_secret_access_key=S\n";
  const AwsSettings settings = resolved();
  EXPECT_EQ(settings.credentials->access_key_id, "A");
  EXPECT_EQ(settings.region.text, "ap-south-1");
  EXPECT_EQ(settings.region.source, "profile \"dev\" in /etc/aws.config");
  EXPECT_EQ(settings.addressing_style.text, "virtual");
}

TEST_F(Settings, ChecksumsOnlyWhereTheyAreRequired) {
  files_["/home/u/.aws/config"] = "[default]\nrequest_checksum_calculation = when_required\n";
  EXPECT_TRUE(resolved().sums_requests_when_required);
  EXPECT_FALSE(resolved().asks_for_sums_when_required);
  environment_.variables["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_supported";
  environment_.variables["AWS_RESPONSE_CHECKSUM_VALIDATION"] = "WHEN_REQUIRED";
  EXPECT_FALSE(resolved().sums_requests_when_required);
  EXPECT_TRUE(resolved().asks_for_sums_when_required);
}

TEST_F(Settings, MissingNamedProfileIsDenied) {
  environment_.variables["AWS_PROFILE"] = "prod";
  files_["/home/u/.aws/config"] = "[default]\n";
  const auto settings = resolve();
  ASSERT_FALSE(settings.has_value());
  EXPECT_EQ(settings.error().code(), Code::kDenied);
  EXPECT_THAT(std::string(settings.error().message()),
              HasSubstr("AWS_PROFILE names the profile \"prod\""));
}

TEST_F(Settings, HalfAKeyPairIsDenied) {
  environment_.variables["AWS_ACCESS_KEY_ID"] = "AKID";
  EXPECT_EQ(resolve().error().code(), Code::kDenied);
  environment_.variables["AWS_ACCESS_KEY_ID"] = "AK\r\nID";
  environment_.variables["AWS_SECRET_ACCESS_KEY"] = "verysecret";
  EXPECT_EQ(resolve().error().code(), Code::kDenied);
}

TEST_F(Settings, NothingFoundListsThePlaces) {
  files_["/home/u/.aws/config"] = "[default]\nregion = x\n";
  files_["/sys/class/dmi/id/sys_vendor"] = "QEMU\n";
  const AwsSettings settings = resolved();
  EXPECT_FALSE(settings.credentials.has_value());
  const Status status = settings.missing_credentials();
  EXPECT_EQ(status.code(), Code::kDenied);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("AWS_ACCESS_KEY_ID"));
  EXPECT_THAT(message, HasSubstr("/home/u/.aws/credentials (no such file)"));
  EXPECT_THAT(message, HasSubstr("no aws_access_key_id, role_arn"));
  EXPECT_THAT(message, HasSubstr("by its firmware this machine is not one of EC2"));
  EXPECT_THAT(message, HasSubstr("--anonymous (anonymous=True"));
}

TEST_F(Settings, WithoutHomeOnlyTheEnvironmentIsRead) {
  environment_.variables.clear();
  EXPECT_THAT(std::string(resolved().missing_credentials().message()),
              HasSubstr("HOME is not set"));
}

TEST_F(Settings, EndpointFollowsTheSdksOrder) {
  files_["/home/u/.aws/config"] =
      "[default]\nservices = local\nendpoint_url = http://global\n[services local]\ns3 =\n  "
      "endpoint_url = http://service\n";
  EXPECT_EQ(resolved().endpoint.text, "http://service");
  environment_.variables["AWS_ENDPOINT_URL"] = "http://env";
  EXPECT_EQ(resolved().endpoint.text, "http://env");
  environment_.variables["AWS_ENDPOINT_URL_S3"] = "http://env-s3";
  EXPECT_EQ(resolved().endpoint.text, "http://env-s3");
  EXPECT_EQ(resolved().endpoint.source, "AWS_ENDPOINT_URL_S3");
  environment_.variables["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true";
  EXPECT_EQ(resolved().endpoint.text, "");
}

TEST_F(Settings, RegionVariableWins) {
  files_["/home/u/.aws/config"] = "[default]\nregion = eu-west-1\n";
  environment_.variables["AWS_DEFAULT_REGION"] = "us-west-1";
  EXPECT_EQ(resolved().region.text, "us-west-1");
  environment_.variables["AWS_REGION"] = "us-west-2";
  EXPECT_EQ(resolved().region.text, "us-west-2");
}

TEST_F(Settings, ExplainNamesPlacesAndNoSecrets) {
  environment_.variables["AWS_ACCESS_KEY_ID"] = "AKIAIOSFODNN7EXAMPLE";
  environment_.variables["AWS_SECRET_ACCESS_KEY"] = "verysecret";
  environment_.variables["AWS_SESSION_TOKEN"] = "verytoken";
  const std::string text = resolved().explain();
  EXPECT_THAT(text, HasSubstr("AKIA...MPLE, temporary (environment variables)"));
  EXPECT_THAT(text, HasSubstr("region: not set"));
  EXPECT_THAT(text, Not(HasSubstr("verysecret")));
  EXPECT_THAT(text, Not(HasSubstr("verytoken")));
}

TEST(Credentials, ExpiredOnesAreDenied) {
  const WallTime end(std::chrono::seconds(1000));
  auto provider = static_credentials({"A", "S", "T", end});
  EXPECT_EQ((*provider->current(end - std::chrono::seconds(1)))->access_key_id, "A");
  EXPECT_EQ(provider->current(end).error().code(), Code::kDenied);
}

TEST(ConfigFile, ReadsTheDialect) {
  auto sections = parse_config(
      "# comment\r\n; another\n[ profile   dev ]  # why not\nKey = a = b # note\nhash=a#b\n\n  "
      "indented = not nested\n"
      "empty =\n  inner = x\n  Other=y\nlast=z\n[profile dev]\nkey=second\n",
      "f");
  ASSERT_TRUE(sections.has_value());
  const auto& dev = sections->at("profile dev");
  EXPECT_EQ(dev.at("key"), "second");
  EXPECT_EQ(dev.at("hash"), "a#b");
  EXPECT_EQ(dev.at("empty.inner"), "x");
  EXPECT_EQ(dev.at("empty.other"), "y");
  EXPECT_EQ(dev.at("last"), "z");
  EXPECT_EQ(dev.at("indented"), "not nested");
}

TEST(ConfigFile, QuotesHoldNamesWithBlanksTogether) {
  auto sections = parse_config(
      "[profile 'my  dev']\na=1\n[profile \"other one\"]\na=2\n[o'brien's]\na=3\n[profile "
      "'x]\na=4\n",
      "f");
  ASSERT_TRUE(sections.has_value());
  EXPECT_EQ(sections->at("profile my  dev").at("a"), "1");
  EXPECT_EQ(sections->at("profile other one").at("a"), "2");
  EXPECT_EQ(sections->at("o'brien's").at("a"), "3");
  EXPECT_EQ(sections->at("profile 'x").at("a"), "4");
}

TEST(ConfigFile, NamesTheLineAndNotItsText) {
  for (std::string_view text : {"[a\n", "x = 1\n", "[a]\nverysecret\n", "[]\n", "[a]\n= x\n"}) {
    auto sections = parse_config(text, "/f");
    ASSERT_FALSE(sections.has_value()) << text;
    EXPECT_EQ(sections.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(sections.error().message()), HasSubstr("/f, line "));
    EXPECT_THAT(std::string(sections.error().message()), Not(HasSubstr("verysecret")));
  }
}

TEST(MaskedId, SaysTheEndsOfLongIdsNothingOfShortOnesAndNothingOfNone) {
  EXPECT_EQ(masked_id("AKIAIOSFODNN7EXAMPLE"), "AKIA...MPLE");
  EXPECT_EQ(masked_id("twelve bytes"), "twel...ytes");
  EXPECT_EQ(masked_id("eleven char"), "****");
  EXPECT_EQ(masked_id(""), "");
}

}  // namespace
}  // namespace headrace::auth
