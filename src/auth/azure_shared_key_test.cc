#include "auth/azure_shared_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "auth/azure_settings.h"
#include "http/uri.h"

namespace headrace::auth {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::unique_ptr<SharedKeySigner> signer_of(const std::string& account, const std::string& key) {
  auto signer = SharedKeySigner::create(account, key);
  EXPECT_TRUE(signer) << signer.error().message();
  return *std::move(signer);
}

/// Lines of the vectors of one kind, made by tests/data/make_azure_vectors.py.
std::vector<json> vectors_of(const std::string& kind) {
  std::ifstream in(std::filesystem::path(HEADRACE_SOURCE_DIR) /
                   "tests/data/azure_shared_key_vectors.jsonl");
  std::vector<json> out;
  for (std::string line; std::getline(in, line);) {
    json vector = json::parse(line);
    if (vector["kind"] == kind) out.push_back(std::move(vector));
  }
  return out;
}

std::vector<http::Field> fields_of(const json& object) {
  std::vector<http::Field> out;
  for (const auto& [name, value] : object.items())
    out.push_back({name, value.get_ref<const std::string&>()});
  return out;
}

// "Authorize with Shared Key" of the REST API reference.
TEST(SharedKey, SignsTheTextOfMicrosoftsExamples) {
  const http::Field fields[] = {{"x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"},
                                {"x-ms-version", "2015-02-21"}};
  const http::Field query[] = {{"comp", "metadata"}, {"restype", "container"}, {"timeout", "20"}};
  std::string text;
  append_string_to_sign({"GET", "/mycontainer", query, fields}, "myaccount", text);
  EXPECT_EQ(text,
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\n"
            "x-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\nrestype:container\n"
            "timeout:20");
  const http::Field repeated[] = {{"comp", "list"},
                                  {"include", "metadata"},
                                  {"include", "snapshots"},
                                  {"include", "uncommittedblobs"},
                                  {"restype", "container"}};
  text.clear();
  append_string_to_sign({"GET", "/mycontainer", repeated, {}}, "myaccount", text);
  EXPECT_THAT(text,
              testing::EndsWith("\n/myaccount/mycontainer\ncomp:list\n"
                                "include:metadata,snapshots,uncommittedblobs\nrestype:container"));
}

TEST(SharedKey, PutsStandardFieldsAtTheirLines) {
  const http::Field fields[] = {{"content-length", "5"},  {"content-md5", "md5"},
                                {"content-type", "type"}, {"host", "h"},
                                {"if-match", "\"1\""},    {"range", "bytes=0-1"}};
  std::string text;
  append_string_to_sign({"PUT", "/c/b", {}, fields}, "a", text);
  EXPECT_EQ(text, "PUT\n\n\n5\nmd5\ntype\n\n\n\"1\"\n\n\nbytes=0-1\n/a/c/b");
  const http::Field none[] = {{"content-length", "0"}};
  text.clear();
  append_string_to_sign({"PUT", "/c/b", {}, none}, "a", text);
  EXPECT_EQ(text, "PUT\n\n\n\n\n\n\n\n\n\n\n\n/a/c/b");
}

TEST(SharedKey, SignsAsAzuresPythonPackage) {
  const auto vectors = vectors_of("shared_key");
  ASSERT_GE(vectors.size(), 300U);
  for (const json& vector : vectors) {
    auto signer = signer_of(vector["account"], vector["key"]);
    const auto query = fields_of(vector["query"]);
    const auto fields = fields_of(vector["fields"]);
    std::string authorization;
    signer->append_authorization({vector["method"].get_ref<const std::string&>(),
                                  vector["path"].get_ref<const std::string&>(), query, fields},
                                 authorization);
    EXPECT_EQ(authorization, vector["authorization"]) << vector;
  }
}

TEST(SharedKey, SignsUrlsAsAzuresPythonPackage) {
  const auto vectors = vectors_of("sas");
  ASSERT_GE(vectors.size(), 50U);
  for (const json& vector : vectors) {
    auto signer = signer_of(vector["account"], vector["key"]);
    BlobSas sas;
    sas.container = "container";
    sas.blob = vector["blob"];
    sas.permissions = vector["permissions"];
    sas.protocol = vector["protocol"];
    sas.expires = WallTime(std::chrono::seconds(vector["expires"].get<std::int64_t>()));
    auto ours = http::parse_query(blob_sas_query(sas, *signer));
    auto theirs = http::parse_query(vector["query"].get_ref<const std::string&>());
    ASSERT_TRUE(ours && theirs);
    EXPECT_EQ(*ours, *theirs) << vector;
  }
}

TEST(SharedKey, ThreadsGetTheSameSignatures) {
  auto signer = signer_of("account", std::string(kAzureDevelopmentKey));
  std::string expected;
  signer->append_signature("text", expected);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        std::string signature;
        signer->append_signature("text", signature);
        EXPECT_EQ(signature, expected);
      }
    });
  }
}

TEST(SharedKey, RefusesWhatIsNoKeyWithoutRepeatingIt) {
  for (const char* key : {"", "sEcReT", "sEcReT!=", "=sEcReTsEcRe"}) {
    auto signer = SharedKeySigner::create("account", key);
    ASSERT_FALSE(signer) << key;
    EXPECT_EQ(signer.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(signer.error().message()), Not(HasSubstr("sEcReT")));
  }
  auto signer = SharedKeySigner::create("Not_An_Account", kAzureDevelopmentKey);
  ASSERT_FALSE(signer);
  EXPECT_EQ(signer.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::auth
