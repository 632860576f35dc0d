#include "http/proxy.h"

#include <gtest/gtest.h>

namespace headrace::http {
namespace {

TEST(NoProxy, NamesHostsAsCurlDoes) {
  struct Row {
    const char* entry;
    const char* host;
    bool is_named;
  };
  constexpr Row kRows[] = {
      {"*", "anything", true},
      {"example.com", "example.com", true},
      {"example.com", "EXAMPLE.com.", true},
      {"example.com", "www.example.com", true},
      {".example.com", "www.example.com", true},
      {".example.com", "example.com", true},
      {"example.com", "notexample.com", false},
      {"example.com", "example.com.evil.org", false},
      {"example.com:80", "example.com", true},
      {"example.com:81", "example.com", false},
      {"10.0.0.1", "10.0.0.1", true},
      {"10.0.0.1", "10.0.0.11", false},
      {"10.0.0.1:80", "10.0.0.1", true},
      {"10.0.0.1:81", "10.0.0.1", false},
      {"10.0.0.0/8", "10.200.3.4", true},
      {"10.0.0.0/8", "11.0.0.1", false},
      {"10.0.0.0/33", "10.0.0.1", false},
      {"192.168.4.0/22", "192.168.7.255", true},
      {"192.168.4.0/22", "192.168.8.0", false},
      {"10.0.0.0/8", "ten.example", false},
      {"::1", "::1", true},
      {"[::1]", "::1", true},
      {"[::1]:80", "::1", true},
      {"[::1]:81", "::1", false},
      {"fd00::/8", "fd12::1", true},
      {"fd00::/8", "fe12::1", false},
      {"", "host", false},
      {".", "host", false},
  };
  for (const Row& row : kRows)
    EXPECT_EQ(names_host(row.entry, row.host, 80), row.is_named) << row.entry << " " << row.host;
}

TEST(Proxy, ReadsUrls) {
  auto plain = parse_proxy("http://proxy.example:3128/");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "proxy.example");
  EXPECT_EQ(plain->port, 3128);
  EXPECT_EQ(plain->authorization, "");
  auto named = parse_proxy("user:p%40ss@[::1]:80");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->host, "::1");
  EXPECT_EQ(named->port, 80);
  EXPECT_EQ(named->authorization, "Basic dXNlcjpwQHNz");
  EXPECT_EQ(parse_proxy("http://proxy")->port, kDefaultProxyPort);
}

TEST(Proxy, RefusesOtherKindsWithoutTellingSecrets) {
  const auto socks = parse_proxy("socks5://user:secret@proxy:1080");
  ASSERT_FALSE(socks);
  EXPECT_EQ(socks.error().code(), Code::kUnsupported);
  EXPECT_EQ(std::string(socks.error().message()).find("secret"), std::string::npos);
  const auto bad = parse_proxy("http://user:secret%zz@proxy");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(std::string(bad.error().message()).find("secret"), std::string::npos);
}

TEST(ProxyRules, ComeFromTheEnvironment) {
  Environment environment;
  environment.variables = {{"http_proxy", "one:1"},
                           {"HTTP_PROXY", "other:9"},
                           {"HTTPS_PROXY", "two:2"},
                           {"NO_PROXY", "direct.example, 10.0.0.0/8"}};
  auto rules = resolve_proxy_rules("", environment);
  ASSERT_TRUE(rules);
  EXPECT_EQ(rules->find("host", 80, false)->host, "one");
  EXPECT_EQ(rules->find("host", 443, true)->host, "two");
  EXPECT_EQ(rules->find("a.direct.example", 443, true), nullptr);
  EXPECT_EQ(rules->find("10.1.2.3", 80, false), nullptr);
}

TEST(ProxyRules, FallBackToAllProxy) {
  Environment environment;
  environment.variables = {{"ALL_PROXY", "all:1"}, {"https_proxy", "two:2"}};
  auto rules = resolve_proxy_rules("", environment);
  ASSERT_TRUE(rules);
  EXPECT_EQ(rules->find("host", 80, false)->host, "all");
  EXPECT_EQ(rules->find("host", 443, true)->host, "two");
}

TEST(ProxyRules, SettingGoesBeforeTheEnvironment) {
  Environment environment;
  environment.variables = {{"https_proxy", "two:2"}, {"no_proxy", "*"}};
  auto set = resolve_proxy_rules("mine:3", environment);
  ASSERT_TRUE(set);
  EXPECT_EQ(set->find("host", 443, true)->host, "mine");
  auto none = resolve_proxy_rules("none", environment);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->find("host", 443, true), nullptr);
}

TEST(ProxyRules, NameTheVariableThatIsWrong) {
  Environment environment;
  environment.variables = {{"https_proxy", "https://proxy:1"}};
  auto rules = resolve_proxy_rules("", environment);
  ASSERT_FALSE(rules);
  EXPECT_EQ(rules.error().code(), Code::kUnsupported);
  EXPECT_NE(std::string(rules.error().message()).find("https_proxy"), std::string::npos);
}

}  // namespace
}  // namespace headrace::http
