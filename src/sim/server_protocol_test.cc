// Stored checksums, parts, sessions of directory buckets, redirects, TLS.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/crc32c.h"
#include "sim/checksum.h"
#include "sim/object_sums.h"
#include "sim/server_fixture.h"

namespace headrace::sim {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::string crc32c_of(std::string_view text) {
  auto checksum = Checksum::create(ChecksumKind::kCrc32c);
  (*checksum)->update(text);
  return to_base64((*checksum)->finish());
}

class ProtocolTest : public ServerTest {
 protected:
  static constexpr const char* kField = "x-amz-checksum-crc32c";
  /// "b/m" of two parts with sums of that type.
  void upload_parts(const std::string& type) {
    TestRequest create{"POST", "/b/m", "uploads", {{"x-amz-checksum-algorithm", "CRC32C"}}};
    if (!type.empty()) create.fields.emplace_back("x-amz-checksum-type", type);
    upload_id_ = client().request(create).xml("UploadId");
    ASSERT_FALSE(upload_id_.empty());
    std::string document = "<CompleteMultipartUpload>";
    for (int i = 0; i < 2; ++i) {
      const std::string& part = i == 0 ? first_ : last_;
      const std::string number = std::to_string(i + 1);
      const std::string query = "partNumber=" + number + "&uploadId=" + upload_id_;
      const TestResponse put = client().put("/b/m", part, {{kField, crc32c_of(part)}}, query);
      ASSERT_EQ(put.status, 200) << put.body;
      document += "<Part><PartNumber>" + number + "</PartNumber><ETag>" + put.header("etag") +
                  "</ETag><ChecksumCRC32C>" + crc32c_of(part) + "</ChecksumCRC32C></Part>";
    }
    document_ = document + "</CompleteMultipartUpload>";
  }
  TestResponse get_checked(TestFields fields = {}, const std::string& query = "") {
    fields.emplace_back("x-amz-checksum-mode", "ENABLED");
    return client().get("/b/m", fields, query);
  }
  const std::string first_ = pattern(5 << 20);
  const std::string last_ = "the end";
  std::string upload_id_, document_;
};

TEST_F(ProtocolTest, SumsOfUploadsAreReturnedWhenAskedFor) {
  EXPECT_EQ(client().put("/b/m", "text", {{kField, crc32c_of("text")}}).status, 200);
  EXPECT_EQ(client().get("/b/m").header(kField), "");
  EXPECT_EQ(get_checked().header(kField), crc32c_of("text"));
  EXPECT_EQ(get_checked().header("x-amz-checksum-type"), "FULL_OBJECT");
  EXPECT_EQ(get_checked({{"range", "bytes=0-1"}}).header(kField), "");
  client().put("/b/m", "text");
  EXPECT_EQ(get_checked().header(kField), "");
}

TEST_F(ProtocolTest, WholeSumsOfPartsAreCombined) {
  upload_parts("FULL_OBJECT");
  const TestResponse done = client().post("/b/m", document_, "uploadId=" + upload_id_);
  EXPECT_EQ(done.xml("ChecksumCRC32C"), crc32c_of(first_ + last_));
  EXPECT_EQ(get_checked().header(kField), crc32c_of(first_ + last_));
  const std::string tail = "bytes=" + std::to_string(first_.size()) + "-";
  EXPECT_EQ(get_checked({{"range", tail}}).header(kField), crc32c_of(last_));
  EXPECT_EQ(get_checked({{"range", "bytes=0-99"}}).header(kField), "");
}

TEST_F(ProtocolTest, CompositeSumsAndPartNumbers) {
  upload_parts("");
  EXPECT_EQ(client().post("/b/m", document_, "uploadId=" + upload_id_).status, 200);
  EXPECT_THAT(get_checked().header(kField), HasSubstr("-2"));
  const TestResponse part = get_checked({}, "partNumber=2");
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, last_);
  EXPECT_EQ(part.header("x-amz-mp-parts-count"), "2");
  EXPECT_EQ(part.header(kField), crc32c_of(last_));
  EXPECT_EQ(get_checked({}, "partNumber=3").xml("Code"), "InvalidPartNumber");
  EXPECT_EQ(get_checked({}, "partNumber=x").xml("Code"), "InvalidArgument");
}

