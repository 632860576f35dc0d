#include "store/s3/s3_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::s3 {
namespace {

using testing::HasSubstr;

class Config : public testing::Test {
 protected:
  Config() { settings_.credentials = auth::Credentials{"A", "S", "", std::nullopt}; }

  Result<S3Config> make(const std::string& url) {
    HEADRACE_TRY_ASSIGN(const StoreUrl parsed, parse_store_url(url));
    auto provider = settings_.credentials ? auth::static_credentials(*settings_.credentials)
                                          : std::shared_ptr<auth::CredentialProvider>();
    return make_s3_config(options_, parsed, settings_, std::move(provider));
  }
  /// "host_field base_path", or the error.
  std::string place(const std::string& url) {
    auto config = make(url);
    return config ? config->host_field + " " + config->base_path
                  : std::string(config.error().message());
  }

  StoreOptions options_;
  auth::AwsSettings settings_;
};

TEST_F(Config, AwsIsVirtualHostStyleOverTls) {
  options_.region = "us-west-2";
  auto config = make("s3://my-bucket/some/prefix/");
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->host_field, "my-bucket.s3.us-west-2.amazonaws.com");
  EXPECT_EQ(config->endpoint.host, "my-bucket.s3.us-west-2.amazonaws.com");
  EXPECT_EQ(config->endpoint.port, 443);
  EXPECT_TRUE(config->endpoint.use_tls);
  EXPECT_EQ(config->base_path, "");
  EXPECT_EQ(config->prefix, "some/prefix/");
  EXPECT_EQ(config->root_url, "s3://my-bucket/some/prefix");
}

TEST_F(Config, RegionComesFromOptionsThenSettings) {
  settings_.region = {"cn-north-1", "AWS_REGION"};
  EXPECT_EQ(place("s3://abc"), "abc.s3.cn-north-1.amazonaws.com.cn ");
  options_.region = "eu-west-1";
  EXPECT_EQ(place("s3://abc"), "abc.s3.eu-west-1.amazonaws.com ");
}

TEST_F(Config, WithoutARegionTheGlobalNameIsAsked) {
  EXPECT_EQ(place("s3://abc"), "abc.s3.amazonaws.com ");
  EXPECT_EQ(make("s3://abc")->region, "us-east-1");
}

TEST_F(Config, DirectoryBucketsHaveAnEndpointInTheirZone) {
  options_.region = "us-east-1";
  auto config = make("s3://data--use1-az4--x-s3/root");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_TRUE(config->is_express);
  EXPECT_EQ(config->host_field, "data--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com");
  options_.endpoint = "http://127.0.0.1:9000";
  EXPECT_TRUE(make("s3://data--use1-az4--x-s3")->is_express);
  EXPECT_EQ(place("s3://data--use1-az4--x-s3"), "127.0.0.1:9000 /data--use1-az4--x-s3");
  for (const char* other : {"data", "data--x-s3", "use1-az4--x-s3", "data--use1-az4--x-s4"})
    EXPECT_EQ(express_zone(other), "") << other;
}

TEST_F(Config, OnlyPlainHttpToThisMachineIsLoopback) {
  const auto is_loopback = [&](const std::string& endpoint) {
    options_.endpoint = endpoint;
    return make("s3://abc")->is_loopback;
  };
  EXPECT_TRUE(is_loopback("http://127.0.0.1:9000"));
  EXPECT_TRUE(is_loopback("http://localhost"));
  EXPECT_TRUE(is_loopback("http://[::1]:9000"));
  EXPECT_FALSE(is_loopback("https://127.0.0.1"));
  EXPECT_FALSE(is_loopback("http://127.0.0.1.example.com"));
  EXPECT_FALSE(is_loopback("http://10.0.0.1"));
}

TEST_F(Config, CustomEndpointsArePathStyle) {
  settings_.endpoint = {"http://127.0.0.1:7070", "AWS_ENDPOINT_URL"};
  EXPECT_EQ(place("s3://abc"), "127.0.0.1:7070 /abc");
  options_.endpoint = "https://gateway.example/s3/";
  EXPECT_EQ(place("s3://abc"), "gateway.example /s3/abc");
}

TEST_F(Config, StyleCanBeChosen) {
  options_.endpoint = "http://store.example:9000";
  options_.path_style = false;
  EXPECT_EQ(place("s3://abc"), "abc.store.example:9000 ");
  options_.path_style.reset();
  settings_.addressing_style = {"virtual", "profile"};
  EXPECT_EQ(place("s3://abc"), "abc.store.example:9000 ");
  options_.endpoint.clear();
  settings_.addressing_style = {"path", "profile"};
  EXPECT_EQ(place("s3://abc"), "s3.amazonaws.com /abc");
}

TEST_F(Config, ChecksumsMayBeLeftOutByTheSettingsOfTheSdks) {
  const auto sums = [this] {
    auto config = make("s3://abc");
    return std::pair(config->upload_checksum, config->verify_checksums);
  };
  EXPECT_EQ(sums(), std::pair(ChecksumKind::kCrc32c, true));
  settings_.sums_requests_when_required = true;
  EXPECT_EQ(sums(), std::pair(ChecksumKind::kNone, true));
  options_.upload_checksum = ChecksumKind::kCrc64Nvme;
  EXPECT_EQ(sums(), std::pair(ChecksumKind::kCrc64Nvme, true));
  settings_.asks_for_sums_when_required = true;
  EXPECT_EQ(sums(), std::pair(ChecksumKind::kCrc64Nvme, false));
}

TEST_F(Config, NamesThatFitNoHostNameFallBackToPathStyle) {
  EXPECT_EQ(place("s3://a.b.c"),
            "s3.amazonaws.com /a.b.c");  // no wildcard certificate covers it
  EXPECT_EQ(place("s3://Old_Bucket"), "s3.amazonaws.com /Old_Bucket");
  options_.path_style = false;
  EXPECT_EQ(make("s3://Old_Bucket").error().code(), Code::kInvalidArgument);
}

TEST_F(Config, RefusesBadBucketsRegionsAndEndpoints) {
  EXPECT_EQ(make("s3://bad bucket").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(make("s3://..").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(make("s3:///key").error().code(), Code::kInvalidArgument);
  settings_.endpoint = {"localhost:9000", "AWS_ENDPOINT_URL"};
  EXPECT_EQ(make("s3://abc").error().code(), Code::kInvalidArgument);
  EXPECT_THAT(place("s3://abc"), HasSubstr("AWS_ENDPOINT_URL: \"localhost:9000\""));
  settings_.endpoint = {};
  options_.region = "us-east-1.evil.example/";
  EXPECT_EQ(make("s3://abc").error().code(), Code::kInvalidArgument);
}

TEST_F(Config, CredentialsAreNeededUnlessAnonymous) {
  settings_.credentials.reset();
  settings_.searched = {"environment variables: not set"};
  EXPECT_EQ(make("s3://abc").error().code(), Code::kDenied);
  EXPECT_THAT(
      place("s3://abc"),
      HasSubstr("s3://abc: no credentials found. Looked at: environment variables: not set"));
  options_.anonymous = true;
  auto config = make("s3://abc");
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->credentials, nullptr);
}

}  // namespace
}  // namespace headrace::s3
