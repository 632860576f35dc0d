#include "auth/google_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "http/date.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json vectors() {
  std::ifstream in(std::filesystem::path(HEADRACE_SOURCE_DIR) /
                   "tests/data/google/signed_url_v4.json");
  return json::parse(in);
}

/// A case's fields as a request has them: lower case, sorted, without tabs.
std::map<std::string, std::string> fields_of(const json& test, const std::string& host) {
  std::map<std::string, std::string> fields{{"host", host}};
  const json headers = test.value("headers", json::object());
  for (const auto& [name, value] : headers.items()) {
    std::string key = name;
    std::transform(key.begin(), key.end(), key.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::string text = value.get<std::string>();
    std::replace(text.begin(), text.end(), '\t', ' ');
    fields[key] = text;
  }
  return fields;
}

TEST(GoogleSignature, SignsUrlsAsGooglesVectorsDo) {
  const json data = vectors();
  auto key = RsaKey::create(data["account"]["private_key"].get<std::string>());
  ASSERT_TRUE(key) << key.error().message();
  const UrlSigner signer = rsa_url_signer(data["account"]["client_email"].get<std::string>(), *key);
  int checked = 0;
  for (const json& test : data["tests"]) {
    const std::string url = test["expectedUrl"];
    const std::size_t start = url.find("://") + 3;
    const std::size_t slash = std::min(url.find('/', start), url.find('?', start));
    const std::string host = url.substr(start, slash - start);
    std::string path = url.substr(slash, url.find('?') - slash);
    std::string query;
    const json parameters = test.value("queryParameters", json::object());
    for (const auto& [name, value] : parameters.items()) {
      query += (query.empty() ? "" : "&") + http::encode(name, http::Slash::kEscape) + "=" +
               http::encode(value.get<std::string>(), http::Slash::kEscape);
    }
    const auto fields = fields_of(test, host);
    std::vector<http::Field> list;
    for (const auto& [name, value] : fields) list.push_back({name, value});
    const auto payload = fields.find("x-goog-content-sha256");
    std::string method = test["method"];
    const std::string payload_hash =
        payload == fields.end() ? std::string(kUnsignedPayload) : payload->second;
    const std::string stamp = test["timestamp"];
    const auto now = http::parse_amz_date(stamp);
    ASSERT_TRUE(now) << stamp;
    auto signed_query = google_signed_query({method, path, query, list, payload_hash}, signer, *now,
                                            std::chrono::seconds(test["expiration"].get<int>()));
    ASSERT_TRUE(signed_query) << signed_query.error().message();
    EXPECT_EQ(*signed_query, url.substr(url.find('?') + 1)) << test["description"];
    ++checked;
  }
  EXPECT_EQ(checked, 15);
}

TEST(GoogleSignature, PutsTheSignatureLastAndTheRestInOrder) {
  const UrlSigner signer = hmac_url_signer({"GOOGTESTKEY", "secret"});
  const http::Field host{"host", "storage.googleapis.com"};
  auto query =
      google_signed_query({"GET", "/b/k", "generation=5", {&host, 1}, kUnsignedPayload}, signer,
                          WallTime(std::chrono::seconds(1'549'011'600)), std::chrono::seconds(60));
  ASSERT_TRUE(query);
  EXPECT_THAT(*query,
              testing::StartsWith(
                  "X-Goog-Algorithm=GOOG4-HMAC-SHA256&X-Goog-Credential=GOOGTESTKEY%2F20190201%2F"
                  "auto%2Fstorage%2Fgoog4_request&X-Goog-Date=20190201T090000Z&X-Goog-Expires=60&"
                  "X-Goog-SignedHeaders=host&generation=5&X-Goog-Signature="));
  EXPECT_THAT(*query, Not(HasSubstr("secret")));
}

TEST(GoogleSignature, AHeaderIsSignedByTheSameKeyOverTheDay) {
  GoogleHmacSigner signer({"GOOGTESTKEY", "secret"});
  const http::Field fields[] = {{"host", "storage.googleapis.com"},
                                {"x-goog-date", "20190201T090000Z"}};
  const CanonicalRequest request{"GET", "/b/k", "", fields, kUnsignedPayload};
  const WallTime now(std::chrono::seconds(1'549'011'600));
  std::string first, second, next_day;
  signer.append_authorization(request, now, first);
  signer.append_authorization(request, now, second);
  signer.append_authorization(request, now + std::chrono::hours(24), next_day);
  EXPECT_EQ(first, second);
  EXPECT_THAT(first,
              testing::StartsWith("GOOG4-HMAC-SHA256 Credential=GOOGTESTKEY/20190201/auto/storage/"
                                  "goog4_request, SignedHeaders=host;x-goog-date, Signature="));
  EXPECT_EQ(first.size() - first.find("Signature=") - 10, 64U);
  EXPECT_THAT(next_day, HasSubstr("/20190202/"));
  EXPECT_NE(next_day.substr(next_day.find("Signature=")), first.substr(first.find("Signature=")));
}

TEST(GoogleSignature, ABrokenKeyIsRefusedWithoutShowingIt) {
  auto key = RsaKey::create("-----BEGIN PRIVATE KEY-----\nTOPSECRET\n-----END PRIVATE KEY-----\n");
  ASSERT_FALSE(key);
  EXPECT_EQ(key.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(key.error().message()), Not(HasSubstr("TOPSECRET")));
  EXPECT_FALSE(RsaKey::create(""));
}

}  // namespace
}  // namespace headrace::auth