TEST_F(ProtocolTest, WrongSumsOfPartsAreRefused) {
  upload_parts("FULL_OBJECT");
  const std::size_t at = document_.find("<ChecksumCRC32C>") + 16;
  std::string wrong = document_;
  wrong[at] = wrong[at] == 'A' ? 'B' : 'A';
  EXPECT_EQ(client().post("/b/m", wrong, "uploadId=" + upload_id_).xml("Code"), "InvalidPart");
  TestRequest complete{
      "POST", "/b/m", "uploadId=" + upload_id_, {{kField, crc32c_of("x")}}, document_};
  EXPECT_EQ(client().request(complete).xml("Code"), "BadDigest");
}

TEST_F(ProtocolTest, WrongChecksumsOnDemand) {
  options_.behaviour = SimBehaviour();
  options_.behaviour->wrong_checksum_rate = 1;
  client().put("/b/m", "text", {{kField, crc32c_of("text")}});
  EXPECT_NE(get_checked().header(kField), crc32c_of("text"));
}

TEST_F(ProtocolTest, UploadsAndPartsAreListedByPages) {
  upload_parts("");
  const std::string other = client().post("/b/n", "", "uploads").xml("UploadId");
  TestResponse page = client().get("/b", {}, "max-uploads=1&uploads=");
  EXPECT_EQ(page.xml("UploadId"), upload_id_);
  EXPECT_EQ(page.xml("IsTruncated"), "true");
  EXPECT_EQ(page.xml("NextKeyMarker"), "m");
  page = client().get("/b", {}, "key-marker=m&upload-id-marker=" + upload_id_ + "&uploads=");
  EXPECT_EQ(page.xml("UploadId"), other);
  EXPECT_EQ(page.xml("IsTruncated"), "false");
  page = client().get("/b/m", {}, "max-parts=1&uploadId=" + upload_id_);
  EXPECT_EQ(page.xml("ChecksumCRC32C"), crc32c_of(first_));
  EXPECT_EQ(page.xml("NextPartNumberMarker"), "1");
  page = client().get("/b/m", {}, "part-number-marker=1&uploadId=" + upload_id_);
  EXPECT_EQ(page.xml("PartNumber"), "2");
  EXPECT_EQ(client().get("/b", {}, "max-uploads=x&uploads=").xml("Code"), "InvalidArgument");
}

TEST_F(ProtocolTest, RequestersPayIsCounted) {
  write_file("b/x", "text");
  const TestResponse response = client().get("/b/x", {{"x-amz-request-payer", "requester"}});
  EXPECT_EQ(response.header("x-amz-request-charged"), "requester");
  (void)client().get("/_headrace/stats");
  EXPECT_EQ(stats()["requester_pays"], 1);
}

TEST_F(ProtocolTest, SkewedClocksRefuseSignatures) {
  options_.behaviour = SimBehaviour();
  options_.behaviour->clock_skew_ms = 3'600'000;
  write_file("b/x", "text");
  EXPECT_EQ(client().get("/b/x").xml("Code"), "RequestTimeTooSkewed");
  client().clock_offset = std::chrono::hours(1);
  EXPECT_EQ(client().get("/b/x").status, 200);
}

class ExpressTest : public ServerTest {
 protected:
  ExpressTest() {
    std::filesystem::create_directory(dir_.path() + "/d--z1--x-s3");
    for (int i = 0; i < 40; ++i) write_file("d--z1--x-s3/k" + std::to_string(i), "text");
  }
  void open_session() {
    client().service = "s3express";
    client().credentials = {"headrace", "headrace-secret", "", {}};
    client().session_field = "x-amz-security-token";
    const TestResponse made = client().get("/d--z1--x-s3", {}, "session=");
    ASSERT_EQ(made.status, 200) << made.body;
    client().session_field = "x-amz-s3session-token";
    client().credentials = {
        made.xml("AccessKeyId"), made.xml("SecretAccessKey"), made.xml("SessionToken"), {}};
  }
  TestResponse get() { return client().get("/d--z1--x-s3/k1"); }
};

