// Objects, listings, uploads and buckets over the wire.
#include "sim/server_fixture.h"

namespace headrace::sim {
namespace {

TEST_F(ServerTest, ServesFilesThatWereThereBefore) {
  write_file("b/dir/x.bin", "0123456789");
  const TestResponse response = client().get("/b/dir/x.bin");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "0123456789");
  EXPECT_EQ(response.header("accept-ranges"), "bytes");
  const std::string etag = response.header("etag");
  EXPECT_TRUE(etag.ends_with("-1\"")) << etag;  // nobody takes it for an MD5
  EXPECT_EQ(client().head("/b/dir/x.bin").header("etag"), etag);
  EXPECT_EQ(client().head("/b/dir/x.bin").header("content-length"), "10");
}

TEST_F(ServerTest, RangesAreServed) {
  write_file("b/x", "0123456789");
  struct Case {
    const char* range;
    int status;
    const char* body;
    const char* content_range;
  };
  for (const Case& c :
       {Case{"bytes=2-4", 206, "234", "bytes 2-4/10"}, Case{"bytes=7-", 206, "789", "bytes 7-9/10"},
        Case{"bytes=-3", 206, "789", "bytes 7-9/10"},
        Case{"bytes=8-100", 206, "89", "bytes 8-9/10"},
        Case{"bytes=-100", 206, "0123456789", "bytes 0-9/10"},
        Case{"bytes=0-0,2-2", 200, "0123456789", ""}, Case{"lines=1-2", 200, "0123456789", ""}}) {
    const TestResponse response = client().get("/b/x", {{"range", c.range}});
    EXPECT_EQ(response.status, c.status) << c.range;
    EXPECT_EQ(response.body, c.body) << c.range;
    EXPECT_EQ(response.header("content-range"), c.content_range) << c.range;
  }
  const TestResponse beyond = client().get("/b/x", {{"range", "bytes=10-"}});
  EXPECT_EQ(beyond.status, 416);
  EXPECT_EQ(beyond.xml("Code"), "InvalidRange");
  EXPECT_EQ(beyond.header("content-range"), "bytes */10");
}

TEST_F(ServerTest, APartHasNoRange) {
  write_file("b/x", "0123456789");
  EXPECT_EQ(client().get("/b/x", {}, "partNumber=1").status, 206);
  EXPECT_EQ(client().get("/b/x", {{"range", "bytes=0-3"}}, "partNumber=1").xml("Code"),
            "InvalidRequest");
}

TEST_F(ServerTest, OneRequestWritesAtMost5GiB) {
  constexpr std::uint64_t kLimit = 5'368'709'120;
  const auto announce = [this](const std::string& path, const std::string& query) {
    std::string text = client().text_of({"PUT", path, query, {{"expect", "100-continue"}}});
    const std::string none = "content-length: 0";
    text.replace(text.find(none), none.size(), "content-length: " + std::to_string(kLimit + 1));
    client().send_text(text);
    const TestResponse response = client().read_response();
    EXPECT_TRUE(client().reads_end());
    return response;
  };
  EXPECT_EQ(announce("/b/k", "").xml("Code"), "EntityTooLarge");
  const std::string id = client().post("/b/k", "", "uploads=").xml("UploadId");
  EXPECT_EQ(announce("/b/k", "partNumber=1&uploadId=" + id).xml("Code"), "EntityTooLarge");
  // Copies: of a file that takes no blocks.
  write_file("b/x", "");
  std::filesystem::resize_file(dir_.path() + "/b/x", kLimit + 1);
  const TestFields source = {{"x-amz-copy-source", "b/x"}};
  EXPECT_EQ(client().put("/b/k", "", source).xml("Code"), "InvalidRequest");
  const std::string part = "partNumber=1&uploadId=" + id;
  EXPECT_EQ(client().put("/b/k", "", source, part).xml("Code"), "InvalidRequest");
  TestFields some = source;
  some.emplace_back("x-amz-copy-source-range", "bytes=0-9");
  EXPECT_EQ(client().put("/b/k", "", some, part).status, 200);
}

TEST_F(ServerTest, ReadConditionsAreKept) {
  write_file("b/x", "text");
  const std::string etag = client().head("/b/x").header("etag");
  const std::string modified = client().head("/b/x").header("last-modified");
  EXPECT_EQ(client().get("/b/x", {{"if-match", etag}}).status, 200);
  EXPECT_EQ(client().get("/b/x", {{"if-match", "\"other\""}}).xml("Code"), "PreconditionFailed");
  EXPECT_EQ(client().get("/b/x", {{"if-none-match", etag}}).status, 304);
  EXPECT_EQ(client().get("/b/x", {{"if-none-match", "\"other\""}}).status, 200);
  EXPECT_EQ(client().get("/b/x", {{"if-modified-since", modified}}).status, 304);
  EXPECT_EQ(client().get("/b/x", {{"if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT"}}).status,
            412);
  EXPECT_EQ(client().get("/b/x").body, "text");  // the connection survived all of it
  write_file("b/x", "changed");
  EXPECT_EQ(client().get("/b/x", {{"if-match", etag}}).status, 412);
}

TEST_F(ServerTest, StorageClassesAreKeptAndTold) {
  const TestFields cold = {{"x-amz-storage-class", "STANDARD_IA"}};
  EXPECT_EQ(client().put("/b/x", "text", cold).status, 200);
  EXPECT_EQ(client().head("/b/x").header("x-amz-storage-class"), "STANDARD_IA");
  EXPECT_EQ(client().get("/b/x").body, "text");
  EXPECT_EQ(client().get("/b", {}, "list-type=2").xml("StorageClass"), "STANDARD_IA");
  const auto copy = [&](const TestFields& more) {
    TestFields fields = more;
    fields.emplace_back("x-amz-copy-source", "/b/x");
    return client().put("/b/x", "", fields);
  };
  EXPECT_EQ(copy(cold).xml("Code"), "InvalidRequest");  // Nothing of it would change.
  const std::string etag = client().head("/b/x").header("etag");
  EXPECT_EQ(copy({{"x-amz-storage-class", "GLACIER_IR"}}).status, 200);
  EXPECT_EQ(client().head("/b/x").header("x-amz-storage-class"), "GLACIER_IR");
  EXPECT_EQ(client().head("/b/x").header("etag"), etag);
  EXPECT_EQ(copy({}).status, 200);  // A copy does not take over the class.
  EXPECT_EQ(client().head("/b/x").header("x-amz-storage-class"), "");
  EXPECT_EQ(client().get("/b", {}, "list-type=2").xml("StorageClass"), "STANDARD");
}

TEST_F(ServerTest, WhatIsArchivedCannotBeRead) {
  for (const char* name : {"GLACIER", "DEEP_ARCHIVE"}) {
    EXPECT_EQ(client().put("/b/x", "text", {{"x-amz-storage-class", name}}).status, 200);
    const TestResponse refused = client().get("/b/x");
    EXPECT_EQ(refused.status, 403);
    EXPECT_EQ(refused.xml("Code"), "InvalidObjectState");
    EXPECT_EQ(client().head("/b/x").status, 200);
    EXPECT_EQ(client().put("/b/y", "", {{"x-amz-copy-source", "/b/x"}}).xml("Code"),
              "InvalidObjectState");
  }
  EXPECT_EQ(client().remove("/b/x").status, 204);
}

TEST_F(ServerTest, MissingThingsHaveTheirCodes) {
  EXPECT_EQ(client().get("/b/none").xml("Code"), "NoSuchKey");
  EXPECT_EQ(client().get("/none/k").xml("Code"), "NoSuchBucket");
  EXPECT_EQ(client().get("/none").xml("Code"), "NoSuchBucket");
  EXPECT_EQ(client().put("/none/k", "x").xml("Code"), "NoSuchBucket");
  EXPECT_EQ(client().remove("/none/k").xml("Code"), "NoSuchBucket");
  EXPECT_EQ(client().get("/none/k").status, 404);
  EXPECT_EQ(client().head("/b/none").status, 404);
  EXPECT_EQ(client().head("/b/none").header("content-length"), "0");
  EXPECT_EQ(client().head("/b").status, 200);
}

TEST_F(ServerTest, PutThenGetThenDelete) {
  const std::string body = pattern(3'000'000);
  const TestResponse put = client().put("/b/new/key%20%C3%BC", body);
  EXPECT_EQ(put.status, 200);
  EXPECT_EQ(client().put("/b/md5", "hello").header("etag"), "\"5d41402abc4b2a76b9719d911017c592\"");
  const TestResponse get = client().get("/b/new/key%20%C3%BC");
  EXPECT_EQ(get.body, body);
  EXPECT_EQ(get.header("etag"), put.header("etag"));
  EXPECT_EQ(client().remove("/b/new/key%20%C3%BC").status, 204);
  EXPECT_EQ(client().get("/b/new/key%20%C3%BC").status, 404);
}

TEST_F(ServerTest, EmptyObjects) {
  EXPECT_EQ(client().put("/b/empty", "").status, 200);
  EXPECT_EQ(client().get("/b/empty").status, 200);
  EXPECT_EQ(client().head("/b/empty").header("content-length"), "0");
  EXPECT_EQ(client().get("/b/empty", {{"range", "bytes=0-"}}).status, 416);
}

TEST_F(ServerTest, OddKeysRoundTrip) {
  for (const char* path :
       {"/b/a", "/b/a/b", "/b/a/", "/b/x//y", "/b/..", "/b/../q", "/b/.", "/b//lead",
        "/b/%2B%3D%3F%26%23%25", "/b/line%0Abreak", "/b/a%20b%2Bc"}) {
    ASSERT_EQ(client().put(path, path).status, 200) << path;
  }
  for (const char* path : {"/b/a", "/b/a/b", "/b/a/", "/b/x//y", "/b/..", "/b/../q", "/b/.",
                           "/b//lead", "/b/%2B%3D%3F%26%23%25", "/b/line%0Abreak"}) {
    EXPECT_EQ(client().get(path).body, path);
  }
  const TestResponse list = client().get("/b", {}, "encoding-type=url&list-type=2");
  EXPECT_EQ(list.xml("KeyCount"), "11");
  EXPECT_NE(list.body.find("<Key>a+b%2Bc</Key>"), std::string::npos);
  EXPECT_NE(list.body.find("<Key>line%0Abreak</Key>"), std::string::npos);
}

TEST_F(ServerTest, WriteConditionsAreKept) {
  EXPECT_EQ(client().put("/b/k", "1", {{"if-none-match", "*"}}).status, 200);
  EXPECT_EQ(client().put("/b/k", "2", {{"if-none-match", "*"}}).xml("Code"), "PreconditionFailed");
  const std::string etag = client().head("/b/k").header("etag");
  EXPECT_EQ(client().put("/b/k", "3", {{"if-match", etag}}).status, 200);
  EXPECT_EQ(client().put("/b/k", "4", {{"if-match", etag}}).status, 412);
  EXPECT_EQ(client().put("/b/k", "4", {{"if-none-match", etag}}).xml("Code"), "NotImplemented");
  EXPECT_EQ(client().get("/b/k").body, "3");
  EXPECT_EQ(client().get("/b/k", {{"if-none-match", etag}}).status, 200);
}

TEST_F(ServerTest, BadChecksumsKeepTheOldObject) {
  EXPECT_EQ(client().put("/b/k", "old").status, 200);
  EXPECT_EQ(client().put("/b/k", "new", {{"x-amz-checksum-crc32c", "AAAAAA=="}}).xml("Code"),
            "BadDigest");
  EXPECT_EQ(client().put("/b/k", "new", {{"content-md5", "x"}}).xml("Code"), "InvalidDigest");
  TestRequest wrong{"PUT", "/b/k", "", {}, "new", std::string(auth::kEmptyPayloadHash)};
  EXPECT_EQ(client().request(wrong).xml("Code"), "XAmzContentSHA256Mismatch");
  EXPECT_EQ(client().get("/b/k").body, "old");
}

TEST_F(ServerTest, OneChecksumIsTaken) {
  // Of "123456789", as in body_reader_test.cc.
  const std::pair<std::string, std::string> crc32c("x-amz-checksum-crc32c", "4waSgw==");
  const std::pair<std::string, std::string> crc32("x-amz-checksum-crc32", "y/Q5Jg==");
  const std::pair<std::string, std::string> trailer("x-amz-trailer", "x-amz-checksum-crc32");
  for (const auto& other : {crc32, trailer}) {
    const TestResponse response = client().put("/b/k", "123456789", {crc32c, other});
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.xml("Code"), "InvalidRequest");
    EXPECT_EQ(
        response.xml("Message"),
        "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.");
  }
  EXPECT_EQ(client().get("/b/k").status, 404);
  EXPECT_EQ(client().put("/b/k", "123456789", {crc32c}).status, 200);
}

