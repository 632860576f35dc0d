#include "auth/sigv4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "http/date.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  std::string out = text.str();
  out.erase(std::remove(out.begin(), out.end(), '\r'), out.end());
  return out;
}

std::unique_ptr<SigV4Signer> make_signer(const std::string& region, const std::string& service) {
  auto signer = SigV4Signer::create(region, service);
  EXPECT_TRUE(signer.has_value());
  return *std::move(signer);
}

// --- the suite that AWS publishes ---

struct SuiteRequest {
  std::string method, path, query, fields, body;
  std::string names;  // of all fields, lower case, sorted, joined with ';'
};

SuiteRequest parse_suite_request(const std::string& text) {
  SuiteRequest out;
  const std::size_t line_end = text.find('\n');
  const std::string line = text.substr(0, line_end);
  const std::size_t first = line.find(' ');
  const std::string target = line.substr(first + 1, line.rfind(' ') - first - 1);
  out.method = line.substr(0, first);
  const std::size_t question = target.find('?');
  out.path = target.substr(0, question);
  if (question != std::string::npos) out.query = target.substr(question + 1);
  const std::size_t blank = text.find("\n\n", line_end);
  out.fields =
      text.substr(line_end + 1, blank == std::string::npos ? std::string::npos : blank - line_end);
  if (blank != std::string::npos) out.body = text.substr(blank + 2);
  std::map<std::string, bool> names;
  std::string_view rest = out.fields;
  for (http::Field field; http::next_field(rest, field);) {
    std::string name(field.name);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    names[name] = true;
  }
  for (const auto& [name, unused] : names) out.names += (out.names.empty() ? "" : ";") + name;
  return out;
}