TEST_F(ExpressTest, SessionsOpenObjectsUntilTheyExpire) {
  open_session();
  EXPECT_EQ(get().body, "text");
  server_->advance(299s);
  EXPECT_EQ(get().status, 200);
  server_->advance(2s);
  EXPECT_EQ(get().xml("Code"), "ExpiredToken");
  open_session();
  EXPECT_EQ(get().status, 200);
  server_->expire_credentials();
  EXPECT_EQ(get().xml("Code"), "ExpiredToken");
}

TEST_F(ExpressTest, ForeignAndMissingSessionsAreRefused) {
  client().service = "s3express";
  EXPECT_EQ(get().xml("Code"), "AccessDenied");
  open_session();
  client().credentials.session_token += "x";
  EXPECT_EQ(get().xml("Code"), "InvalidToken");
  open_session();
  client().credentials.secret_access_key += "x";
  EXPECT_EQ(get().xml("Code"), "SignatureDoesNotMatch");
  client().credentials = {"headrace", "headrace-secret", "", {}};
  client().service = "s3";
  EXPECT_EQ(client().get("/b", {}, "session=").xml("Code"), "InvalidRequest");
}

TEST_F(ExpressTest, ListingsAreCompleteButNotInOrder) {
  open_session();
  const std::string body = client().get("/d--z1--x-s3", {}, "list-type=2").body;
  std::vector<std::string> keys;
  for (std::size_t at = body.find("<Key>"); at != std::string::npos;
       at = body.find("<Key>", at + 1)) {
    keys.push_back(body.substr(at + 5, body.find('<', at + 5) - at - 5));
  }
  EXPECT_EQ(keys.size(), 40u);
  EXPECT_FALSE(std::is_sorted(keys.begin(), keys.end()));
  EXPECT_EQ(client().get("/d--z1--x-s3", {}, "list-type=2").body, body);
}

TEST_F(ExpressTest, ListingsAreOfDirectoriesFromTheirBeginning) {
  open_session();
  const auto code_of = [&](const std::string& query) {
    return client().get("/d--z1--x-s3", {}, query).xml("Code");
  };
  for (const char* query :
       {"list-type=2", "list-type=2&prefix=a%2F&delimiter=%2F", "uploads=&prefix=a%2F"})
    EXPECT_EQ(code_of(query), "") << query;
  for (const char* query : {"", "list-type=2&prefix=k", "list-type=2&delimiter=k",
                            "list-type=2&start-after=k1", "uploads=&prefix=k"})
    EXPECT_EQ(code_of(query), "InvalidRequest") << query;
}

TEST_F(ExpressTest, UploadsKeepSumsOfSumsOnly) {
  open_session();
  TestRequest create{"POST", "/d--z1--x-s3/m", "uploads", {{"x-amz-checksum-algorithm", "CRC32C"}}};
  EXPECT_EQ(client().request(create).status, 200);
  create.fields.emplace_back("x-amz-checksum-type", "FULL_OBJECT");
  EXPECT_EQ(client().request(create).xml("Code"), "InvalidRequest");
}

TEST_F(ProtocolTest, ReadsAreRedirectedToAnotherAddress) {
  options_.address_count = 3;
  options_.redirect_reads = true;
  write_file("b/x", "text");
  const TestResponse response = client().get("/b/x");
  EXPECT_EQ(response.status, 307);
  const std::string location = response.header("location");
  EXPECT_THAT(location, HasSubstr("http://127.0.0."));
  EXPECT_THAT(location, HasSubstr("/b/x?headrace-ticket="));
  EXPECT_EQ(client().put("/b/y", "text").status, 200);  // writes are not
  const std::string query = location.substr(location.find('?') + 1);
  for (std::uint32_t last = 2; last <= 3; ++last) {
    TestClient other(server_->port(), INADDR_LOOPBACK + last - 1);
    other.is_signing = false;
    EXPECT_EQ(other.get("/b/x", {}, query).body, "text");
    EXPECT_EQ(other.get("/b/x").status, 403);
  }
}

