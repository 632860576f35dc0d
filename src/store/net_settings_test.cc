#include "store/net_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using testing::ElementsAre;

std::vector<std::string> authorities_of(const std::string& url, const std::string& bundle,
                                        std::map<std::string, std::string> variables) {
  StoreOptions options;
  options.url = url;
  options.ca_bundle = bundle;
  return resolve_net_settings(options, {std::move(variables)})->tls.authorities;
}

TEST(NetSettings, FindsAuthoritiesInOrder) {
  const std::map<std::string, std::string> all = {
      {"AWS_CA_BUNDLE", "/aws"}, {"SSL_CERT_FILE", "/file"}, {"SSL_CERT_DIR", "/dir"}};
  EXPECT_THAT(authorities_of("s3://b", "/mine", all), ElementsAre("/mine"));
  EXPECT_THAT(authorities_of("s3://b", "", all), ElementsAre("/aws"));
  EXPECT_THAT(authorities_of("gs://b", "", all), ElementsAre("/file", "/dir"));
  EXPECT_THAT(authorities_of("s3://b", "", {}), ElementsAre());
}

TEST(NetSettings, PassOnWhatIsWrongWithTheProxy) {
  StoreOptions options;
  options.proxy = "socks5://x:1";
  const auto settings = resolve_net_settings(options, {});
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace headrace
