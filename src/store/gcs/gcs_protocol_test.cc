#include "store/gcs/gcs_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/temporary_directory.h"
#include "http/test_heads.h"
#include "store/gcs/emulator_protocol.h"
#include "store/gcs/gcs_hash.h"
#include "store/gcs/gcs_store.h"
#include "store/vendor/protocol_checks.h"

namespace headrace::gcs {
namespace {

using testing::HasSubstr;
using testing::Not;
using vendor::get_of;

constexpr std::chrono::sys_seconds kNow{std::chrono::seconds(1'549'011'600)};

GcsConfig config_of() {
  GcsConfig config;
  config.bucket = "bucket";
  config.prefix = "pre/";
  config.root_url = "gs://bucket/pre";
  config.endpoint = {"storage.googleapis.com", 443, true};
  config.host_field = "storage.googleapis.com";
  config.credentials_source = "test";
  return config;
}

class GoogleProtocol : public testing::Test {
 protected:
  void SetUp() override { pool_ = *SlabPool::create({}); }
  Request put_of(std::string_view bytes) { return vendor::put_of(*pool_, bytes); }
  template <class T>
  std::string head_of(GcsProtocol& protocol, const T& request) {
    return vendor::head_of(protocol, request, kNow);
  }
  http::ResponseHead parse(const std::string& text) {
    text_ = text;
    return http::response_head(text_);
  }
  std::unique_ptr<SlabPool> pool_;
  std::string text_;
};

TEST_F(GoogleProtocol, AReadWithAToken) {
  GcsConfig config = config_of();
  config.tokens = std::make_shared<vendor::FakeTokens>();
  config.user_project = "payer";
  GcsProtocol protocol(std::move(config));
  Request request = get_of("a b/\xc3\xa4");
  request.etag = "1700000000000001";
  EXPECT_EQ(head_of(protocol, request),
            "GET /bucket/pre/a%20b/%C3%A4 HTTP/1.1\r\n"
            "accept-encoding: gzip\r\n"
            "host: storage.googleapis.com\r\n"
            "range: bytes=100-149\r\n"
            "x-goog-if-generation-match: 1700000000000001\r\n"
            "x-goog-user-project: payer\r\n"
            "authorization: Bearer ya29.tok\r\n"
            "user-agent: headrace/0.1\r\n\r\n");
}

TEST_F(GoogleProtocol, AnAnonymousWriteOfWhatIsNotThere) {
  GcsProtocol protocol(config_of());
  Request request = put_of("123456789");
  request.if_absent = true;
  EXPECT_EQ(head_of(protocol, request),
            "PUT /bucket/pre/key HTTP/1.1\r\n"
            "host: storage.googleapis.com\r\n"
            "x-goog-hash: crc32c=4waSgw==\r\n"
            "x-goog-if-generation-match: 0\r\n"
            "content-length: 9\r\n"
            "user-agent: headrace/0.1\r\n\r\n");
}

TEST_F(GoogleProtocol, AWriteHasItsSettingsInTheOrderOfNames) {
  GcsProtocol protocol(config_of());
  ObjectSettings settings;
  settings.content_type = "text/plain";
  settings.metadata = {{"run", "17"}};
  settings.storage_class = "NEARLINE";
  settings.encryption_key = "projects/p/locations/l/keyRings/r/cryptoKeys/k";
  settings.acl = "project-private";
  Request request = put_of("123456789");
  request.settings = &settings;
  EXPECT_EQ(head_of(protocol, request),
            "PUT /bucket/pre/key HTTP/1.1\r\n"
            "content-type: text/plain\r\n"
            "host: storage.googleapis.com\r\n"
            "x-goog-acl: project-private\r\n"
            "x-goog-encryption-kms-key-name: projects/p/locations/l/keyRings/r/cryptoKeys/k\r\n"
            "x-goog-hash: crc32c=4waSgw==\r\n"
            "x-goog-meta-run: 17\r\n"
            "x-goog-storage-class: NEARLINE\r\n"
            "content-length: 9\r\n"
            "user-agent: headrace/0.1\r\n\r\n");
}

TEST_F(GoogleProtocol, AnAnswerTellsTheEncodingThatIsStored) {
  const auto encoding = [&](const std::string& fields) {
    return object_details(parse("HTTP/1.1 200 OK\r\n" + fields + "\r\n"))
        ->settings.content_encoding;
  };
  EXPECT_EQ(encoding("x-goog-stored-content-encoding: gzip\r\n"), "gzip") << "unpacked by Google";
  EXPECT_EQ(encoding("content-encoding: gzip\r\nx-goog-stored-content-encoding: identity\r\n"), "");
  EXPECT_EQ(encoding("content-encoding: gzip\r\n"), "gzip");
}

TEST_F(GoogleProtocol, AReadNamesItsGeneration) {
  GcsProtocol protocol(config_of());
  Request request = get_of("k");
  request.version_id = "1700000000000001";
  EXPECT_THAT(head_of(protocol, request),
              testing::StartsWith("GET /bucket/pre/k?generation=1700000000000001 HTTP/1.1\r\n"));
  request.version_id = "1&x=2";
  std::string text;
  EXPECT_EQ(protocol.append_head(request, {kNow, nullptr}, text).code(), Code::kInvalidArgument);
}

TEST_F(GoogleProtocol, APartNamesItsUpload) {
  GcsConfig config = config_of();
  config.sends_checksum = false;
  GcsProtocol protocol(std::move(config));
  Request request = put_of("x");
  request.op = Op::kPutPart;
  request.part_number = 7;
  request.upload_id = "a/b+c";
  const std::string head = head_of(protocol, request);
  EXPECT_THAT(head, testing::StartsWith(
                        "PUT /bucket/pre/key?partNumber=7&uploadId=a%2Fb%2Bc HTTP/1.1\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("x-goog-hash")));
}

TEST_F(GoogleProtocol, AnHmacKeySignsAllFieldsThatWereSentBeforeIt) {
  GcsConfig config = config_of();
  config.hmac = auth::GoogleHmacKey{"GOOGX", "secret"};
  GcsProtocol protocol(std::move(config));
  const std::string head = head_of(protocol, put_of("123456789"));
  EXPECT_THAT(head, HasSubstr("\r\nx-goog-content-sha256: UNSIGNED-PAYLOAD\r\n"
                              "x-goog-date: 20190201T090000Z\r\nx-goog-hash: "));
  EXPECT_THAT(head, HasSubstr("authorization: GOOG4-HMAC-SHA256 Credential=GOOGX/20190201/auto/"
                              "storage/goog4_request, SignedHeaders=host;x-goog-content-sha256;"
                              "x-goog-date;x-goog-hash, Signature="));
  // By hand: the same canonical request signs the same.
  const http::Field fields[] = {{"host", "storage.googleapis.com"},
                                {"x-goog-content-sha256", "UNSIGNED-PAYLOAD"},
                                {"x-goog-date", "20190201T090000Z"},
                                {"x-goog-hash", "crc32c=4waSgw=="}};
  std::string expected;
  auth::GoogleHmacSigner({"GOOGX", "secret"})
      .append_authorization({"PUT", "/bucket/pre/key", "", fields, auth::kUnsignedPayload}, kNow,
                            expected);
  EXPECT_THAT(head, HasSubstr("authorization: " + expected + "\r\n"));
}

TEST_F(GoogleProtocol, ACallSortsItsQueryAndFields) {
  GcsProtocol protocol(config_of());
  HttpCall call;
  call.path = "";
  call.query = {{"prefix", "pre/a b"}, {"list-type", "2"}};
  EXPECT_EQ(head_of(protocol, call),
            "GET /bucket?list-type=2&prefix=pre%2Fa%20b HTTP/1.1\r\n"
            "host: storage.googleapis.com\r\nuser-agent: headrace/0.1\r\n\r\n");
  HttpCall copy;
  copy.method = "PUT";
  copy.path = "pre/to";
  copy.headers = {{"x-goog-copy-source", "/bucket/pre/from"}};
  EXPECT_THAT(head_of(protocol, copy),
              HasSubstr("x-goog-copy-source: /bucket/pre/from\r\ncontent-length: 0\r\n"));
  copy.headers = {{"x-goog-copy-source", "a\r\nb: c"}};
  std::string out;
  EXPECT_EQ(protocol.append_head(copy, {kNow}, out).code(), Code::kInvalidArgument);
}

TEST_F(GoogleProtocol, KeysAndVersionsThatGoogleCannotHaveAreRefusedAtHome) {
  GcsProtocol protocol(config_of());
  std::string out;
  for (const std::string& key :
       {std::string(), std::string("a\nb"), std::string("a\0b", 3), std::string(1021, 'k')}) {
    EXPECT_EQ(protocol.append_head(get_of(key), {kNow}, out).code(), Code::kInvalidArgument) << key;
  }
  for (const char* version : {"\"abc\"", "0", "-1", "12x"}) {
    Request request = get_of("k");
    request.etag = version;
    EXPECT_EQ(protocol.append_head(request, {kNow}, out).code(), Code::kChanged) << version;
  }
}

TEST_F(GoogleProtocol, WaitsForItsTokenAndReportsARefusedOne) {
  GcsConfig config = config_of();
  auto tokens = std::make_shared<vendor::FakeTokens>();
  config.tokens = tokens;
  GcsProtocol protocol(std::move(config));
  std::string out;
  const auto token = tokens->token;
  tokens->token = nullptr;
  EXPECT_EQ(protocol.append_head(get_of("k"), {kNow}, out).code(), Code::kUnavailable);
  tokens->token = token;
  head_of(protocol, get_of("k"));
  http::ResponseHead head;
  head.status = 401;
  EXPECT_EQ(protocol.error_from("GET x", head, "").code(), Code::kUnavailable);
  EXPECT_THAT(tokens->refused, testing::ElementsAre("ya29.tok"));
  tokens->can_renew = false;
  EXPECT_EQ(protocol.error_from("GET x", head, "").code(), Code::kDenied);
  head.status = 403;
  EXPECT_EQ(protocol.error_from("GET x", head, "<Error><Code>AccessDenied</Code></Error>").code(),
            Code::kDenied);
  EXPECT_EQ(tokens->refused.size(), 2U) << "a policy is not the token's fault";
}

TEST_F(GoogleProtocol, TheVersionIsTheGenerationAndOfAPartTheETag) {
  GcsProtocol protocol(config_of());
  const auto head = parse("HTTP/1.1 200 OK\r\nETag: \"md5\"\r\nx-goog-generation: 17\r\n\r\n");
  EXPECT_EQ(protocol.version_of(get_of("k"), head), "17");
  Request part;
  part.op = Op::kPutPart;
  EXPECT_EQ(protocol.version_of(part, head), "\"md5\"");
}

TEST_F(GoogleProtocol, EveryRangeTellsTheSumOfTheWholeObject) {
  GcsProtocol protocol(config_of());
  const std::string range =
      "HTTP/1.1 206 OK\r\nContent-Length: 9\r\nContent-Range: bytes 1-9/10\r\n"
      "x-goog-hash: crc32c=4waSgw==,md5=AAAA\r\n";
  const Checksum told = protocol.object_checksum_of(get_of("k"), parse(range + "\r\n"));
  EXPECT_EQ(told.kind, ChecksumKind::kCrc32c);
  EXPECT_EQ(told.value, 0xe3069283U);
  const auto unpacked = parse(range + "x-goog-stored-content-encoding: gzip\r\n\r\n");
  EXPECT_EQ(protocol.object_checksum_of(get_of("k"), unpacked).kind, ChecksumKind::kNone);
}

TEST_F(GoogleProtocol, SumsAreThoseOfWholeObjectsAsTheyAreStored) {
  GcsProtocol protocol(config_of());
  const std::string hash = "x-goog-hash: crc32c=4waSgw==,md5=AAAA\r\n";
  const Request request = get_of("k");
  const auto sum = [&](const std::string& text) {
    return protocol.checksum_of(request, parse(text + "\r\n")).kind;
  };
  const std::string whole = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" + hash;
  ASSERT_EQ(sum(whole), ChecksumKind::kCrc32c);
  EXPECT_EQ(protocol.checksum_of(request, parse(whole + "\r\n")).value, 0xe3069283U);
  EXPECT_EQ(sum("HTTP/1.1 206 OK\r\nContent-Length: 9\r\nContent-Range: bytes 0-8/9\r\n"
                "x-goog-hash: md5=AAAA\r\nx-goog-hash: crc32c=4waSgw==\r\n"),
            ChecksumKind::kCrc32c);
  EXPECT_EQ(sum("HTTP/1.1 206 OK\r\nContent-Length: 9\r\nContent-Range: bytes 0-8/10\r\n" + hash),
            ChecksumKind::kNone);
  EXPECT_EQ(sum("HTTP/1.1 206 OK\r\nContent-Length: 9\r\nContent-Range: bytes 1-9/10\r\n" + hash),
            ChecksumKind::kNone);
  EXPECT_EQ(sum(whole + "x-goog-stored-content-encoding: gzip\r\n"
                        "x-goog-stored-content-length: 9\r\n"),
            ChecksumKind::kNone)
      << "unpacked on the way";
  EXPECT_EQ(sum(whole + "x-goog-stored-content-encoding: gzip\r\nContent-Encoding: gzip\r\n"),
            ChecksumKind::kCrc32c);
  EXPECT_EQ(
      sum("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nx-goog-stored-content-length: 8\r\n" + hash),
      ChecksumKind::kNone);
  EXPECT_EQ(sum("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n"), ChecksumKind::kNone);
  EXPECT_EQ(sum("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nx-goog-hash: crc32c=!!!!!!==\r\n"),
            ChecksumKind::kNone);
}

TEST_F(GoogleProtocol, AnErrorInsideASuccessIsAnError) {
  GcsProtocol protocol(config_of());
  HttpCall call;
  call.what = "COMPLETE x";
  EXPECT_TRUE(protocol.check_answer(call, {200, "HTTP/1.1 200 OK\r\n\r\n", "<Ok/>"}).ok());
  EXPECT_EQ(protocol
                .check_answer(call, {200, "HTTP/1.1 200 OK\r\n\r\n",
                                     "<Error><Code>InternalError</Code></Error>"})
                .code(),
            Code::kUnavailable);
}

TEST_F(GoogleProtocol, SignsUrlsWithWhatCanSign) {
  GcsConfig config = config_of();
  GcsProtocol without(config);
  EXPECT_EQ(without.presign({"k"}, kNow).error().code(), Code::kUnsupported);
  config.url_signer = auth::hmac_url_signer({"GOOGX", "secret"});
  GcsProtocol protocol(config);
  auto url = protocol.presign({"a b", Op::kPut, std::chrono::seconds(60)}, kNow);
  ASSERT_TRUE(url) << url.error().message();
  EXPECT_THAT(*url, testing::StartsWith("https://storage.googleapis.com/bucket/pre/a%20b?"
                                        "X-Goog-Algorithm=GOOG4-HMAC-SHA256&"));
  EXPECT_EQ(protocol.presign({""}, kNow).error().code(), Code::kInvalidArgument);
  constexpr std::chrono::seconds kMinute{60};
  EXPECT_THAT(*protocol.presign({"k", Op::kGet, kMinute, "17"}, kNow),
              HasSubstr("&generation=17&"));
  EXPECT_EQ(protocol.presign({"k", Op::kGet, kMinute, "a&b"}, kNow).error().code(),
            Code::kInvalidArgument);
  for (const int seconds : {0, 7 * 24 * 3600 + 1}) {
    EXPECT_EQ(protocol.presign({"k", Op::kGet, std::chrono::seconds(seconds)}, kNow).error().code(),
              Code::kInvalidArgument);
  }
}

TEST_F(GoogleProtocol, AnEmulatorIsAskedForTheVersionThatIsMeant) {
  EmulatorProtocol protocol(config_of(), 1);
  const auto head_of = [&](Request request) {
    std::string out;
    EXPECT_TRUE(protocol.append_head(request, {kNow}, out).ok());
    return out;
  };
  EXPECT_THAT(head_of(put_of("x")), Not(HasSubstr("ifGenerationMatch")));
  Request request = put_of("x");
  request.if_absent = true;
  EXPECT_THAT(head_of(std::move(request)), HasSubstr("&ifGenerationMatch=0 HTTP"));
  request = put_of("x");
  request.etag = "1700000000000001";
  EXPECT_THAT(head_of(std::move(request)), HasSubstr("&ifGenerationMatch=1700000000000001 HTTP"));
}

TEST_F(GoogleProtocol, TellsGooglesRules) {
  const EndpointRules rules = GcsProtocol(config_of()).rules();
  EXPECT_EQ(rules.initial_reads_per_second, 5000);
  EXPECT_EQ(rules.initial_writes_per_second, 1000);
  EXPECT_EQ(rules.doubling, std::chrono::minutes(20));
}

TEST(GcsConfig, TakesEndpointsInOrder) {
  const StoreUrl url{"gs", "bucket", "a/b", "gs://bucket/a/b"};
  StoreOptions options;
  auth::GoogleSettings settings;
  auto google = make_gcs_config(options, url, settings);
  ASSERT_TRUE(google);
  EXPECT_EQ(google->host_field, "storage.googleapis.com");
  EXPECT_TRUE(google->endpoint.use_tls);
  EXPECT_EQ(google->prefix, "a/b/");
  settings.emulator_host = "127.0.0.1:4443";
  auto emulator = make_gcs_config(options, url, settings);
  ASSERT_TRUE(emulator);
  EXPECT_TRUE(emulator->is_emulator);
  EXPECT_EQ(emulator->endpoint.port, 4443);
  options.endpoint = "http://host:1/base";
  auto custom = make_gcs_config(options, url, settings);
  ASSERT_TRUE(custom);
  EXPECT_FALSE(custom->is_emulator);
  EXPECT_EQ(custom->base_path, "/base");
}

TEST(GcsConfig, TokensGoOverTlsOrStayOnThisMachine) {
  GcsConfig config = config_of();
  EXPECT_TRUE(check_token_path(config).ok());
  config.endpoint = {"gateway.example", 80, false};
  EXPECT_EQ(check_token_path(config).code(), Code::kDenied);
  config.endpoint.host = "127.evil.example";
  EXPECT_EQ(check_token_path(config).code(), Code::kDenied);
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
    config.endpoint.host = host;
    EXPECT_TRUE(check_token_path(config).ok()) << host;
  }
}

class GcsOpening : public testing::Test {
 protected:
  GcsOpening() {
    const std::string path = directory_.path() + "/key.json";
    std::ofstream(path) << R"({"type":"authorized_user","client_id":"i","client_secret":"s",)"
                           R"("refresh_token":"r"})";
    environment_.variables = {{"GOOGLE_APPLICATION_CREDENTIALS", path}};
  }
  Status open() const {
    const StoreUrl url{"gs", "bucket", "", "gs://bucket"};
    auto store = open_gcs_store(options_, url, environment_, auth::create_web_client({}));
    return store ? Status() : std::move(store).error();
  }
  TemporaryDirectory directory_;
  Environment environment_;
  StoreOptions options_;
};

TEST_F(GcsOpening, RefusesToSendTokensOverPlainHttp) {
  options_.endpoint = "http://gateway.example";
  EXPECT_EQ(open().code(), Code::kDenied);
  EXPECT_THAT(std::string(open().message()), HasSubstr("over plain HTTP to gateway.example"));
  options_.anonymous = true;
  EXPECT_TRUE(open().ok());
}

TEST_F(GcsOpening, EmulatorsGetNoCredentials) {
  environment_.variables["STORAGE_EMULATOR_HOST"] = "gateway.example:4443";
  const Status status = open();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(GcsOpening, AnHmacKeySignsUrls) {
  environment_.variables = {{"GS_ACCESS_KEY_ID", "GOOGX"}, {"GS_SECRET_ACCESS_KEY", "secret"}};
  const StoreUrl url{"gs", "bucket", "", "gs://bucket"};
  const auto store = open_gcs_store(options_, url, environment_, nullptr);
  ASSERT_TRUE(store) << store.error().message();
  const auto signed_url = (*store)->presign({"k"});
  ASSERT_TRUE(signed_url) << signed_url.error().message();
  EXPECT_THAT(*signed_url, HasSubstr("X-Goog-Algorithm=GOOG4-HMAC-SHA256"));
}

TEST(GcsConfig, RefusesWhatCannotBe) {
  StoreOptions options;
  auth::GoogleSettings settings;
  EXPECT_EQ(
      make_gcs_config(options, {"gs", "Bad Name", "", "gs://Bad Name"}, settings).error().code(),
      Code::kInvalidArgument);
  const StoreUrl url{"gs", "bucket", "", "gs://bucket"};
  options.requester_pays = true;
  EXPECT_EQ(make_gcs_config(options, url, settings).error().code(), Code::kInvalidArgument);
  settings.project = "p";
  EXPECT_EQ(make_gcs_config(options, url, settings)->user_project, "p");
  options.endpoint = "ftp://x";
  EXPECT_EQ(make_gcs_config(options, url, settings).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::gcs
