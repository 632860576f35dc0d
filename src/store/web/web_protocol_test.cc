#include "store/web/web_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/test_heads.h"
#include "store/vendor/protocol_checks.h"
#include "store/web/web_store.h"

namespace headrace::web {
namespace {

using testing::HasSubstr;
using testing::Not;
using vendor::get_of;

constexpr std::chrono::sys_seconds kNow{std::chrono::seconds(1'549'011'600)};

WebConfig config_of(const std::string& url) {
  StoreOptions options;
  options.url = url;
  auto config = make_web_config(options);
  EXPECT_TRUE(config) << config.error().message();
  return config ? *config : WebConfig();
}

std::string head_of(const std::string& url, const Request& request,
                    const HttpRedirect* redirect = nullptr) {
  WebProtocol protocol(config_of(url));
  std::string text;
  const Status status = protocol.append_head(request, {kNow, redirect}, text);
  EXPECT_TRUE(status.ok()) << status.message();
  return text;
}

TEST(WebProtocol, AsksForARange) {
  EXPECT_EQ(head_of("http://h:81/a%20b/", get_of("dir/x y?")),
            "GET /a%20b/dir/x%20y%3F HTTP/1.1\r\nhost: h:81\r\naccept-encoding: identity\r\n"
            "range: bytes=100-149\r\nuser-agent: headrace/0.1\r\n\r\n");
}

TEST(WebProtocol, KeepsTheQueryOfTheBaseAndTheUserOutOfNames) {
  const std::string url = "https://me:p%40ss@h/data?sig=a%2Fb/&x=1";
  const WebConfig config = config_of(url);
  EXPECT_EQ(config.root_url, "https://h/data");
  EXPECT_EQ(config_of("HTTP://h//a/").root_url, "http://h//a");
  const std::string head = head_of(url, get_of("k"));
  EXPECT_THAT(head, HasSubstr("GET /data/k?sig=a%2Fb/&x=1 HTTP/1.1\r\n"));
  EXPECT_THAT(head, HasSubstr("authorization: Basic bWU6cEBzcw==\r\n"));
  EXPECT_EQ(WebProtocol(config).describe(get_of("k")), "GET https://h/data/k [100, 150)");
}

TEST(WebProtocol, WhatTheQueryAndTheUserAskForIsAnotherObject) {
  const auto variant_of = [](const std::string& url) { return config_of(url).variant; };
  EXPECT_EQ(variant_of("http://h/doc"), "");
  EXPECT_NE(variant_of("http://h/doc?v=1"), variant_of("http://h/doc?v=2"));
  EXPECT_NE(variant_of("http://h/doc?token=a"), variant_of("http://h/doc?token=b"));
  EXPECT_NE(variant_of("http://alice:p@h/doc"), variant_of("http://bob:p@h/doc"));
  // Not a password, and not what each signing of the same makes anew.
  EXPECT_EQ(variant_of("http://alice:p@h/doc"), variant_of("http://alice:q@h/doc"));
  const std::string signature = "X-Amz-Date=1&X-Amz-Signature=a";
  EXPECT_EQ(variant_of("http://h/doc?" + signature), "");
  EXPECT_EQ(variant_of("http://h/doc?versionId=3&" + signature),
            variant_of("http://h/doc?versionId=3"));
  EXPECT_EQ(variant_of("http://h/doc?sv=1&se=2&sig=a"), "");
  EXPECT_NE(variant_of("http://h/doc?sv=1"), "");
}

TEST(WebProtocol, NamesTheVersionAsTheServerCanCompareIt) {
  EXPECT_THAT(head_of("http://h", get_of("k", "\"v\"")), HasSubstr("\r\nif-match: \"v\"\r\n"));
  EXPECT_THAT(head_of("http://h", get_of("k", "W/\"v\"")), Not(HasSubstr("if-")));
  EXPECT_THAT(head_of("http://h", get_of("k", "Sun, 06 Nov 1994 08:49:37 GMT")),
              HasSubstr("\r\nif-unmodified-since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
}

TEST(WebProtocol, ARedirectGetsTheTargetAsItIsAndNoPassword) {
  const HttpRedirect redirect{{"cdn", 443, true}, "cdn", "/x%2Fy?Signature=abc"};
  const std::string head = head_of("https://me:pw@h/data?q=1", get_of("k"), &redirect);
  EXPECT_THAT(head, testing::StartsWith("GET /x%2Fy?Signature=abc HTTP/1.1\r\nhost: cdn\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("authorization")));
}

TEST(WebProtocol, ARedirectTakesNoSignatureToAnotherHost) {
  StoreOptions options;
  options.url = "https://h/data?v=3&X-Amz-Signature=abc%2F";
  const auto code_at = [&](const std::string& host, const std::string& query) {
    const HttpRedirect redirect{{host, 443, true}, host, "/k?" + query};
    WebProtocol protocol(*make_web_config(options));
    std::string text;
    const Code code = protocol.append_head(get_of("k"), {kNow, &redirect}, text).code();
    text.clear();
    EXPECT_EQ(protocol.append_head(HttpCall(), {kNow, &redirect}, text).code(), code);
    return code;
  };
  EXPECT_EQ(code_at("cdn", "v=3&X-Amz-Signature=abc%2F"), Code::kDenied);
  EXPECT_EQ(code_at("h", "v=3&X-Amz-Signature=abc%2F"), Code::kOk);
  EXPECT_EQ(code_at("cdn", "v=3&X-Amz-Signature=its-own"), Code::kOk);
  options.trusted_hosts = "cdn";
  EXPECT_EQ(code_at("cdn", "v=3&X-Amz-Signature=abc%2F"), Code::kOk);
}

TEST(WebProtocol, RefusesWritesAndBadKeys) {
  WebProtocol protocol(config_of("http://h"));
  std::string out;
  Request put = get_of("k");
  put.op = Op::kPut;
  EXPECT_EQ(protocol.append_head(put, {kNow}, out).code(), Code::kUnsupported);
  EXPECT_EQ(protocol.append_head(get_of(""), {kNow}, out).code(), Code::kInvalidArgument);
  EXPECT_EQ(protocol.append_head(get_of("k", "a\r\nb"), {kNow}, out).code(),
            Code::kInvalidArgument);
}

TEST(WebProtocol, TheVersionIsTheETagElseTheDate) {
  EXPECT_EQ(version_in(http::response_head("HTTP/1.1 200 OK\r\nETag: W/\"a\"\r\n"
                                           "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n")),
            "W/\"a\"");
  EXPECT_EQ(version_in(http::response_head(
                "HTTP/1.1 200 OK\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n")),
            "Sun, 06 Nov 1994 08:49:37 GMT");
}

TEST(WebProtocol, EveryRowOfTheTableHolds) {
  WebProtocol protocol(config_of("http://h"));
  for (const StatusRow& row : status_table()) {
    http::ResponseHead head;
    head.status = row.http_status;
    const Status status = protocol.error_from("GET x", head, "");
    EXPECT_EQ(status.code(), row.code) << row.http_status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("(HTTP " + std::to_string(row.http_status) + ")"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(row.advice)));
  }
  const std::pair<int, Code> others[] = {{418, Code::kInvalidArgument},
                                         {522, Code::kUnavailable},
                                         {302, Code::kUnsupported},
                                         {204, Code::kCorrupt}};
  for (const auto& [number, code] : others) {
    http::ResponseHead head;
    head.status = number;
    EXPECT_EQ(protocol.error_from("GET x", head, "").code(), code) << number;
  }
}

TEST(WebConfig, RefusesWhatIsNoUrlWithoutShowingSecrets) {
  StoreOptions options;
  options.url = "https://me:topsecret@h/a b?sig=topsecret";
  auto config = make_web_config(options);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(config.error().message()), Not(HasSubstr("topsecret")));
}

}  // namespace
}  // namespace headrace::web