TEST_F(ServerTest, ExpectContinueIsAnswered) {
  TestRequest request{
      "PUT", "/b/k", "", {{"expect", "100-continue"}}, "body", std::string(auth::kUnsignedPayload)};
  const std::string text = client().text_of(request);
  client().send_text(std::string_view(text).substr(0, text.size() - 4));
  EXPECT_EQ(client().read_response().status, 100);
  client().send_text("body");
  EXPECT_EQ(client().read_response().status, 200);
  // Refused before the body was sent: the answer comes at once and the connection ends.
  request.path = "/none/k";
  const std::string refused = client().text_of(request);
  client().send_text(std::string_view(refused).substr(0, refused.size() - 4));
  EXPECT_EQ(client().read_response().xml("Code"), "NoSuchBucket");
  EXPECT_TRUE(client().reads_end());
}

TEST_F(ServerTest, CopiesObjects) {
  EXPECT_EQ(client().put("/b/from%20here", "text").status, 200);
  const TestResponse copy = client().put("/b/to", "", {{"x-amz-copy-source", "/b/from%20here"}});
  EXPECT_EQ(copy.status, 200);
  EXPECT_EQ(client().get("/b/to").body, "text");
  EXPECT_EQ(copy.body.find("&quot;") != std::string::npos, true);
  EXPECT_EQ(client().put("/b/to", "", {{"x-amz-copy-source", "b/none"}}).xml("Code"), "NoSuchKey");
  EXPECT_EQ(client().put("/b/to", "", {{"x-amz-copy-source", "none/k"}}).xml("Code"),
            "NoSuchBucket");
  EXPECT_EQ(client().put("/b/to", "", {{"x-amz-copy-source", "b"}}).xml("Code"), "InvalidArgument");
  const auto copy_if = [this](const std::string& name, const std::string& value) {
    return client().put("/b/to", "", {{"x-amz-copy-source", "b/from%20here"}, {name, value}});
  };
  EXPECT_EQ(copy_if("x-amz-copy-source-if-match", "x").status, 412);
  const std::string modified = client().head("/b/from%20here").header("last-modified");
  EXPECT_EQ(copy_if("x-amz-copy-source-if-modified-since", modified).status, 412);
  EXPECT_EQ(copy_if("x-amz-copy-source-if-unmodified-since", modified).status, 200);
  EXPECT_EQ(client().put("/b/to", "", {{"x-amz-copy-source", "b/to"}}).xml("Code"),
            "InvalidRequest");
}