std::vector<fs::path> suite_cases() {
  std::vector<fs::path> cases;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(HEADRACE_SOURCE_DIR) /
                                                            "tests/data/aws4_testsuite")) {
    // Folded lines are obsolete (RFC 9112 section 5.2), never sent by us and refused by our
    // parsers.
    const bool is_folded = entry.path().stem() == "get-header-value-multiline";
    if (entry.path().extension() == ".req" && !is_folded) cases.push_back(entry.path());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

class AwsSuite : public testing::TestWithParam<fs::path> {};

TEST_P(AwsSuite, GivesThePublishedAuthorization) {
  std::string text = slurp(GetParam());
  if (GetParam().stem() == "get-vanilla-with-session-token") {
    // The one case whose token is among the credentials: the signer is to add the field.
    const std::string form = slurp(fs::path(GetParam()).replace_extension(".creq"));
    const std::size_t token = form.find("x-amz-security-token:");
    text += "\n" + form.substr(token, form.find('\n', token) - token);
  }
  const SuiteRequest request = parse_suite_request(text);
  const std::string expected = slurp(fs::path(GetParam()).replace_extension(".authz"));

  const std::string path = canonical_path(request.path, PathRules::kGeneric);
  auto query = canonical_query(request.query);
  ASSERT_TRUE(query.has_value());
  std::string storage;
  const auto fields = canonical_fields(request.fields, request.names, storage);
  const std::string hash = sha256_hex(request.body);
  const CanonicalRequest canonical{request.method, path, *query, fields, hash};

  const Credentials credentials{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "",
                                std::nullopt};
  std::string authorization;
  make_signer("us-east-1", "service")
      ->append_authorization(canonical, credentials, *http::parse_amz_date("20150830T123600Z"),
                             authorization);
  EXPECT_EQ(authorization, expected);
}

INSTANTIATE_TEST_SUITE_P(SigV4, AwsSuite, testing::ValuesIn(suite_cases()), [](const auto& test) {
  std::string name = test.param.stem().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(SigV4Suite, IsComplete) { EXPECT_GE(suite_cases().size(), 30u); }

// --- botocore ---

std::vector<json> botocore_vectors(std::string_view kind) {
  std::ifstream in(fs::path(HEADRACE_SOURCE_DIR) / "tests/data/botocore_s3_vectors.jsonl");
  std::vector<json> out;
  for (std::string line; std::getline(in, line);) {
    json vector = json::parse(line);
    if (vector["kind"] == kind) out.push_back(std::move(vector));
  }
  return out;
}

Credentials credentials_of(const json& v) {
  return {v["access_key"], v["secret_key"], v["token"], std::nullopt};
}

WallTime time_of(const json& v) {
  return WallTime(std::chrono::seconds(v["unix_s"].get<std::int64_t>()));
}

/// What botocore put on the wire, as a server receives it.
std::string wire_text(const json& v, std::string_view target) {
  std::string text = v["method"].get<std::string>() + " " + std::string(target) +
                     " HTTP/1.1\r\nHost: 127.0.0.1:9000\r\n";
  for (const auto& [name, value] : v["signed_headers"].items())
    text += name + ": " + value.get<std::string>() + "\r\n";
  return text + "\r\n";
}

std::string target_of(const std::string& url) { return url.substr(url.find('/', 8)); }

TEST(SigV4Botocore, SignsHeadersAsBotocoreDoes) {
  const auto vectors = botocore_vectors("raw");
  ASSERT_GE(vectors.size(), 100u);
  for (const json& v : vectors) {
    const std::string wire = wire_text(v, target_of(v["url"]));
    http::RequestHead head;
    ASSERT_TRUE(http::parse_request_head(wire, head).has_value()) << wire;
    const std::string expected = v["signed_headers"]["Authorization"];
    const std::size_t names_begin = expected.find("SignedHeaders=") + 14;
    const std::string names =
        expected.substr(names_begin, expected.find(',', names_begin) - names_begin);
    auto query = canonical_query(head.query);
    ASSERT_TRUE(query.has_value());
    std::string storage;
    const auto fields = canonical_fields(head.fields, names, storage);
    const CanonicalRequest canonical{head.method, head.path, *query, fields,
                                     head.header("x-amz-content-sha256")};
    std::string authorization;
    make_signer(v["region"], "s3")
        ->append_authorization(canonical, credentials_of(v), time_of(v), authorization);
    EXPECT_EQ(authorization, expected) << v["url"];
  }
}

TEST(SigV4Botocore, PresignsAsBotocoreDoes) {
  for (const json& v : botocore_vectors("raw")) {
    const std::string target = target_of(v["url"]);
    const std::size_t question = target.find('?');
    auto query = canonical_query(
        question == std::string::npos ? "" : std::string_view(target).substr(question + 1));
    ASSERT_TRUE(query.has_value());
    const http::Field host{"host", "127.0.0.1:9000"};
    const std::string method = v["method"];
    const CanonicalRequest canonical{method, std::string_view(target).substr(0, question), *query,
                                     std::span(&host, 1), kUnsignedPayload};
    const std::string ours =
        make_signer(v["region"], "s3")
            ->presigned_query(canonical, credentials_of(v), time_of(v), std::chrono::seconds(3600));
    // botocore keeps the caller's order of the parameters; the signature, which covers all of them,
    // comes last in both.
    const std::string theirs = v["presigned_url"];
    EXPECT_EQ(ours.substr(ours.size() - 64), theirs.substr(theirs.size() - 64)) << theirs;
  }
}

TEST(SigV4Botocore, VerifierAcceptsWhatBotocoreSigned) {
  for (const char* kind : {"raw", "client"}) {
    for (const json& v : botocore_vectors(kind)) {
      const std::string wire = wire_text(v, target_of(v["url"]));
      http::RequestHead head;
      ASSERT_TRUE(http::parse_request_head(wire, head).has_value());
      auto verifier = SigV4Verifier::create(
          {{credentials_of(v)}, v["region"], "s3", std::chrono::seconds(900)});
      const Verdict verdict = (*verifier)->verify(head, time_of(v) + std::chrono::seconds(5));
      EXPECT_TRUE(verdict.ok()) << verdict.message << "\n" << wire;
    }
  }
}

TEST(SigV4Botocore, VerifierAcceptsPresignedUrls) {
  for (const json& v : botocore_vectors("raw")) {
    const std::string target = target_of(v["presigned_url"]);
    const std::string wire =
        v["method"].get<std::string>() + " " + target + " HTTP/1.1\r\nHost: 127.0.0.1:9000\r\n\r\n";
    http::RequestHead head;
    ASSERT_TRUE(http::parse_request_head(wire, head).has_value());
    auto verifier =
        SigV4Verifier::create({{credentials_of(v)}, "", "s3", std::chrono::seconds(900)});
    const Verdict verdict = (*verifier)->verify(head, time_of(v) + std::chrono::seconds(3600));
    EXPECT_TRUE(verdict.ok()) << verdict.message << "\n" << wire;
    EXPECT_EQ(verdict.payload_hash, kUnsignedPayload);
    EXPECT_EQ((*verifier)->verify(head, time_of(v) + std::chrono::seconds(3601)).error_code,
              "AccessDenied");
  }
}

// --- canonical forms ---

TEST(SigV4, CanonicalQuerySortsByNameThenValue) {
  EXPECT_EQ(*canonical_query("b=2&a=2&a=1&a-=0&a"), "a=&a=1&a=2&a-=0&b=2");
  EXPECT_EQ(*canonical_query("a%62=%7e%2f"), "ab=~%2F");
  EXPECT_EQ(*canonical_query("x=1&X-Amz-Signature=00", "X-Amz-Signature"), "x=1");
  EXPECT_EQ(*canonical_query(""), "");
}

TEST(SigV4, CanonicalQueryRefusesBrokenEscapes) {
  EXPECT_EQ(canonical_query("a=%4").error().code(), Code::kInvalidArgument);
}

TEST(SigV4, PathIsLeftAloneForS3AndNormalisedElsewhere) {
  EXPECT_EQ(canonical_path("/b/a//./../x%20y", PathRules::kS3), "/b/a//./../x%20y");
  EXPECT_EQ(canonical_path("/b/a//./../x%20y", PathRules::kGeneric), "/b/x%2520y");
  EXPECT_EQ(canonical_path("/../..", PathRules::kGeneric), "/");
  EXPECT_EQ(canonical_path("", PathRules::kS3), "/");
}

TEST(SigV4, HashesMatchKnownValues) {
  EXPECT_EQ(sha256_hex(""), kEmptyPayloadHash);
  EXPECT_EQ(
      sha256_hex("abc"),
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-4 example
}

TEST(SigV4, DerivedKeyFollowsDateAndSecret) {
  auto signer = make_signer("us-east-1", "s3");
  const http::Field host{"host", "h"};
  const CanonicalRequest request{"GET", "/", "", std::span(&host, 1), kUnsignedPayload};
  const Credentials one{"A", "secret", "", std::nullopt};
  const Credentials two{"A", "Secret", "", std::nullopt};
  const WallTime day(std::chrono::seconds(1'440'938'160));
  const std::string first = signer->signature(request, one, day);
  EXPECT_NE(signer->signature(request, two, day), first);
  EXPECT_NE(signer->signature(request, one, day + std::chrono::hours(24)), first);
  EXPECT_EQ(signer->signature(request, one, day), first);
  EXPECT_NE(make_signer("us-east-2", "s3")->signature(request, one, day), first);
}

TEST(SigV4, ThreadsShareOneSigner) {
  auto signer = make_signer("us-east-1", "s3");
  const http::Field host{"host", "h"};
  const CanonicalRequest request{"GET", "/", "", std::span(&host, 1), kUnsignedPayload};
  const auto sign = [&](int day) {
    const Credentials credentials{"A", "secret" + std::to_string(day), "", std::nullopt};
    return signer->signature(request, credentials, WallTime(std::chrono::hours(24 * day)));
  };
  std::vector<std::string> expected;
  for (int day = 0; day < 16; ++day) expected.push_back(sign(day));
  std::vector<std::jthread> threads;
  std::atomic<int> wrong_count{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const int day = (i + t) % 16;
        if (sign(day) != expected[static_cast<std::size_t>(day)]) ++wrong_count;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong_count, 0);
}

// --- refusals ---

class Verifier : public testing::Test {
 protected:
  static constexpr WallTime kNow{std::chrono::seconds(1'440'938'160)};

  /// The text of a well-signed GET of /bucket/key, from `credentials`.
  std::string signed_request(const Credentials& credentials, const std::string& region,
                             WallTime at) {
    char date[16];
    http::write_amz_date(at, date);
    std::vector<http::Field> fields = {
        {"host", "h"}, {"x-amz-content-sha256", kUnsignedPayload}, {"x-amz-date", {date, 16}}};
    if (!credentials.session_token.empty())
      fields.push_back({"x-amz-security-token", credentials.session_token});
    std::string authorization;
    make_signer(region, "s3")
        ->append_authorization({"GET", "/bucket/key", "", fields, kUnsignedPayload}, credentials,
                               at, authorization);
    std::string text = "GET /bucket/key HTTP/1.1\r\nAuthorization: " + authorization + "\r\n";
    for (const http::Field& field : fields)
      text.append(field.name).append(": ").append(field.value).append("\r\n");
    return text + extra_ + "\r\n";
  }

  Verdict verify(const std::string& text) {
    auto verifier = SigV4Verifier::create({{good_}, "us-east-1", "s3", std::chrono::seconds(900)});
    http::RequestHead head;
    EXPECT_TRUE(http::parse_request_head(text, head).has_value()) << text;
    return (*verifier)->verify(head, kNow);
  }

  const Credentials good_{"AKID", "secret", "token", std::nullopt};
  std::string extra_;
};

TEST_F(Verifier, AcceptsAGoodSignature) {
  const Verdict verdict = verify(signed_request(good_, "us-east-1", kNow));
  EXPECT_TRUE(verdict.ok()) << verdict.message;
  EXPECT_EQ(verdict.payload_hash, kUnsignedPayload);
}

TEST_F(Verifier, NamesEachKindOfRefusal) {
  const auto code = [&](const std::string& text) { return verify(text).error_code; };
  EXPECT_EQ(code(signed_request({"AKID", "wrong", "token", std::nullopt}, "us-east-1", kNow)),
            "SignatureDoesNotMatch");
  EXPECT_EQ(code(signed_request({"OTHER", "secret", "token", std::nullopt}, "us-east-1", kNow)),
            "InvalidAccessKeyId");
  EXPECT_EQ(code(signed_request({"AKID", "secret", "old", std::nullopt}, "us-east-1", kNow)),
            "InvalidToken");
  EXPECT_EQ(code(signed_request(good_, "eu-west-1", kNow)), "AuthorizationHeaderMalformed");
  EXPECT_EQ(code(signed_request(good_, "us-east-1", kNow - std::chrono::seconds(901))),
            "RequestTimeTooSkewed");
  EXPECT_EQ(code(signed_request(good_, "us-east-1", kNow + std::chrono::seconds(901))),
            "RequestTimeTooSkewed");
  EXPECT_EQ(code("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic abc\r\n\r\n"),
            "AuthorizationHeaderMalformed");
}

TEST_F(Verifier, RefusesChangedPathAndUnsignedAmzFields) {
  std::string text = signed_request(good_, "us-east-1", kNow);
  text.replace(text.find("/bucket/key"), 11, "/bucket/kez");
  EXPECT_EQ(verify(text).error_code, "SignatureDoesNotMatch");
  extra_ = "x-amz-copy-source: /other/secret\r\n";
  EXPECT_EQ(verify(signed_request(good_, "us-east-1", kNow)).error_code, "AccessDenied");
}

TEST_F(Verifier, TellsAnonymousFromDenied) {
  const Verdict verdict = verify("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(verdict.is_anonymous);
  EXPECT_EQ(verdict.error_code, "AccessDenied");
  EXPECT_FALSE(verify(signed_request({"AKID", "wrong", "token", std::nullopt}, "us-east-1", kNow))
                   .is_anonymous);
}

}  // namespace
}  // namespace headrace::auth