TEST_F(ProtocolTest, FoldersThatContainThemselvesAreListedOnce) {
  write_file("b/f/x", "text");
  std::filesystem::create_directory_symlink(dir_.path() + "/b", dir_.path() + "/b/f/loop");
  const std::string body = client().get("/b", {}, "list-type=2").body;
  EXPECT_THAT(body, HasSubstr("<KeyCount>1</KeyCount>"));
  EXPECT_THAT(client().get("/b", {}, "delimiter=%2F&list-type=2").body, HasSubstr("<Prefix>f/<"));
}

TEST_F(ProtocolTest, LeftOversOfUploadsAreRemovedAtStart) {
  write_file("b/.headrace-sim/tmp/old", "x");
  write_file("b/.headrace-sim/tmp/new", "x");
  const std::string old = dir_.path() + "/b/.headrace-sim/tmp/old";
  const timespec times[2] = {{1'000'000, 0}, {1'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, old.c_str(), times, 0), 0);
  start();
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/b/.headrace-sim/tmp/new"));
}

class GoogleTest : public ServerTest {
 protected:
  GoogleTest() { options_.bearer_token = "ya29.token"; }
  TestResponse ask(const std::string& method, const std::string& path, TestFields fields = {},
                   const std::string& body = "", const std::string& query = "") {
    client().is_signing = false;
    fields.emplace_back("authorization", "Bearer " + token_);
    return client().request({method, path, query, std::move(fields), body});
  }
  std::string token_ = "ya29.token";
};

TEST_F(GoogleTest, TokensAreAskedForAndExpire) {
  write_file("b/x", "text");
  EXPECT_EQ(ask("GET", "/b/x").body, "text");
  token_ = "other";
  EXPECT_EQ(ask("GET", "/b/x").status, 401);
  const std::string path = "/computeMetadata/v1/instance/service-accounts/default/token";
  EXPECT_EQ(client().get(path).status, 403);
  const TestResponse metadata = client().get(path, {{"metadata-flavor", "Google"}});
  token_ = nlohmann::json::parse(metadata.body)["access_token"];
  EXPECT_EQ(ask("GET", "/b/x").status, 200);
  EXPECT_EQ(client().post("/_headrace/token", "grant_type=x").status, 200);
  server_->expire_credentials();
  EXPECT_EQ(ask("GET", "/b/x").xml("Code"), "AuthenticationRequired");
}

TEST_F(GoogleTest, GenerationsGuardReadsAndWrites) {
  const TestFields absent = {{"x-goog-if-generation-match", "0"}};
  const TestResponse put = ask("PUT", "/b/x", absent, "text");
  EXPECT_EQ(put.status, 200);
  const std::string generation = put.header("x-goog-generation");
  EXPECT_EQ(ask("PUT", "/b/x", absent, "other").status, 412);
  const TestFields same = {{"x-goog-if-generation-match", generation}};
  EXPECT_EQ(ask("GET", "/b/x", same).body, "text");
  EXPECT_THAT(ask("GET", "/b", {}, "", "list-type=2").body,
              HasSubstr("<Generation>" + generation + "</Generation>"));
  EXPECT_EQ(ask("PUT", "/b/x", same, "newer").status, 200);
  EXPECT_EQ(ask("PUT", "/b/x", same, "newest").status, 412);
  EXPECT_EQ(ask("GET", "/b/x", same).status, 412);
  EXPECT_EQ(ask("PUT", "/b/y", {{"x-goog-copy-source", "/b/x"}}).status, 200);
  EXPECT_EQ(ask("GET", "/b/y").body, "newer");
}

TEST_F(GoogleTest, HashesAreCheckedStoredAndReturned) {
  const TestFields hash = {{"x-goog-hash", "crc32c=" + crc32c_of("text")}};
  EXPECT_EQ(ask("PUT", "/b/x", hash, "text").status, 200);
  EXPECT_EQ(ask("GET", "/b/x").header("x-goog-hash"), "crc32c=" + crc32c_of("text"));
  EXPECT_EQ(ask("GET", "/b/x").header("x-goog-stored-content-length"), "4");
  EXPECT_EQ(ask("PUT", "/b/x", hash, "txet").xml("Code"), "BadDigest");
}

/// GET over TLS with a client that trusts `ca_path`; the whole answer, empty when TLS fails.
std::string get_by_tls(std::uint16_t port, const std::string& ca_path, const std::string& request) {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_load_verify_locations(context.get(), ca_path.c_str(), nullptr);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), "127.0.0.1");
  SSL_set_fd(ssl.get(), fd.get());
  if (SSL_connect(ssl.get()) != 1) return {};
  SSL_write(ssl.get(), request.data(), static_cast<int>(request.size()));
  std::string answer;
  char bytes[16384];
  for (int count = 0; (count = SSL_read(ssl.get(), bytes, sizeof bytes)) > 0;) {
    answer.append(bytes, static_cast<std::size_t>(count));
  }
  return answer;
}