TEST_F(ServerTest, VersionsOfCopySourcesAreToldFromKeys) {
  client().put("/b/k", "another");
  client().put("/b/k%3FversionId%3Dnull", "the one");
  const auto copy = [this](const char* source) {
    return client().put("/b/to", "", {{"x-amz-copy-source", source}}).status;
  };
  EXPECT_EQ(copy("b/k%3FversionId%3Dnull"), 200);
  EXPECT_EQ(client().get("/b/to").body, "the one");
  EXPECT_EQ(copy("b/k?versionId=null"), 200);
  EXPECT_EQ(client().get("/b/to").body, "another");
  EXPECT_EQ(copy("b/k?versionId=abc"), 501);
}

TEST_F(ServerTest, DeletesInBatches) {
  for (const char* key : {"/b/1", "/b/2", "/b/3"}) client().put(key, "x");
  const std::string body =
      "<Delete><Object><Key>1</Key></Object><Object><Key>2</Key></Object><Object><Key>no</Key></"
      "Object></Delete>";
  EXPECT_EQ(client().post("/b", body, "delete=").xml("Code"), "InvalidRequest");
  EXPECT_EQ(client().get("/b/1").status, 200);
  const TestResponse response = client().delete_batch("/b", body);
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.body.find("<Deleted><Key>2</Key></Deleted>"), std::string::npos);
  EXPECT_EQ(client().get("/b/1").status, 404);
  EXPECT_EQ(client().get("/b/3").status, 200);
  EXPECT_EQ(client().delete_batch("/b", "<Delete><Object>").xml("Code"), "MalformedXML");
  EXPECT_EQ(client().delete_batch("/b", "").xml("Code"), "MalformedXML");
}

