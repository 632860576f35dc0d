#include "store/azure/azure_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/test_heads.h"
#include "store/vendor/protocol_checks.h"

namespace headrace::azure {
namespace {

using testing::HasSubstr;
using testing::Not;
using vendor::get_of;

constexpr std::chrono::sys_seconds kNow{std::chrono::seconds(1'795'269'600)};

Result<AzureConfig> config_of(const std::string& url, const auth::AzureSettings& settings,
                              StoreOptions options = {},
                              std::shared_ptr<auth::TokenProvider> tokens = nullptr) {
  HEADRACE_TRY_ASSIGN(const StoreUrl parsed, parse_store_url(url));
  HEADRACE_TRY_ASSIGN(const AzureLocation location, parse_azure_location(parsed));
  return make_azure_config(options, location, settings,
                           [&](const auth::AzureIdentity&, const std::string&) { return tokens; });
}

auth::AzureSettings key_settings() {
  auth::AzureSettings settings;
  settings.account = "account";
  settings.account_key = auth::kAzureDevelopmentKey;
  settings.credentials_source = "test";
  return settings;
}

AzureConfig good_config(const std::string& url, StoreOptions options = {}) {
  auto config = config_of(url, key_settings(), std::move(options));
  EXPECT_TRUE(config) << config.error().message();
  return *std::move(config);
}

template <class T>
std::string head_of(AzureProtocol& protocol, const T& request) {
  return vendor::head_of(protocol, request, kNow);
}

TEST(AzureProtocol, GetIsARangeOfTheVersion) {
  AzureProtocol protocol(good_config("az://account/container/pre"));
  Request request = get_of("a b/\xc3\xa9+");
  request.etag = "\"v1\"";
  EXPECT_THAT(head_of(protocol, request),
              testing::StartsWith(
                  "GET /container/pre/a%20b/%C3%A9%2B HTTP/1.1\r\n"
                  "host: account.blob.core.windows.net\r\nif-match: \"v1\"\r\n"
                  "x-ms-date: Sat, 21 Nov 2026 14:00:00 GMT\r\nx-ms-range: bytes=100-149\r\n"
                  "x-ms-range-get-content-crc64: true\r\nx-ms-version: 2021-12-02\r\n"
                  "user-agent: headrace/0.1\r\nauthorization: SharedKey account:"));
  request.length_bytes = (4 << 20) + 1;
  EXPECT_THAT(head_of(protocol, request), Not(HasSubstr("crc64"))) << "the service's limit";
}

TEST(AzureProtocol, PutCarriesItsCrc64) {
  auto pool = SlabPool::create({});
  ASSERT_TRUE(pool);
  AzureProtocol protocol(good_config("az://account/container"));
  Request request;
  request.op = Op::kPut;
  request.key = "k";
  request.if_absent = true;
  request.length_bytes = 9;
  request.slab = *(*pool)->try_acquire(9);
  std::string_view("123456789").copy(reinterpret_cast<char*>(request.slab.bytes().data()), 9);
  const std::string text = head_of(protocol, request);
  // CRC-64/NVME of the catalogue's check text is ae8b14860a799888; the least significant byte
  // first.
  EXPECT_THAT(
      text, testing::StartsWith("PUT /container/k HTTP/1.1\r\ncontent-length: 9\r\n"
                                "host: account.blob.core.windows.net\r\nif-none-match: *\r\n"
                                "x-ms-blob-type: BlockBlob\r\nx-ms-content-crc64: iJh5CoYUi64=\r\n"
                                "x-ms-date: "));
}

TEST(AzureProtocol, APutHasItsSettingsInTheOrderThatTheServiceSigns) {
  auto pool = SlabPool::create({});
  ASSERT_TRUE(pool);
  AzureProtocol protocol(good_config("az://account/container"));
  ObjectSettings settings;
  settings.content_type = "text/plain";
  settings.metadata = {{"a1", "x"}, {"a_b", "y"}, {"ab", "z"}};
  settings.storage_class = "Cool";
  Request request = vendor::put_of(**pool, "abc");
  request.settings = &settings;
  EXPECT_THAT(head_of(protocol, request),
              HasSubstr("x-ms-access-tier: Cool\r\nx-ms-blob-content-type: text/plain\r\n"
                        "x-ms-blob-type: BlockBlob\r\n"));
  EXPECT_THAT(head_of(protocol, request),
              HasSubstr("\r\nx-ms-meta-a_b: y\r\nx-ms-meta-a1: x\r\nx-ms-meta-ab: z\r\n"));
}

TEST(AzureProtocol, AReadNamesItsVersion) {
  AzureProtocol protocol(good_config("az://account/container"));
  Request request = get_of("k");
  request.version_id = "2026-11-25T14:00:00.0000000Z";
  EXPECT_THAT(head_of(protocol, request),
              testing::StartsWith(
                  "GET /container/k?versionid=2026-11-25T14%3A00%3A00.0000000Z HTTP/1.1\r\n"));
}

TEST(AzureProtocol, PartsAreBlocksOfTheUpload) {
  AzureProtocol protocol(good_config("az://account/container"));
  const std::string upload(24, '0');
  Request request;
  request.op = Op::kPutPart;
  request.key = "k";
  request.upload_id = upload;
  request.part_number = 7;
  EXPECT_THAT(head_of(protocol, request),
              testing::StartsWith("PUT /container/k?blockid="
                                  "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwLTAwMDA3&comp=block HTTP/1.1\r\n"
                                  "content-length: 0\r\n"));
  std::string text;
  protocol.aborted_uploads().add(upload);
  EXPECT_EQ(protocol.append_head(request, {kNow, nullptr}, text).code(), Code::kNotFound);
  request.upload_id = "another store's";
  EXPECT_EQ(protocol.append_head(request, {kNow, nullptr}, text).code(), Code::kNotFound);
}

TEST(AzureProtocol, CallsGoToContainerOrBlob) {
  AzureProtocol protocol(good_config("az://account/container"));
  HttpCall call;
  call.query = {{"restype", "container"}, {"comp", "list"}, {"prefix", "a b/"}};
  EXPECT_THAT(head_of(protocol, call),
              testing::StartsWith(
                  "GET /container?comp=list&prefix=a%20b%2F&restype=container HTTP/1.1\r\n"));
  call.headers = {{"x-ms-copy-source", "a\r\nb: c"}};
  std::string text;
  EXPECT_EQ(protocol.append_head(call, {kNow, nullptr}, text).code(), Code::kInvalidArgument);
}

TEST(AzureProtocol, RefusesKeysThatAzureChanges) {
  AzureProtocol protocol(good_config("az://account/container/p"));
  for (const std::string& key :
       {std::string(), std::string("a/../b"), std::string("./a"), std::string("a."),
        std::string("a\\b"), std::string("a\0b", 3), std::string(1023, 'x')}) {
    std::string text;
    EXPECT_EQ(protocol.append_head(get_of(key), {kNow, nullptr}, text).code(),
              Code::kInvalidArgument)
        << key;
  }
  std::string wide;
  for (int i = 0; i < 1022; ++i) wide += "\xc3\xa9";
  EXPECT_TRUE(protocol.check_key(wide).ok()) << "characters count, not bytes";
  EXPECT_TRUE(protocol.check_key(".hidden/a..b").ok());
}

TEST(AzureProtocol, SignsNoRedirects) {
  AzureProtocol protocol(good_config("az://account/container"));
  const HttpRedirect redirect{{"evil", 80, false}, "evil", "/"};
  std::string text;
  EXPECT_EQ(protocol.append_head(get_of("k"), {kNow, &redirect}, text).code(), Code::kUnsupported);
  EXPECT_EQ(protocol.append_head(HttpCall(), {kNow, &redirect}, text).code(), Code::kUnsupported);
}

TEST(AzureProtocol, ASasGoesBehindTheQuery) {
  auto config = config_of("az://account/container?sv=1&sig=a%3D", {});
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->root_url, "az://account/container");
  EXPECT_EQ(config->credentials.source, "SAS in the store's URL") << "as refusals name it";
  AzureProtocol protocol(*std::move(config));
  const std::string text = head_of(protocol, get_of("k"));
  EXPECT_THAT(text, testing::StartsWith("GET /container/k?sv=1&sig=a%3D HTTP/1.1\r\n"));
  EXPECT_THAT(text, Not(HasSubstr("authorization")));
}

TEST(AzureProtocol, TokensAreBearersAndRenewed) {
  auto tokens = std::make_shared<vendor::FakeTokens>();
  auth::AzureSettings settings;
  settings.identity = auth::AzureIdentity{};
  auto config = config_of("az://account/container", settings, {}, tokens);
  ASSERT_TRUE(config) << config.error().message();
  AzureProtocol protocol(*std::move(config));
  EXPECT_THAT(head_of(protocol, get_of("k")),
              HasSubstr("\r\nauthorization: Bearer ya29.tok\r\n\r\n"));
  const http::ResponseHead head =
      http::response_head("HTTP/1.1 401 X\r\nx-ms-error-code: InvalidAuthenticationInfo\r\n\r\n");
  EXPECT_EQ(protocol.error_from("GET", head, "").code(), Code::kUnavailable);
  EXPECT_THAT(tokens->refused, testing::ElementsAre("ya29.tok"));
  tokens->can_renew = false;
  EXPECT_EQ(protocol.error_from("GET", head, "").code(), Code::kDenied);
  tokens->token = nullptr;
  std::string text;
  EXPECT_EQ(protocol.append_head(get_of("k"), {kNow, nullptr}, text).code(), Code::kUnavailable);
}

TEST(AzureProtocol, ReadsTheChecksumOfARange) {
  AzureProtocol protocol(good_config("az://account/container"));
  const auto checksum_in = [&](const char* head) {
    return protocol.checksum_of(get_of("k"), http::response_head(head));
  };
  const Checksum good = checksum_in("HTTP/1.1 206 X\r\nx-ms-content-crc64: iJh5CoYUi64=\r\n\r\n");
  EXPECT_EQ(good.kind, ChecksumKind::kCrc64Nvme);
  EXPECT_EQ(good.value, 0xae8b14860a799888U);
  EXPECT_EQ(checksum_in("HTTP/1.1 206 X\r\nx-ms-content-crc64: x\r\n\r\n").kind,
            ChecksumKind::kNone);
}

struct Place {
  std::string url, endpoint, path_and_host;
};

TEST(AzureConfig, FindsContainerAndHost) {
  const Place places[] = {
      {"az://account/container/a/b", "", "account.blob.core.windows.net/container|a/b/"},
      {"abfss://container@account.dfs.core.windows.net/a", "",
       "account.blob.core.windows.net/container|a/"},
      {"wasbs://container@account.blob.core.chinacloudapi.cn", "",
       "account.blob.core.chinacloudapi.cn/container|"},
      {"https://account.blob.core.windows.net/container/a", "",
       "account.blob.core.windows.net/container|a/"},
      {"az://account/container", "http://127.0.0.1:10000", "127.0.0.1:10000/account/container|"},
      {"az://account/container", "http://127.0.0.1:10000/account",
       "127.0.0.1:10000/account/container|"},
      {"az://account/container", "http://azurite:10000", "azurite:10000/account/container|"},
      {"az://account/container", "https://account.privatelink.blob.core.windows.net",
       "account.privatelink.blob.core.windows.net/container|"},
      {"az://account/container", "https://data.example.com", "data.example.com/container|"}};
  for (const Place& place : places) {
    StoreOptions options;
    options.endpoint = place.endpoint;
    auto config = config_of(place.url, key_settings(), options);
    ASSERT_TRUE(config) << place.url << config.error().message();
    EXPECT_EQ(config->host_field + config->container_path + "|" + config->prefix,
              place.path_and_host)
        << place.url;
  }
}

TEST(AzureConfig, RefusesTheEndpointOfAnotherAccount) {
  for (const char* url : {"az://accountb/data", "https://accountb.blob.core.windows.net/data",
                          "abfss://data@accountb.dfs.core.windows.net"}) {
    StoreOptions options;
    options.endpoint = "https://accounta.blob.core.windows.net";
    auto config = config_of(url, key_settings(), options);
    ASSERT_FALSE(config) << url;
    EXPECT_EQ(config.error().code(), Code::kInvalidArgument) << url;
    EXPECT_THAT(std::string(config.error().message()), HasSubstr("accountb")) << url;
    options.endpoint = "https://accountb-secondary.blob.core.windows.net";
    EXPECT_TRUE(config_of(url, key_settings(), options)) << url;
  }
}

TEST(AzureConfig, RefusesWhatNamesNoContainer) {
  for (const char* url :
       {"az://account", "az://Account/container", "az://account/Co", "az://account/a--b",
        "abfss://account.dfs.core.windows.net/a", "https://account.blob.core.windows.net"}) {
    auto config = config_of(url, key_settings());
    ASSERT_FALSE(config) << url;
    EXPECT_EQ(config.error().code(), Code::kInvalidArgument) << url;
  }
}

TEST(AzureConfig, WantsCredentialsUnlessAnonymous) {
  auto none = config_of("az://account/container", {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kDenied);
  StoreOptions options;
  options.anonymous = true;
  EXPECT_TRUE(config_of("az://account/container", {}, options));
}

TEST(AzureConfig, SendsTokensOverTlsOnly) {
  auth::AzureSettings settings;
  settings.identity = auth::AzureIdentity{};
  StoreOptions options;
  options.endpoint = "http://account.example.com";
  auto config = config_of("az://account/container", settings, options);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::azure
