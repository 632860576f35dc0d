// What a server must do so that other people's clients can trust it: nothing is ignored silently.
#include <array>

#include "sim/server_fixture.h"

namespace headrace::sim {
namespace {

using Case = std::array<const char*, 3>;

class FaceTest : public ServerTest {
 protected:
  TestResponse send(const std::string& method, const std::string& path, const std::string& query,
                    TestFields fields = {}, const std::string& body = "") {
    return client().request(
        {method, path, query, std::move(fields), body, std::string(auth::kUnsignedPayload)});
  }
};

TEST_F(FaceTest, UnknownParametersDoNothing) {
  write_file("b/k", "kept");
  for (const auto& [method, path, query] :
       {Case{"PUT", "/b/k", "tagging="}, Case{"PUT", "/b/k", "acl="},
        Case{"PUT", "/b/k", "renameObject="}, Case{"PUT", "/b/k", "whatever=1"},
        Case{"PUT", "/b/k", "partNumber=1"}, Case{"PUT", "/b/k", "uploads="},
        Case{"PUT", "/b/k", "versionId=null"}, Case{"DELETE", "/b/k", "tagging="},
        Case{"DELETE", "/b/k", "versionId=abc"},
        Case{"DELETE", "/b/k", "versionId=null&versionId=abc"},
        Case{"GET", "/b/k", "versionId=abc"}, Case{"GET", "/b/k", "torrent="},
        Case{"PUT", "/other", "versioning="}, Case{"PUT", "/other", "anything="},
        Case{"DELETE", "/b", "intelligent-tiering="}, Case{"DELETE", "/b", "lifecycle="},
        Case{"GET", "/b", "allow-unordered=1"},
        Case{"GET", "/b", "delimiter=%2F&encoding-type=base64"}}) {
    const TestResponse response = send(method, path, query);
    EXPECT_EQ(response.status, 501) << method << ' ' << path << '?' << query;
    EXPECT_EQ(response.xml("Code"), "NotImplemented") << query;
  }
  EXPECT_EQ(client().get("/b/k").body, "kept");
  EXPECT_EQ(client().head("/other").status, 404);
  EXPECT_EQ(send("GET", "/b/k", "versionId=null&x-id=GetObject").body, "kept");
  EXPECT_EQ(send("DELETE", "/b/k", "versionId=null").status, 204);
  EXPECT_EQ(client().get("/b/k").status, 404);
}

TEST_F(FaceTest, UnknownFieldsDoNothing) {
  write_file("b/k", "kept");
  for (const auto& [method, name, value] :
       {Case{"PUT", "x-amz-write-offset-bytes", "4"}, Case{"PUT", "x-amz-rename-source", "b/x"},
        Case{"PUT", "x-amz-tagging", "a=b"}, Case{"PUT", "x-amz-storage-class", "NO_CLASS"},
        Case{"PUT", "x-amz-acl", "public-read"}, Case{"PUT", "x-amz-grant-read", "id=x"},
        Case{"PUT", "x-amz-server-side-encryption", "aws:kms"},
        Case{"PUT", "x-amz-object-lock-mode", "GOVERNANCE"},
        Case{"PUT", "if-none-match", "\"etag\""},
        Case{"GET", "x-amz-optional-object-attributes", "RestoreStatus"},
        Case{"PUT", "x-amz-if-match-size", "4"}, Case{"PUT", "if-unmodified-since", "x"},
        Case{"PUT", "content-range", "bytes 0-3/8"}, Case{"PUT", "x-amz-new-in-2030", "1"},
        Case{"PUT", "x-amz-copy-source-if-match", "\"x\""}, Case{"GET", "if-range", "\"x\""},
        Case{"DELETE", "if-none-match", "*"}, Case{"DELETE", "x-amz-mfa", "1 2"},
        Case{"DELETE", "if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT"}}) {
    const TestResponse response = send(method, "/b/k", "", {{name, value}});
    EXPECT_EQ(response.status, 501) << method << ' ' << name;
    EXPECT_NE(response.xml("Message").find(name), std::string::npos) << response.body;
  }
  EXPECT_EQ(client().get("/b/k").body, "kept");
}

TEST_F(FaceTest, ListsAreAskedForTheirRestoreStatus) {
  write_file("b/k", "text");
  const TestFields wish = {{"x-amz-optional-object-attributes", "RestoreStatus"}};
  EXPECT_EQ(send("GET", "/b", "list-type=2", wish).xml("Key"), "k");
  EXPECT_EQ(send("GET", "/b", "versions=", wish).xml("Key"), "k");
  EXPECT_EQ(send("GET", "/b", "", {{"x-amz-optional-object-attributes", "Other"}}).status, 501);
}

TEST_F(FaceTest, RemovalsHaveConditions) {
  const std::string etag = client().put("/b/k", "text").header("etag");
  const std::string modified = client().head("/b/k").header("last-modified");
  EXPECT_EQ(send("DELETE", "/b/k", "", {{"if-match", "\"other\""}}).status, 412);
  EXPECT_EQ(send("DELETE", "/b/k", "", {{"x-amz-if-match-size", "5"}}).status, 412);
  EXPECT_EQ(send("DELETE", "/b/k", "", {{"x-amz-if-match-size", "many"}}).status, 400);
  EXPECT_EQ(send("DELETE", "/b/k", "",
                 {{"x-amz-if-match-last-modified-time", "Sun, 06 Nov 1994 08:49:37 GMT"}})
                .status,
            412);
  const auto batch = [&](const std::string& what) {
    return client().delete_batch("/b",
                                 "<Delete><Object><Key>k</Key>" + what + "</Object></Delete>");
  };
  EXPECT_EQ(batch("<ETag>other</ETag>").xml("Code"), "PreconditionFailed");
  EXPECT_EQ(batch("<Size>5</Size>").xml("Code"), "PreconditionFailed");
  EXPECT_EQ(batch("<VersionId>abc</VersionId>").xml("Code"), "NotImplemented");
  EXPECT_EQ(batch("<Whatever>1</Whatever>").status, 501);
  EXPECT_EQ(client().get("/b/k").body, "text");
  EXPECT_EQ(send("DELETE", "/b/k", "",
                 {{"if-match", etag},
                  {"x-amz-if-match-size", "4"},
                  {"x-amz-if-match-last-modified-time", modified}})
                .status,
            204);
  EXPECT_EQ(client().get("/b/k").status, 404);
}

TEST_F(FaceTest, WhatWasPutWithAnObjectComesBack) {
  EXPECT_EQ(client()
                .put("/b/k", "x",
                     {{"content-type", "text/plain"},
                      {"cache-control", "no-store"},
                      {"content-encoding", "aws-chunked, gzip"},
                      {"x-amz-meta-name", "a value"}})
                .status,
            200);
  const TestResponse head = client().head("/b/k");
  EXPECT_EQ(head.header("content-type"), "text/plain");
  EXPECT_EQ(head.header("cache-control"), "no-store");
  EXPECT_EQ(head.header("content-encoding"), "gzip");
  EXPECT_EQ(head.header("x-amz-meta-name"), "a value");
  const TestResponse other = client().get(
      "/b/k", {},
      "response-content-disposition=a%0D%0Ax-evil%3A%201&response-content-type=foo%2Fbar");
  EXPECT_EQ(other.header("content-type"), "foo/bar");
  EXPECT_EQ(other.header("content-disposition"), "a  x-evil: 1");
  EXPECT_EQ(other.header("x-evil"), "");
  EXPECT_EQ(other.header("cache-control"), "no-store");
  EXPECT_EQ(client().put("/b/copy", "", {{"x-amz-copy-source", "b/k"}}).status, 200);
  EXPECT_EQ(client().head("/b/copy").header("x-amz-meta-name"), "a value");
  EXPECT_EQ(client()
                .put("/b/copy", "",
                     {{"x-amz-copy-source", "b/k"},
                      {"x-amz-meta-other", "1"},
                      {"x-amz-metadata-directive", "REPLACE"}})
                .status,
            200);
  EXPECT_EQ(client().head("/b/copy").header("x-amz-meta-name"), "");
  EXPECT_EQ(client().head("/b/copy").header("x-amz-meta-other"), "1");
  EXPECT_EQ(client().put("/b/k", "x", {{"x-amz-meta-a", std::string(2048, 'x')}}).xml("Code"),
            "MetadataTooLarge");
  EXPECT_EQ(client().put("/b/k", "y", {{"x-amz-meta-a", std::string(2047, 'x')}}).status, 200);
  EXPECT_EQ(client().head("/b/k").header("x-amz-meta-a").size(), 2047u);
}

TEST_F(FaceTest, AFileThatWasChangedByOthersHasNoSumsOfOldBytes) {
  ASSERT_EQ(client().put("/b/k", "hello", {{"x-amz-checksum-crc32c", "mnG7TA=="}}).status, 200);
  EXPECT_EQ(
      client().get("/b/k", {{"x-amz-checksum-mode", "ENABLED"}}).header("x-amz-checksum-crc32c"),
      "mnG7TA==");
  write_file("b/k", "other");
  const TestResponse changed = client().get("/b/k", {{"x-amz-checksum-mode", "ENABLED"}});
  EXPECT_EQ(changed.header("x-amz-checksum-crc32c"), "");
  EXPECT_TRUE(changed.header("etag").ends_with("-1\""));
}

TEST_F(FaceTest, TheOwnerMayBeExpected) {
  write_file("b/k", "text");
  EXPECT_EQ(client().get("/b/k", {{"x-amz-expected-bucket-owner", "000000000000"}}).status, 200);
  EXPECT_EQ(client().get("/b/k", {{"x-amz-expected-bucket-owner", "1"}}).xml("Code"),
            "AccessDenied");
  EXPECT_EQ(client()
                .put("/b/to", "",
                     {{"x-amz-copy-source", "b/k"}, {"x-amz-source-expected-bucket-owner", "1"}})
                .status,
            403);
  EXPECT_EQ(client().get("/b", {}, "list-type=2").body.find("<Owner>"), std::string::npos);
  EXPECT_NE(client().get("/b", {}, "fetch-owner=true&list-type=2").body.find("<Owner>"),
            std::string::npos);
}

TEST_F(FaceTest, APayloadHashIsOneOrTheRequestIsRefused) {
  for (const char* hash : {"garbage", "", "UNSIGNED-PAYLOAD2", "STREAMING-NOTHING"}) {
    const TestRequest request{"PUT", "/b/k", "", {}, "x", hash};
    EXPECT_EQ(client().request(request).status, 400) << hash;
  }
  EXPECT_EQ(client().get("/b/k").status, 404);
}

TEST_F(FaceTest, NamesOfNewBucketsAreChecked) {
  for (const char* name : {"ab", "Abc", "foo_bar", "foo-", "foo..bar", "foo.-bar", "foo-.bar",
                           "192.168.5.123", "xn--abc"}) {
    EXPECT_EQ(client().put(std::string("/") + name, "").xml("Code"), "InvalidBucketName") << name;
  }
  for (const char* name : {"abc", "a.b-c", "1.2.3"}) {
    EXPECT_EQ(client().put(std::string("/") + name, "").status, 200) << name;
  }
  EXPECT_EQ(client()
                .put("/here",
                     "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint>"
                     "</CreateBucketConfiguration>")
                .xml("Code"),
            "IllegalLocationConstraintException");
}

TEST_F(FaceTest, VersionsAreListedAsOneEach) {
  for (int i = 0; i < 3; ++i) client().put("/b/k" + std::to_string(i), "x");
  const TestResponse first = client().get("/b", {}, "max-keys=2&versions=");
  EXPECT_EQ(first.xml("NextKeyMarker"), "k1");
  EXPECT_EQ(first.xml("VersionId"), "null");
  const TestResponse second = client().get("/b", {}, "key-marker=k1&versions=");
  EXPECT_EQ(second.xml("Key"), "k2");
  EXPECT_EQ(second.xml("IsTruncated"), "false");
  EXPECT_EQ(client().get("/b", {}, "versioning=").body.find("<Status>"), std::string::npos);
}

TEST_F(FaceTest, PagesOfOtherSitesDoNotReachTheControl) {
  start();
  const std::string host = "127.0.0.1:" + std::to_string(server_->port());
  const auto post = [&](TestFields fields) {
    return send("POST", "/_headrace/reset", "", std::move(fields)).status;
  };
  EXPECT_EQ(post({}), 200);
  EXPECT_EQ(post({{"origin", "http://" + host}}), 200);
  EXPECT_EQ(post({{"origin", "http://evil.example"}}), 403);
  EXPECT_EQ(post({{"origin", "null"}}), 403);
  EXPECT_EQ(post({{"sec-fetch-site", "cross-site"}}), 403);
  EXPECT_EQ(post({{"sec-fetch-site", "same-site"}}), 403);  // another port of this machine
  EXPECT_EQ(post({{"sec-fetch-site", "none"}}), 200);
  for (const auto& [name, status] : {std::pair{"rebound.example", 403}, std::pair{"localhost", 200},
                                     std::pair{"127.0.0.1.evil.example", 403}}) {
    client().host = name;
    EXPECT_EQ(post({}), status) << name;
  }
}

class FormTest : public FaceTest {
 protected:
  FormTest() { options_.require_signature = false; }
  TestResponse post(const std::vector<std::pair<std::string, std::string>>& parts,
                    TestFields fields = {}) {
    std::string body;
    for (const auto& [name, value] : parts) {
      body += "--XX\r\nContent-Disposition: form-data; name=\"" + name + "\"" +
              (name == "file" ? "; filename=\"dir/f.txt\"" : "") + "\r\n\r\n" + value + "\r\n";
    }
    fields.emplace_back("content-type", "multipart/form-data; boundary=XX");
    return send("POST", "/b", "", std::move(fields), body + "--XX--\r\n");
  }
};

TEST_F(FormTest, AFormBecomesAnObject) {
  const TestResponse made = post({{"key", "up/${filename}"},
                                  {"Content-Type", "text/plain"},
                                  {"x-amz-meta-a", "1"},
                                  {"success_action_status", "201"},
                                  {"file", "--X\r\nbytes"}});
  EXPECT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(made.xml("Key"), "up/f.txt");
  const TestResponse got = client().get("/b/up/f.txt");
  EXPECT_EQ(got.body, "--X\r\nbytes");
  EXPECT_EQ(got.header("content-type"), "text/plain");
  EXPECT_EQ(got.header("x-amz-meta-a"), "1");
  EXPECT_EQ(got.header("etag"), made.header("etag"));
}

TEST_F(FormTest, BadFormsAreRefused) {
  EXPECT_EQ(post({{"file", "x"}}).xml("Code"), "InvalidArgument");
  EXPECT_EQ(post({{"key", "k"}}).xml("Code"), "InvalidArgument");
  EXPECT_EQ(post({{"key", "k"}, {"acl", "public-read"}, {"file", "x"}}).status, 501);
  EXPECT_EQ(post({{"key", "k"}, {"x-amz-tagging", "a"}, {"file", "x"}}).status, 501);
  EXPECT_EQ(post({{"key", "k"}, {"x-amz-checksum-crc32c", "AAAAAA=="}, {"file", "x"}}).xml("Code"),
            "BadDigest");
  EXPECT_EQ(post({{"key", "k"}, {"file", "x"}}, {{"origin", "http://evil.example"}}).status, 403);
  EXPECT_EQ(send("POST", "/b", "", {{"content-type", "multipart/form-data; boundary=YY"}}, "--XX")
                .xml("Code"),
            "MalformedPOSTRequest");
  EXPECT_EQ(client().get("/b/k").status, 404);
}

}  // namespace
}  // namespace headrace::sim