TEST_F(ServerTest, ListsInPages) {
  for (int i = 0; i < 5; ++i) write_file("b/d" + std::to_string(i) + "/f", "x");
  std::string token;
  std::string prefixes;
  for (int page = 0; page < 3; ++page) {
    const TestResponse response =
        client().get("/b", {},
                     (token.empty() ? "" : "continuation-token=" + token + "&") +
                         "delimiter=%2F&list-type=2&max-keys=2");
    EXPECT_EQ(response.xml("IsTruncated"), page < 2 ? "true" : "false");
    token = response.xml("NextContinuationToken");
    for (std::size_t at = response.body.find("<CommonPrefixes><Prefix>"); at != std::string::npos;
         at = response.body.find("<CommonPrefixes><Prefix>", at + 1)) {
      prefixes += response.body.substr(at + 24, 3);
    }
  }
  EXPECT_EQ(prefixes, "d0/d1/d2/d3/d4/");
  EXPECT_EQ(client().get("/b", {}, "list-type=2&prefix=d3%2F").xml("Key"), "d3/f");
  EXPECT_EQ(client().get("/b", {}, "list-type=2&start-after=d3%2Ff").xml("Key"), "d4/f");
  EXPECT_EQ(client().get("/b", {}, "marker=d3%2Ff").xml("Key"), "d4/f");
  EXPECT_EQ(client().get("/b", {}, "continuation-token=zz&list-type=2").xml("Code"),
            "InvalidArgument");
  EXPECT_EQ(client().get("/b", {}, "list-type=2&max-keys=x").xml("Code"), "InvalidArgument");
  // The first version of the call tells where to go on only with a delimiter.
  EXPECT_EQ(client().get("/b", {}, "max-keys=1").body.find("NextMarker"), std::string::npos);
  EXPECT_NE(client().get("/b", {}, "delimiter=%2F&max-keys=1").xml("NextMarker"), "");
}