TEST_F(ProtocolTest, HttpsIsServedWithAMadeCertificate) {
  options_.tls = true;
  const std::string body = pattern(2'000'000);
  write_file("b/x", body);
  start();
  EXPECT_THAT(server_->endpoint(), HasSubstr("https://"));
  const std::string path = server_->ca_path();
  TestRequest get{"GET", "/b/x", "", {{"connection", "close"}}};
  const std::string answer = get_by_tls(server_->port(), path, client().text_of(get));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(answer.ends_with(body));
  EXPECT_EQ(get_by_tls(server_->port(), "/none", client().text_of(get)), "");
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ProtocolTest, CertificatesOfKilledServersAreRemoved) {
  options_.tls = true;
  start();
  const std::filesystem::path path = server_->ca_path();
  // Whoever wrote it holds no lock of it any more.
  const std::filesystem::path left = path.parent_path() / ".headrace-killedsims.tmp";
  std::ofstream(left) << "x";
  const auto other = SimServer::start(options_);
  ASSERT_TRUE(other.has_value());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(ProtocolTest, BadCertificatesAreRefused) {
  // A certificate is for TLS, said or not.
  for (const bool tls : {true, false}) {
    options_.tls = tls;
    options_.certificate_path = options_.private_key_path = dir_.path() + "/none.pem";
    const auto server = SimServer::start(options_);
    ASSERT_FALSE(server.has_value());
    EXPECT_EQ(server.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(server.error().message()), HasSubstr("none.pem"));
  }
  options_.certificate_path.clear();
  EXPECT_FALSE(SimServer::start(options_).has_value());
}

TEST(ObjectSums, TextRoundTripsAndDropsWhatDoesNotFit) {
  ObjectSums sums{"x-amz-checksum-crc32c", "AAAA==", false, {8, 8, 8, 3}, {"a", "b", "c", "d"}};
  ObjectSums back = sums_from_text(to_text(sums));
  EXPECT_EQ(back.value, sums.value);
  EXPECT_EQ(back.part_sizes, sums.part_sizes);
  EXPECT_EQ(back.part_values, sums.part_values);
  back = sums_from_text(to_text(sums, 44));
  EXPECT_EQ(back.part_sizes, sums.part_sizes);
  EXPECT_TRUE(back.part_values.empty());
  EXPECT_EQ(sums.part_at(16, 8), 2u);
  EXPECT_EQ(sums.part_at(24, 3), 3u);
  EXPECT_EQ(sums.part_at(4, 8), std::nullopt);
  EXPECT_TRUE(sums_from_text("a b F\n9x99999999999,\n").empty());
}

}  // namespace
}  // namespace headrace::sim
