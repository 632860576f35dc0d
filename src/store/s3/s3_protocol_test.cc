#include "store/s3/s3_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "auth/sigv4.h"
#include "http/test_heads.h"
#include "store/vendor/protocol_checks.h"

namespace headrace::s3 {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::sys_seconds kNow{std::chrono::seconds(1'440'938'160)};

S3Config config_with(const std::string& prefix,
                     auth::Credentials credentials = {"AKID", "secret", "", std::nullopt}) {
  S3Config config;
  config.bucket = "bucket";
  config.prefix = prefix;
  config.root_url = "s3://bucket";
  config.endpoint = {"127.0.0.1", 9000, false};
  config.host_field = "127.0.0.1:9000";
  config.base_path = "/bucket";
  config.region = "us-east-1";
  config.credentials = auth::static_credentials(std::move(credentials));
  config.credentials_source = "test";
  return config;
}

class Protocol : public testing::Test {
 protected:
  void SetUp() override {
    auto pool = SlabPool::create({});
    ASSERT_TRUE(pool.has_value());
    pool_ = *std::move(pool);
    open(config_with("pre/"));
  }
  void open(S3Config config) { protocol_ = *S3Protocol::create(std::move(config)); }
  void open_with(std::shared_ptr<auth::CredentialProvider> provider) {
    S3Config config = config_with("");
    config.credentials = std::move(provider);
    open(std::move(config));
  }

  template <class T>
  std::string head_of(const T& request) {
    return vendor::head_of(*protocol_, request, kNow);
  }

  Request put_of(std::string_view bytes) { return vendor::put_of(*pool_, bytes); }
  static Request get_of(std::string_view key) {
    Request request;
    request.key = key;
    request.length_bytes = 1;
    return request;
  }

  /// What a server that knows the secret says of the head.
  auth::Verdict verify(const std::string& text, const std::string& token = "") {
    auto verifier = auth::SigV4Verifier::create(
        {{{"AKID", "secret", token, std::nullopt}}, "us-east-1", "s3", std::chrono::seconds(900)});
    http::RequestHead head;
    auto size = http::parse_request_head(text, head);
    EXPECT_TRUE(size.has_value() && *size == text.size()) << text;
    return (*verifier)->verify(head, kNow);
  }

  std::unique_ptr<SlabPool> pool_;
  std::shared_ptr<S3Protocol> protocol_;
};

TEST_F(Protocol, GetIsARangeSignedWithAllItsFields) {
  Request request;
  request.key = "a b/\xc3\xa9+";
  request.offset_bytes = 10;
  request.length_bytes = 5;
  request.etag = "\"v1\"";
  const std::string text = head_of(request);
  EXPECT_THAT(text, testing::StartsWith(
                        "GET /bucket/pre/a%20b/%C3%A9%2B HTTP/1.1\r\nhost: 127.0.0.1:9000\r\n"
                        "if-match: \"v1\"\r\nrange: bytes=10-14\r\nx-amz-content"));
  EXPECT_THAT(text,
              HasSubstr("SignedHeaders=host;if-match;range;x-amz-content-sha256;x-amz-date,"));
  EXPECT_THAT(text, Not(HasSubstr("content-length")));
  EXPECT_TRUE(verify(text).ok()) << text;
}

TEST_F(Protocol, AHeadAsksForTheSumOfOneVersion) {
  Request request;
  request.op = Op::kHead;
  request.key = "k";
  request.etag = "\"v\"";
  const std::string head = head_of(request);
  EXPECT_TRUE(head.starts_with("HEAD ")) << head;
  EXPECT_THAT(head, HasSubstr("if-match: \"v\"\r\n"));
  EXPECT_THAT(head, HasSubstr("x-amz-checksum-mode: ENABLED\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("range: ")));
  EXPECT_THAT(head, Not(HasSubstr("content-length: ")));
  EXPECT_TRUE(verify(head).ok()) << head;
}

TEST_F(Protocol, APutHasItsSettingsAmongItsFieldsAndSignsThem) {
  ObjectSettings settings;
  settings.content_type = "text/plain; charset=utf-8";
  settings.cache_control = "no-cache,   private";
  settings.metadata = {{"zz", "1"}, {"a", "two  spaces"}};
  settings.storage_class = "STANDARD_IA";
  settings.encryption = "aws:kms";
  settings.encryption_key = "arn:aws:kms:us-east-1:1:key/2";
  settings.acl = "bucket-owner-full-control";
  Request request = put_of("abc");
  request.settings = &settings;
  const std::string text = head_of(request);
  for (const char* line :
       {"content-type: text/plain; charset=utf-8", "cache-control: no-cache,   private",
        "x-amz-meta-zz: 1", "x-amz-meta-a: two  spaces", "x-amz-storage-class: STANDARD_IA",
        "x-amz-server-side-encryption: aws:kms", "x-amz-acl: bucket-owner-full-control",
        "x-amz-server-side-encryption-aws-kms-key-id: arn:aws:kms:us-east-1:1:key/2"})
    EXPECT_THAT(text, HasSubstr("\r\n" + std::string(line) + "\r\n"));
  EXPECT_THAT(text, HasSubstr("SignedHeaders=cache-control;content-type;host;x-amz-acl;"));
  EXPECT_THAT(text, HasSubstr("x-amz-meta-a;x-amz-meta-zz;"));
  const auth::Verdict verdict = verify(text);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  // A part is of an upload that has them already.
  request.op = Op::kPutPart;
  request.upload_id = "u";
  request.part_number = 1;
  EXPECT_THAT(head_of(request), Not(HasSubstr("x-amz-meta")));
}

TEST_F(Protocol, AsManyMetadataAsThereMayBeFit) {
  ObjectSettings settings;
  for (std::size_t i = 0; i < ObjectSettings::kMostMetadata; ++i)
    settings.metadata["name-" + std::to_string(i)] = std::string(20, 'v');
  Request request = put_of("abc");
  request.settings = &settings;
  const std::string text = head_of(request);
  const auth::Verdict verdict = verify(text);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
}

TEST_F(Protocol, AReadNamesItsVersion) {
  Request request = get_of("k");
  request.version_id = "a/b+c";
  const std::string text = head_of(request);
  EXPECT_THAT(text, testing::StartsWith("GET /bucket/pre/k?versionId=a%2Fb%2Bc HTTP/1.1\r\n"));
  EXPECT_TRUE(verify(text).ok()) << text;
}

TEST_F(Protocol, AppendsBehindWhatIsThere) {
  Request request = get_of("k");
  std::string text = "x";
  ASSERT_TRUE(protocol_->append_head(request, HeadContext{kNow, nullptr}, text).ok());
  EXPECT_EQ(text, "x" + head_of(request));
}

TEST_F(Protocol, PutSignsTheHashOfItsBodyOverPlainHttp) {
  Request request = put_of("abc");
  request.if_absent = true;
  const std::string text = head_of(request);
  EXPECT_THAT(text, HasSubstr("content-length: 3\r\n"));
  EXPECT_THAT(text, HasSubstr("if-none-match: *\r\n"));
  const auth::Verdict verdict = verify(text);
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  EXPECT_THAT(text, HasSubstr("x-amz-checksum-crc32c: "));
  EXPECT_EQ(verdict.payload_hash,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(Protocol, PutOverTlsCarriesACrcInstead) {
  S3Config config = config_with("");
  config.endpoint.use_tls = true;
  open(std::move(config));
  const std::string text = head_of(put_of("123456789"));
  EXPECT_THAT(text, HasSubstr("x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n"));
  EXPECT_THAT(
      text, HasSubstr("x-amz-checksum-crc32c: 4waSgw==\r\n"));  // 0xe3069283, the CRC's check value
  EXPECT_TRUE(verify(text).ok());
}

TEST_F(Protocol, PutToThisMachineIsNotHashed) {
  S3Config config = config_with("");
  config.is_loopback = true;
  open(config);
  EXPECT_THAT(head_of(put_of("abc")), HasSubstr("x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n"));
  config.upload_checksum = ChecksumKind::kNone;  // then the hash is all there is
  open(std::move(config));
  EXPECT_EQ(verify(head_of(put_of("abc"))).payload_hash,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(Protocol, UploadsCarryTheChecksumThatWasChosen) {
  S3Config config = config_with("");
  config.upload_checksum = ChecksumKind::kCrc64Nvme;
  open(config);
  // 0xae8b14860a799888, the CRC's check value.
  EXPECT_THAT(head_of(put_of("123456789")),
              HasSubstr("x-amz-checksum-crc64nvme: rosUhgp5mIg=\r\n"));
  config.upload_checksum = ChecksumKind::kNone;
  open(std::move(config));
  EXPECT_THAT(head_of(put_of("123456789")), Not(HasSubstr("x-amz-checksum")));
}

TEST_F(Protocol, ChecksumsAreAskedForWhereTheyCanHelp) {
  const auto asks = [&](std::uint64_t offset, std::uint64_t length) {
    Request request;
    request.key = "k";
    request.offset_bytes = offset;
    request.length_bytes = length;
    return head_of(request).find("x-amz-checksum-mode: ENABLED") != std::string::npos;
  };
  EXPECT_TRUE(asks(0, 1000));
  EXPECT_TRUE(asks(8 << 20, 8 << 20));
  EXPECT_FALSE(asks(1 << 20, 64 << 10));
  S3Config config = config_with("");
  config.verify_checksums = false;
  open(std::move(config));
  EXPECT_FALSE(asks(0, 1000));
}

TEST_F(Protocol, RequestersPayWhenTheySaySo) {
  S3Config config = config_with("");
  config.requester_pays = true;
  open(std::move(config));
  Request request = get_of("k");
  for (const std::string& text : {head_of(request), head_of(HttpCall())}) {
    EXPECT_THAT(text, HasSubstr("x-amz-request-payer: requester\r\n"));
    EXPECT_TRUE(verify(text).ok()) << text;
  }
}

TEST_F(Protocol, RedirectedRequestsAreSignedForTheirNewPlace) {
  S3Config config = config_with("");
  config.trusted = TrustedHosts("10.0.0.1", "10.0.0.0/24");
  open(std::move(config));
  const HttpRedirect redirect{{"10.0.0.7", 51081, false},
                              "10.0.0.7:51081",
                              "/s3/bucket/pre/a%20b?uptime=17&pid=t%5B1%5D&x"};
  Request request;
  request.key = "a b";
  request.length_bytes = 5;
  std::string text;
  ASSERT_TRUE(protocol_->append_head(request, HeadContext{kNow, &redirect}, text).ok());
  EXPECT_THAT(text,
              testing::StartsWith("GET /s3/bucket/pre/a%20b?uptime=17&pid=t%5B1%5D&x HTTP/1.1\r\n"
                                  "host: 10.0.0.7:51081\r\n"));
  EXPECT_TRUE(verify(text).ok()) << verify(text).message;
  HttpCall call;
  call.method = "DELETE";
  call.path = "pre/a b";
  text.clear();
  ASSERT_TRUE(protocol_->append_head(call, HeadContext{kNow, &redirect}, text).ok());
  EXPECT_THAT(text, testing::StartsWith("DELETE /s3/bucket/pre/a%20b?uptime=17"));
  EXPECT_TRUE(verify(text).ok()) << verify(text).message;
}

TEST_F(Protocol, OnlyTheEndpointsOwnHostsGetCredentials) {
  S3Config config = config_with("");
  config.trusted = TrustedHosts("store.example", "node7.cluster,.trusted.example");
  open(config);
  Request get;
  get.key = "k";
  get.length_bytes = 1;
  const auto code_at = [&](const std::string& host) {
    const HttpRedirect redirect{{host, 8080, false}, host + ":8080", "/k"};
    std::string text;
    const Status status = protocol_->append_head(get, HeadContext{kNow, &redirect}, text);
    if (!status.ok()) {
      EXPECT_THAT(text, testing::IsEmpty());
      EXPECT_THAT(std::string(status.message()), HasSubstr("trusted_hosts"));
    }
    text.clear();
    EXPECT_EQ(protocol_->append_head(HttpCall(), HeadContext{kNow, &redirect}, text).code(),
              status.code());
    return status.code();
  };
  EXPECT_EQ(code_at("store.example"), Code::kOk) << "another port";
  EXPECT_EQ(code_at("STORE.example"), Code::kOk);
  EXPECT_EQ(code_at("node1.store.example"), Code::kOk);
  EXPECT_EQ(code_at("node7.cluster"), Code::kOk);
  EXPECT_EQ(code_at("a.trusted.example"), Code::kOk);
  for (const char* host : {"evilstore.example", "example", "other.example", "store.example.evil",
                           "127.0.0.2", "node8.cluster", "s3.amazonaws.com"})
    EXPECT_EQ(code_at(host), Code::kDenied) << host;
  config.credentials = nullptr;
  open(std::move(config));
  EXPECT_EQ(code_at("127.0.0.2"), Code::kOk) << "there is nothing to give away";
  Request put;
  put.op = Op::kPut;
  put.key = "k";
  const HttpRedirect redirect{{"127.0.0.2", 80, false}, "127.0.0.2", "/k"};
  std::string text;
  EXPECT_EQ(protocol_->append_head(put, HeadContext{kNow, &redirect}, text).code(), Code::kDenied);
}

TEST_F(Protocol, AmazonMayRedirectToItselfOnly) {
  S3Config config = config_with("");
  config.endpoint = {"bucket.s3.amazonaws.com", 443, true};
  config.host_field = config.endpoint.host;
  open(std::move(config));
  Request request = get_of("k");
  const auto code_at = [&](const std::string& host) {
    const HttpRedirect redirect{{host, 443, true}, host, "/k"};
    std::string text;
    const Code of_request =
        protocol_->append_head(request, HeadContext{kNow, &redirect}, text).code();
    EXPECT_EQ(protocol_->append_head(HttpCall(), HeadContext{kNow, &redirect}, text).code(),
              of_request);
    return of_request;
  };
  EXPECT_EQ(code_at("bucket.s3-eu-west-1.amazonaws.com"), Code::kOk);
  EXPECT_EQ(code_at("bucket.s3.cn-north-1.amazonaws.com.cn"), Code::kOk);
  EXPECT_EQ(code_at("amazonaws.com.evil.example"), Code::kDenied);
  EXPECT_EQ(code_at("bucket.s3.dualstack.eu-west-1.amazonaws.com"), Code::kOk);
  EXPECT_EQ(code_at("b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com"), Code::kOk);
  EXPECT_EQ(code_at("ec2-3-4-5-6.compute-1.amazonaws.com"), Code::kDenied) << "a customer's";
  EXPECT_EQ(code_at("s3-1234567890.us-east-1.elb.amazonaws.com"), Code::kDenied) << "a customer's";
  EXPECT_EQ(code_at("evilamazonaws.com"), Code::kDenied);
  EXPECT_EQ(code_at("10.0.0.7"), Code::kDenied);
}

TEST_F(Protocol, PutOfNothingHasALength) {
  Request request;
  request.op = Op::kPut;
  request.key = "empty";
  const std::string text = head_of(request);
  EXPECT_THAT(text, HasSubstr("content-length: 0\r\n"));
  EXPECT_EQ(verify(text).payload_hash, auth::kEmptyPayloadHash);
}

TEST_F(Protocol, PartNamesUploadAndNumber) {
  Request request = put_of("abc");
  request.op = Op::kPutPart;
  request.upload_id = "id/1=";
  request.part_number = 7;
  request.etag = "\"ignored\"";
  const std::string text = head_of(request);
  EXPECT_THAT(text, testing::StartsWith(
                        "PUT /bucket/pre/key?partNumber=7&uploadId=id%2F1%3D HTTP/1.1\r\n"));
  EXPECT_THAT(text, Not(HasSubstr("if-match")));
  EXPECT_TRUE(verify(text).ok());
}

TEST_F(Protocol, SessionTokenIsSentAndSigned) {
  open(config_with("", {"AKID", "secret", "to/ken==", std::nullopt}));
  Request request = get_of("k");
  const std::string text = head_of(request);
  EXPECT_THAT(text, HasSubstr("x-amz-security-token: to/ken==\r\n"));
  EXPECT_TRUE(verify(text, "to/ken==").ok());
}

TEST_F(Protocol, AnonymousRequestsAreBare) {
  S3Config config = config_with("");
  config.credentials = nullptr;
  open(std::move(config));
  Request request = get_of("k");
  EXPECT_EQ(head_of(request),
            "GET /bucket/k HTTP/1.1\r\nhost: 127.0.0.1:9000\r\nrange: bytes=0-0\r\n"
            "x-amz-checksum-mode: ENABLED\r\nuser-agent: headrace/0.1\r\n\r\n");
}

TEST_F(Protocol, RefusesKeysThatS3CannotHold) {
  const auto code = [&](std::string_view key, std::string_view etag = "") {
    Request request;
    request.key = key;
    request.etag = etag;
    request.length_bytes = 1;
    std::string text;
    return protocol_->append_head(request, HeadContext{kNow, nullptr}, text).code();
  };
  EXPECT_EQ(code(""), Code::kInvalidArgument);
  EXPECT_EQ(code(std::string(1021, 'x')), Code::kInvalidArgument);  // with "pre/" 1025
  EXPECT_EQ(code(std::string(1020, 'x')), Code::kOk);
  EXPECT_EQ(code(std::string_view("a\0b", 3)), Code::kInvalidArgument);
  EXPECT_EQ(code("k", "\"v\"\r\nx: y"), Code::kInvalidArgument);
}

TEST_F(Protocol, ExpiredCredentialsAreDenied) {
  open(config_with("", {"AKID", "secret", "t", kNow}));
  Request request = get_of("k");
  std::string text;
  EXPECT_EQ(protocol_->append_head(request, HeadContext{kNow, nullptr}, text).code(),
            Code::kDenied);
  EXPECT_EQ(protocol_->append_head(HttpCall(), HeadContext{kNow, nullptr}, text).code(),
            Code::kDenied);
}

TEST_F(Protocol, CallsSortQueryAndFields) {
  HttpCall call;
  call.query = {{"prefix", "a/b c"}, {"list-type", "2"}, {"delimiter", "/"}};
  const std::string list = head_of(call);
  EXPECT_THAT(list,
              testing::StartsWith(
                  "GET /bucket?delimiter=%2F&list-type=2&prefix=a%2Fb%20c HTTP/1.1\r\nhost: "));
  EXPECT_TRUE(verify(list).ok());

  HttpCall copy;
  copy.method = "PUT";
  copy.path = "to";
  copy.headers = {{"x-amz-copy-source", "/bucket/from"}};
  const std::string text = head_of(copy);
  EXPECT_THAT(text, HasSubstr("content-length: 0\r\n"));
  EXPECT_TRUE(verify(text).ok());
  copy.headers = {{"x-amz-copy-source", "a\r\nb"}};
  std::string out;
  EXPECT_EQ(protocol_->append_head(copy, HeadContext{kNow, nullptr}, out).code(),
            Code::kInvalidArgument);
}

TEST_F(Protocol, BucketRootOfAVirtualHostIsASlash) {
  S3Config config = config_with("");
  config.base_path = "";
  config.host_field = "bucket.s3.example";
  open(std::move(config));
  EXPECT_THAT(head_of(HttpCall()),
              testing::StartsWith("GET / HTTP/1.1\r\nhost: bucket.s3.example\r\n"));
}

TEST_F(Protocol, FindsErrorsInsideSuccess) {
  HttpCall call;
  call.what = "COMPLETE s3://bucket/k";
  HttpAnswer answer{200, "HTTP/1.1 200 OK\r\n\r\n", "\n<Error><Code>InternalError</Code></Error>"};
  const Status status = protocol_->check_answer(call, answer);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("COMPLETE s3://bucket/k: InternalError"));
  answer.body = "<CompleteMultipartUploadResult/>";
  EXPECT_TRUE(protocol_->check_answer(call, answer).ok());
}

TEST_F(Protocol, DescribesRequests) {
  Request request;
  request.key = "a b";
  request.offset_bytes = 8;
  request.length_bytes = 8;
  EXPECT_EQ(protocol_->describe(request), "GET s3://bucket/a b [8, 16)");
  request.op = Op::kPutPart;
  request.part_number = 3;
  EXPECT_EQ(protocol_->describe(request), "PUT s3://bucket/a b part 3 (8 bytes)");
}

Status answer(S3Protocol& protocol, int status, const std::string& fields, std::string_view code,
              const std::string& more = "") {
  const std::string text = "HTTP/1.1 " + std::to_string(status) + " X\r\n" + fields + "\r\n";
  const std::string body =
      code.empty() ? "" : "<Error><Code>" + std::string(code) + "</Code>" + more + "</Error>";
  return protocol.error_from("GET s3://bucket/k", http::response_head(text), body);
}

/// Hands out what the test has put into it and notes what was refused.
class ScriptedCredentials final : public auth::CredentialProvider {
 public:
  explicit ScriptedCredentials(auth::Credentials first)
      : now_(std::make_shared<const auth::Credentials>(std::move(first))) {}
  Result<std::shared_ptr<const auth::Credentials>> current(auth::WallTime) override {
    if (now_ == nullptr) return Status(Code::kUnavailable, "being fetched");
    return now_;
  }
  bool invalidate(const auth::Credentials& refused) override {
    refused_.push_back(refused.access_key_id);
    return can_renew_;
  }
  void set(auth::Credentials next) {
    now_ = std::make_shared<const auth::Credentials>(std::move(next));
  }

  std::shared_ptr<const auth::Credentials> now_;
  std::vector<std::string> refused_;
  bool can_renew_ = true;
};

TEST_F(Protocol, ExpiredCredentialsAreReportedAndTheRequestTriedAgain) {
  const auto provider =
      std::make_shared<ScriptedCredentials>(auth::Credentials{"ONE", "s", "t", std::nullopt});
  open_with(provider);
  head_of(HttpCall());
  for (const char* code : {"ExpiredToken", "ExpiredTokenException", "InvalidToken",
                           "TokenRefreshRequired", "RequestExpired"}) {
    EXPECT_EQ(answer(*protocol_, 400, "", code).code(), Code::kUnavailable) << code;
  }
  EXPECT_EQ(answer(*protocol_, 403, "", "RequestExpired").code(), Code::kUnavailable);
  EXPECT_EQ(provider->refused_, std::vector<std::string>(6, "ONE"));
  provider->can_renew_ = false;
  EXPECT_EQ(answer(*protocol_, 400, "", "ExpiredToken").code(), Code::kDenied);
  EXPECT_EQ(answer(*protocol_, 403, "", "AccessDenied").code(), Code::kDenied);
}

TEST_F(Protocol, ALateRefusalOfOldCredentialsSparesTheNewOnes) {
  const auto provider =
      std::make_shared<ScriptedCredentials>(auth::Credentials{"ONE", "s", "t", std::nullopt});
  open_with(provider);
  head_of(HttpCall());
  provider->set({"TWO", "s", "t", std::nullopt});
  head_of(HttpCall());
  EXPECT_EQ(answer(*protocol_, 400, "", "ExpiredToken").code(), Code::kUnavailable);
  EXPECT_TRUE(provider->refused_.empty());
  std::string text;
  ASSERT_TRUE(
      protocol_->append_head(HttpCall(), HeadContext{kNow + std::chrono::minutes(2), nullptr}, text)
          .ok());
  EXPECT_EQ(answer(*protocol_, 400, "", "ExpiredToken").code(), Code::kUnavailable);
  EXPECT_EQ(provider->refused_, std::vector<std::string>{"TWO"});
}

TEST_F(Protocol, CredentialsThatAreBeingFetchedAreWaitedFor) {
  const auto provider =
      std::make_shared<ScriptedCredentials>(auth::Credentials{"ONE", "s", "", std::nullopt});
  provider->now_ = nullptr;
  open_with(provider);
  std::string text;
  EXPECT_EQ(protocol_->append_head(HttpCall(), HeadContext{kNow, nullptr}, text).code(),
            Code::kUnavailable);
}

// Answers to HEAD have no body, so what they are about is a guess.
TEST_F(Protocol, ABare400MayBeAboutTemporaryCredentials) {
  const auto provider =
      std::make_shared<ScriptedCredentials>(auth::Credentials{"ONE", "s", "t", std::nullopt});
  open_with(provider);
  head_of(HttpCall());
  EXPECT_EQ(answer(*protocol_, 400, "", "").code(), Code::kUnavailable);
  EXPECT_EQ(provider->refused_, std::vector<std::string>{"ONE"});
  // Those of the first seconds may have been signed with the old ones; then it is something else.
  provider->set({"TWO", "s", "t", std::nullopt});
  const auto code_after = [&](std::chrono::seconds time) {
    std::string text;
    EXPECT_TRUE(protocol_->append_head(HttpCall(), HeadContext{kNow + time, nullptr}, text).ok());
    return answer(*protocol_, 400, "", "").code();
  };
  EXPECT_EQ(code_after(std::chrono::seconds(0)), Code::kUnavailable);
  EXPECT_EQ(code_after(std::chrono::seconds(3)), Code::kInvalidArgument);
  EXPECT_EQ(provider->refused_, std::vector<std::string>{"ONE"});
  EXPECT_EQ(code_after(std::chrono::seconds(61)), Code::kUnavailable);
  EXPECT_EQ(provider->refused_, (std::vector<std::string>{"ONE", "TWO"}));
  provider->can_renew_ = false;
  EXPECT_EQ(code_after(std::chrono::seconds(62)), Code::kInvalidArgument);
}

TEST_F(Protocol, ABare400IsNotAboutCredentialsThatNeverEnd) {
  const auto provider =
      std::make_shared<ScriptedCredentials>(auth::Credentials{"ONE", "s", "", std::nullopt});
  open_with(provider);
  head_of(HttpCall());
  EXPECT_EQ(answer(*protocol_, 400, "", "").code(), Code::kInvalidArgument);
  EXPECT_TRUE(provider->refused_.empty());
}

TEST_F(Protocol, ABare403IsAboutTheClockWhereThatIsWrong) {
  head_of(HttpCall());
  const std::string date = "date: Sun, 30 Aug 2015 13:36:00 GMT\r\n";  // an hour ahead
  EXPECT_EQ(answer(*protocol_, 403, date, "").code(), Code::kUnavailable);
  EXPECT_THAT(head_of(HttpCall()), HasSubstr("x-amz-date: 20150830T133600Z\r\n"));
  // With the right time it is a refusal, and so it is where the clocks agree or nothing is said.
  EXPECT_EQ(answer(*protocol_, 403, date, "").code(), Code::kDenied);
  EXPECT_EQ(answer(*protocol_, 403, "date: Sun, 30 Aug 2015 13:39:00 GMT\r\n", "").code(),
            Code::kDenied);
  EXPECT_EQ(answer(*protocol_, 403, "", "").code(), Code::kDenied);
}

TEST_F(Protocol, LearnsTheStoresClockOnce) {
  head_of(HttpCall());
  const std::string date = "date: Sun, 30 Aug 2015 13:36:00 GMT\r\n";  // an hour ahead
  EXPECT_EQ(answer(*protocol_, 403, date, "RequestTimeTooSkewed").code(), Code::kUnavailable);
  EXPECT_THAT(head_of(HttpCall()), HasSubstr("x-amz-date: 20150830T133600Z\r\n"));
  // The same lesson again is none.
  EXPECT_EQ(answer(*protocol_, 403, date, "RequestTimeTooSkewed").code(), Code::kDenied);
  EXPECT_EQ(answer(*protocol_, 403, "", "RequestTimeTooSkewed").code(), Code::kDenied);
}

TEST_F(Protocol, LearnsTheRegionFromAmazonOnly) {
  const std::string region = "<Region>eu-west-1</Region>";
  EXPECT_EQ(answer(*protocol_, 400, "", "AuthorizationHeaderMalformed", region).code(),
            Code::kInvalidArgument);
  S3Config config = config_with("");
  config.is_aws = true;
  open(std::move(config));
  EXPECT_EQ(answer(*protocol_, 400, "", "AuthorizationHeaderMalformed", region).code(),
            Code::kUnavailable);
  EXPECT_THAT(head_of(HttpCall()), HasSubstr("/eu-west-1/s3/aws4_request"));
  // Answers to HEAD have no body.
  EXPECT_EQ(answer(*protocol_, 400, "x-amz-bucket-region: eu-north-1\r\n", "").code(),
            Code::kUnavailable);
  EXPECT_THAT(head_of(HttpCall()), HasSubstr("/eu-north-1/s3/aws4_request"));
  // Enough lessons; and a signature does not help at the wrong place.
  EXPECT_EQ(answer(*protocol_, 400, "x-amz-bucket-region: us-west-1\r\n", "").code(),
            Code::kInvalidArgument);
  EXPECT_EQ(answer(*protocol_, 301, "x-amz-bucket-region: us-west-1\r\n", "").code(),
            Code::kInvalidArgument);
}

TEST_F(Protocol, DirectoryBucketsAreSignedWithSessionsButForCopies) {
  S3Config config = config_with("");
  config.is_express = true;
  const auto sessions = std::make_shared<ScriptedCredentials>(
      auth::Credentials{"SESSION", "ss", "st/ok==", std::nullopt});
  protocol_ = *S3Protocol::create(std::move(config), sessions);
  Request request = get_of("k");
  const std::string get = head_of(request);
  EXPECT_THAT(get, HasSubstr("x-amz-s3session-token: st/ok==\r\n"));
  EXPECT_THAT(get, HasSubstr("Credential=SESSION/20150830/us-east-1/s3express/aws4_request"));
  EXPECT_THAT(get, HasSubstr("x-amz-date;x-amz-s3session-token,"));
  EXPECT_THAT(head_of(HttpCall()), HasSubstr("Credential=SESSION/"));
  HttpCall copy;
  copy.method = "PUT";
  copy.headers = {{"x-amz-copy-source", "/bucket/from"}};
  EXPECT_THAT(head_of(copy), HasSubstr("Credential=AKID/20150830/us-east-1/s3express/"));
  EXPECT_EQ(answer(*protocol_, 400, "", "ExpiredToken").code(), Code::kUnavailable);
  EXPECT_EQ(sessions->refused_, std::vector<std::string>{"SESSION"});
  EXPECT_EQ(protocol_->presign({"k", Op::kGet, std::chrono::seconds(60)}, kNow).error().code(),
            Code::kUnsupported);
}

TEST_F(Protocol, PresignedUrlsAreGoodForAServer) {
  const auto good = [&](Op op, const std::string& version_id, const std::string& shown) {
    auto url = protocol_->presign({"a b", op, std::chrono::seconds(60), version_id}, kNow);
    ASSERT_TRUE(url.has_value()) << url.error().message();
    EXPECT_THAT(*url, testing::StartsWith("http://127.0.0.1:9000/bucket/"));
    EXPECT_THAT(*url, HasSubstr("/a%20b?X-Amz-Algorithm"));
    EXPECT_THAT(*url, HasSubstr(shown));
    const std::string method = op == Op::kGet ? "GET " : "PUT ";
    const std::string text = method + url->substr(std::string("http://127.0.0.1:9000").size()) +
                             " HTTP/1.1\r\nhost: 127.0.0.1:9000\r\n\r\n";
    EXPECT_TRUE(verify(text).ok()) << verify(text).message;
  };
  good(Op::kGet, "", "/bucket/pre/a%20b?");
  good(Op::kPut, "", "X-Amz-Expires=60");
  good(Op::kGet, "v/1+2=", "&versionId=v%2F1%2B2%3D&");
  S3Config config = config_with("");
  config.requester_pays = true;
  open(std::move(config));
  good(Op::kGet, "v1", "&versionId=v1&x-amz-request-payer=requester&");
}

TEST_F(Protocol, PresigningRefusesWhatNoUrlCanDo) {
  const auto code = [&](PresignRequest request) {
    auto url = protocol_->presign(request, kNow);
    return url ? Code::kOk : url.error().code();
  };
  EXPECT_EQ(code({"", Op::kGet, std::chrono::seconds(60)}), Code::kInvalidArgument);
  EXPECT_EQ(code({"k", Op::kPutPart, std::chrono::seconds(60)}), Code::kInvalidArgument);
  EXPECT_EQ(code({"k", Op::kGet, std::chrono::seconds(0)}), Code::kInvalidArgument);
  EXPECT_EQ(code({"k", Op::kGet, std::chrono::hours(169)}), Code::kInvalidArgument);
  EXPECT_EQ(code({"k", Op::kPut, std::chrono::seconds(60), "v1"}), Code::kInvalidArgument);
  S3Config config = config_with("");
  config.credentials = auth::static_credentials({"AKID", "secret", "t", kNow});
  open(config);
  EXPECT_EQ(code({"k", Op::kGet, std::chrono::seconds(60)}), Code::kDenied);
  config.credentials = nullptr;
  open(std::move(config));
  EXPECT_EQ(code({"k", Op::kGet, std::chrono::seconds(60)}), Code::kUnsupported);
}

/// Field of a head, or "".
std::string field_of(const std::string& text, std::string_view name) {
  http::RequestHead head;
  auto size = http::parse_request_head(text, head);
  EXPECT_TRUE(size.has_value() && *size > 0) << text;
  return std::string(head.header(name));
}

TEST(ProtocolBotocore, WritesTheRequestsThatBotocoreWrites) {
  std::ifstream in(std::filesystem::path(HEADRACE_SOURCE_DIR) /
                   "tests/data/botocore_s3_vectors.jsonl");
  int count = 0;
  for (std::string line; std::getline(in, line);) {
    const json v = json::parse(line);
    if (v["kind"] != "client") continue;
    ++count;
    S3Config config = config_with("", {v["access_key"], v["secret_key"], v["token"], std::nullopt});
    config.region = v["region"];
    config.verify_checksums = false;  // which asks for them, as botocore was told not to
    auto protocol = *S3Protocol::create(std::move(config));
    const std::string key = v["key"];
    const std::chrono::sys_seconds at{std::chrono::seconds(v["unix_s"].get<std::int64_t>())};
    std::string text;
    Status status;
    if (v["op"] == "get") {
      Request request;
      request.key = key;
      request.offset_bytes = v["offset"];
      request.length_bytes = v["length"];
      status = protocol->append_head(request, HeadContext{at, nullptr}, text);
    } else {
      HttpCall call;
      call.method = v["method"];
      if (v["op"] == "head") call.path = key;
      if (v["op"] == "list") {
        call.query = {{"list-type", "2"},
                      {"prefix", key},
                      {"delimiter", "/"},
                      {"max-keys", "1000"},
                      {"encoding-type", "url"}};
      }
      status = protocol->append_head(call, HeadContext{at, nullptr}, text);
    }
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(field_of(text, "authorization"),
              v["signed_headers"]["Authorization"].get<std::string>())
        << v["url"] << "\n"
        << text;
  }
  EXPECT_GE(count, 100);
}

}  // namespace
}  // namespace headrace::s3