TEST_F(ServerTest, AMarkerThatEqualsThePrefixIsAKey) {
  for (const char* key : {"/b/dir/", "/b/dir/a", "/b/dir/b/c", "/b/e"}) client().put(key, "x");
  const std::string list = "delimiter=%2F&marker=dir%2F&prefix=";
  EXPECT_EQ(client().get("/b", {}, list + "dir%2F").xml("Key"), "dir/a");
  EXPECT_EQ(client().get("/b", {}, list).xml("Key"), "e");  // there it covers the others
  const std::string versions = "delimiter=%2F&key-marker=dir%2F&prefix=dir%2F&versions=";
  EXPECT_EQ(client().get("/b", {}, versions).xml("Key"), "dir/a");
  const std::string longer = "delimiter=%2Fb&marker=dir%2Fb&prefix=dir%2Fb";
  EXPECT_EQ(client().get("/b", {}, longer).xml("Key"), "dir/b/c");
}

TEST_F(ServerTest, ACommonPrefixThatAMarkerLiesInIsNotListed) {
  for (const char* key : {"/b/dir/a", "/b/dir/b", "/b/dir/c", "/b/e"}) client().put(key, "x");
  for (const char* position : {"list-type=2&start-after=", "marker=", "key-marker="}) {
    const auto list = [&](const std::string& after) {
      const bool is_versions = std::string_view(position) == "key-marker=";
      return client().get(
          "/b", {}, "delimiter=%2F&" + (position + after) + (is_versions ? "&versions=" : ""));
    };
    for (const char* after : {"dir%2F", "dir%2Fa", "dir%2Fz"}) {
      EXPECT_EQ(list(after).body.find("<CommonPrefixes>"), std::string::npos) << position << after;
      EXPECT_EQ(list(after).xml("Key"), "e") << position << after;
    }
    EXPECT_NE(list("dir").body.find("<Prefix>dir/</Prefix>"), std::string::npos) << position;
  }
}

