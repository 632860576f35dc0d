#include "store/s3/s3_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "auth/sigv4.h"
#include "http/request.h"

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

  template <class T>
  std::string head_of(const T& request) {
    std::string text;
    const Status status = protocol_->append_head(request, HeadContext{kNow, nullptr}, text);
    EXPECT_TRUE(status.ok()) << status.message();
    return text;
  }

  Request put_of(std::string_view bytes) {
    Request request;
    request.op = Op::kPut;
    request.key = "key";
    request.length_bytes = bytes.size();
    request.slab = *pool_->try_acquire(bytes.size());
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(request.slab.bytes().data()));
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
                        "if-match: \"v1\"\r\nrange: bytes=10-14\r\n"));
  EXPECT_THAT(text,
              HasSubstr("SignedHeaders=host;if-match;range;x-amz-content-sha256;x-amz-date,"));
  EXPECT_THAT(text, Not(HasSubstr("content-length")));
  EXPECT_TRUE(verify(text).ok()) << text;
}

TEST_F(Protocol, AppendsBehindWhatIsThere) {
  Request request;
  request.key = "k";
  request.length_bytes = 1;
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
  Request request;
  request.key = "k";
  request.length_bytes = 1;
  const std::string text = head_of(request);
  EXPECT_THAT(text, HasSubstr("x-amz-security-token: to/ken==\r\n"));
  EXPECT_TRUE(verify(text, "to/ken==").ok());
}

TEST_F(Protocol, AnonymousRequestsAreBare) {
  S3Config config = config_with("");
  config.credentials = nullptr;
  open(std::move(config));
  Request request;
  request.key = "k";
  request.length_bytes = 1;
  EXPECT_EQ(head_of(request),
            "GET /bucket/k HTTP/1.1\r\nhost: 127.0.0.1:9000\r\nrange: bytes=0-0\r\nuser-agent: "
            "headrace/0.1\r\n\r\n");
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
  Request request;
  request.key = "k";
  request.length_bytes = 1;
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