TEST_F(ServerTest, BucketsComeAndGo) {
  EXPECT_EQ(client().put("/new", "").status, 200);
  EXPECT_EQ(client().put("/new", "").status, 200);  // in us-east-1
  EXPECT_NE(client().get("/").body.find("<Name>new</Name>"), std::string::npos);
  EXPECT_EQ(client().get("/new", {}, "location=").status, 200);
  EXPECT_EQ(client().put("/new/k", "x").status, 200);
  EXPECT_EQ(client().remove("/new").xml("Code"), "BucketNotEmpty");
  EXPECT_EQ(client().remove("/new/k").status, 204);
  EXPECT_EQ(client().remove("/new").status, 204);
  EXPECT_EQ(client().head("/new").status, 404);
}

class UploadTest : public ServerTest {
 protected:
  std::string create(const std::string& path) {
    return client().post(path, "", "uploads=").xml("UploadId");
  }
  std::string put_part(const std::string& path, const std::string& id, int number,
                       const std::string& body) {
    return client()
        .put(path, body, {}, "partNumber=" + std::to_string(number) + "&uploadId=" + id)
        .header("etag");
  }
  TestResponse complete(const std::string& path, const std::string& id,
                        const std::vector<std::pair<int, std::string>>& parts) {
    std::string xml = "<CompleteMultipartUpload>";
    for (const auto& [number, etag] : parts) {
      xml += "<Part><PartNumber>" + std::to_string(number) + "</PartNumber><ETag>" + etag +
             "</ETag></Part>";
    }
    return client().post(path, xml + "</CompleteMultipartUpload>", "uploadId=" + id);
  }
  static constexpr std::size_t kPartBytes = 5 << 20;
};

TEST_F(UploadTest, PartsBecomeOneObject) {
  const std::string id = create("/b/big");
  const std::string first = pattern(kPartBytes);
  const std::string e2 = put_part("/b/big", id, 7, "tail");
  const std::string e1 = put_part("/b/big", id, 2, first);
  EXPECT_EQ(client().get("/b/big").status, 404);  // nothing to see before the end
  EXPECT_NE(client().get("/b/big", {}, "uploadId=" + id).body.find("<PartNumber>7</PartNumber>"),
            std::string::npos);
  const TestResponse done = complete("/b/big", id, {{2, e1}, {7, e2}});
  EXPECT_EQ(done.status, 200);
  const TestResponse get = client().get("/b/big");
  EXPECT_TRUE(get.body == first + "tail");
  EXPECT_NE(done.body.find(get.header("etag").substr(1, 32)), std::string::npos);
  // Asked again, since the answer was lost; with other parts; when the object is another.
  EXPECT_EQ(complete("/b/big", id, {{2, e1}, {7, e2}}).xml("ETag"), done.xml("ETag"));
  EXPECT_EQ(complete("/b/big", id, {{2, e1}}).xml("Code"), "NoSuchUpload");
  EXPECT_EQ(complete("/b/other", id, {{2, e1}, {7, e2}}).xml("Code"), "NoSuchUpload");
  EXPECT_EQ(client().put("/b/big", "other").status, 200);
  EXPECT_EQ(complete("/b/big", id, {{2, e1}, {7, e2}}).xml("Code"), "NoSuchUpload");
}

TEST_F(UploadTest, TheEtagIsTheMd5OfTheMd5sOfTheParts) {
  const std::string id = create("/b/k");
  const std::string etag = put_part("/b/k", id, 1, "hello");
  EXPECT_EQ(etag, "\"5d41402abc4b2a76b9719d911017c592\"");
  const TestResponse done = complete("/b/k", id, {{1, etag}});
  // printf 5d41402abc4b2a76b9719d911017c592 | xxd -r -p | md5sum
  EXPECT_EQ(client().head("/b/k").header("etag"), "\"62109206880d38a4010a98e11243924a-1\"");
}

TEST_F(UploadTest, BadCompletionsAreRefusedAndCanBeRepaired) {
  const std::string id = create("/b/big");
  const std::string e1 = put_part("/b/big", id, 1, "small");
  const std::string e2 = put_part("/b/big", id, 2, "tail");
  EXPECT_EQ(complete("/b/big", id, {{2, e2}, {1, e1}}).xml("Code"), "InvalidPartOrder");
  EXPECT_EQ(complete("/b/big", id, {{1, e1}, {1, e1}}).xml("Code"), "InvalidPartOrder");
  EXPECT_EQ(complete("/b/big", id, {{1, e2}}).xml("Code"), "InvalidPart");
  EXPECT_EQ(complete("/b/big", id, {{3, e2}}).xml("Code"), "InvalidPart");
  EXPECT_EQ(complete("/b/big", id, {{1, "*"}}).xml("Code"), "InvalidPart");
  EXPECT_EQ(complete("/b/big", id, {{1, e2 + ", " + e1}}).xml("Code"), "InvalidPart");
  EXPECT_EQ(complete("/b/big", id, {{1, e1}, {2, e2}}).xml("Code"), "EntityTooSmall");
  EXPECT_EQ(complete("/b/big", id, {}).xml("Code"), "MalformedXML");
  EXPECT_EQ(complete("/b/other", id, {{1, e1}}).xml("Code"), "NoSuchUpload");
  EXPECT_EQ(complete("/b/big", id, {{1, e1}}).status, 200);
}

TEST_F(UploadTest, AnyObjectIsNoConditionOfAWrite) {
  EXPECT_EQ(client().put("/b/k", "kept").status, 200);
  const TestFields any = {{"if-match", "*"}};
  const std::string id = create("/b/k");
  const std::string etag = put_part("/b/k", id, 1, "new");
  const TestRequest complete{"POST", "/b/k", "uploadId=" + id, any,
                             "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" +
                                 etag + "</ETag></Part></CompleteMultipartUpload>"};
  EXPECT_EQ(client().request(complete).xml("Code"), "NotImplemented");
  EXPECT_EQ(client().put("/b/k", "new", any).xml("Code"), "NotImplemented");
  EXPECT_EQ(client().put("/b/k", "new", {{"if-match", "\"x\", *"}}).xml("Code"), "NotImplemented");
  const TestFields copy = {{"if-match", "*"}, {"x-amz-copy-source", "/b/k"}};
  EXPECT_EQ(client().put("/b/k", "", copy).xml("Code"), "NotImplemented");
  EXPECT_EQ(client().get("/b/k", any).body, "kept");
  EXPECT_EQ(client().request({"DELETE", "/b/k", "", any}).status, 204);
}

TEST_F(UploadTest, PartsCanBeCopied) {
  EXPECT_EQ(client().put("/b/from", "0123456789").status, 200);
  const std::string id = create("/b/to");
  const TestResponse part = client().put(
      "/b/to", "", {{"x-amz-copy-source", "/b/from"}, {"x-amz-copy-source-range", "bytes=2-5"}},
      "partNumber=1&uploadId=" + id);
  EXPECT_EQ(part.status, 200);
  for (const char* range : {"2-5", "bytes=2", "bytes=x-5", "bytes=5-2", "bytes=0-1,2-3"}) {
    const TestResponse bad = client().put(
        "/b/to", "", {{"x-amz-copy-source", "/b/from"}, {"x-amz-copy-source-range", range}},
        "partNumber=1&uploadId=" + id);
    EXPECT_EQ(bad.xml("Code"), "InvalidArgument") << range;
  }
  const TestResponse beyond = client().put(
      "/b/to", "", {{"x-amz-copy-source", "/b/from"}, {"x-amz-copy-source-range", "bytes=5-10"}},
      "partNumber=1&uploadId=" + id);
  EXPECT_EQ(beyond.xml("Code"), "InvalidRange");
  EXPECT_EQ(complete("/b/to", id, {{1, part.xml("ETag").substr(6, 34)}}).status, 200);
  EXPECT_EQ(client().get("/b/to").body, "2345");
}

TEST_F(UploadTest, TheObjectHasTheClassThatTheUploadBeganWith) {
  const TestResponse begun =
      client().request({"POST", "/b/big", "uploads=", {{"x-amz-storage-class", "STANDARD_IA"}}});
  const std::string id = begun.xml("UploadId");
  EXPECT_EQ(client().get("/b/big", {}, "uploadId=" + id).xml("StorageClass"), "STANDARD_IA");
  EXPECT_EQ(client().get("/b", {}, "uploads=").xml("StorageClass"), "STANDARD_IA");
  EXPECT_EQ(complete("/b/big", id, {{1, put_part("/b/big", id, 1, "x")}}).status, 200);
  EXPECT_EQ(client().head("/b/big").header("x-amz-storage-class"), "STANDARD_IA");
}

TEST_F(UploadTest, UploadsOfAKeyAreListedInTheOrderOfTheirBeginnings) {
  std::vector<std::string> begun;
  for (int i = 0; i < 6; ++i) begun.push_back(create("/b/k"));
  std::string marker;
  for (const std::string& id : begun) {
    const TestResponse page = client().get("/b", {}, marker + "max-uploads=1&uploads=");
    EXPECT_EQ(page.xml("UploadId"), id);
    marker = "key-marker=k&upload-id-marker=" + id + "&";
  }
  EXPECT_EQ(client().get("/b", {}, marker + "uploads=").xml("UploadId"), "");
}

TEST_F(UploadTest, AbortForgetsEverything) {
  const std::string id = create("/b/big");
  put_part("/b/big", id, 1, "x");
  EXPECT_EQ(client().remove("/b/big", "uploadId=" + id).status, 204);
  EXPECT_EQ(client().remove("/b/big", "uploadId=" + id).xml("Code"), "NoSuchUpload");
  EXPECT_EQ(client().remove("/b/big", "uploadId=..%2F..").xml("Code"), "NoSuchUpload");
  EXPECT_EQ(client().put("/b/big", "x", {}, "partNumber=1&uploadId=" + id).xml("Code"),
            "NoSuchUpload");
  EXPECT_EQ(
      client().put("/b/big", "x", {}, "partNumber=0&uploadId=" + create("/b/big")).xml("Code"),
      "InvalidArgument");
}

}  // namespace
}  // namespace headrace::sim
