#include "sim/target.h"

#include <gtest/gtest.h>

namespace headrace::sim {
namespace {

struct Parsed {
  S3Code code;
  Target target;
};

Parsed parse(const std::string& line, const std::string& fields = "Host: 127.0.0.1:9\r\n") {
  const std::string text = line + " HTTP/1.1\r\n" + fields + "\r\n";
  http::RequestHead head;
  EXPECT_TRUE(http::parse_request_head(text, head).has_value());
  Parsed out;
  out.code = parse_target(head, out.target);
  return out;
}

TEST(Target, OperationsAreToldApart) {
  struct Case {
    const char* line;
    Kind kind;
  };
  for (const Case& c :
       {Case{"GET /", Kind::kListBuckets}, Case{"GET /b", Kind::kListObjects},
        Case{"GET /b/", Kind::kListObjects}, Case{"GET /b?location", Kind::kGetLocation},
        Case{"HEAD /b", Kind::kHeadBucket}, Case{"PUT /b", Kind::kCreateBucket},
        Case{"DELETE /b", Kind::kDeleteBucket}, Case{"POST /b?delete", Kind::kDeleteObjects},
        Case{"GET /b/k", Kind::kGetObject}, Case{"HEAD /b/k", Kind::kHeadObject},
        Case{"PUT /b/k", Kind::kPutObject}, Case{"DELETE /b/k", Kind::kDeleteObject},
        Case{"POST /b/k?uploads", Kind::kCreateUpload},
        Case{"PUT /b/k?partNumber=1&uploadId=u", Kind::kUploadPart},
        Case{"POST /b/k?uploadId=u", Kind::kCompleteUpload},
        Case{"DELETE /b/k?uploadId=u", Kind::kAbortUpload},
        Case{"GET /b/k?uploadId=u", Kind::kListParts},
        Case{"GET /_headrace/stats", Kind::kAdmin}}) {
    const Parsed parsed = parse(c.line);
    EXPECT_EQ(parsed.code, S3Code::kNone) << c.line;
    EXPECT_EQ(kind_name(parsed.target.kind), kind_name(c.kind)) << c.line;
  }
  const std::string copy = "Host: h\r\nx-amz-copy-source: /a/b\r\n";
  EXPECT_EQ(parse("PUT /b/k", copy).target.kind, Kind::kCopyObject);
  EXPECT_EQ(parse("PUT /b/k?partNumber=1&uploadId=u", copy).target.kind, Kind::kCopyPart);
}

TEST(Target, KeysAreDecodedAfterSplitting) {
  EXPECT_EQ(parse("GET /b/a%2Fb//c%20%2B+").target.key, "a/b//c ++");
  EXPECT_EQ(parse("GET /b//k").target.key, "/k");
  EXPECT_EQ(parse("GET /b/k?x=%20&y").target.parameter("x"), " ");
  EXPECT_EQ(parse("GET /b/k?x").target.parameter("x"), "");
  EXPECT_EQ(parse("GET /b/k?x").target.parameter("y"), std::nullopt);
}

TEST(Target, VirtualHostStyle) {
  const Parsed parsed = parse("GET /k/l", "Host: my.bucket.localhost:9000\r\n");
  EXPECT_EQ(parsed.target.bucket, "my.bucket");
  EXPECT_EQ(parsed.target.key, "k/l");
  EXPECT_EQ(parse("GET /k/l", "Host: localhost:9000\r\n").target.bucket, "k");
}

TEST(Target, RefusalsHaveTheirCodes) {
  EXPECT_EQ(parse("GET /b/%zz").code, S3Code::kInvalidArgument);
  EXPECT_EQ(parse("GET /b?prefix=%z").code, S3Code::kInvalidArgument);
  EXPECT_EQ(parse("POST /b/k").code, S3Code::kNotImplemented);
  EXPECT_EQ(parse("PATCH /b/k").code, S3Code::kMethodNotAllowed);
  EXPECT_EQ(parse("PUT /").code, S3Code::kMethodNotAllowed);
  EXPECT_EQ(parse("GET /.b/k").code, S3Code::kInvalidBucketName);
  EXPECT_EQ(parse("GET /b/" + std::string(1025, 'k')).code, S3Code::kKeyTooLong);
}

}  // namespace
}  // namespace headrace::sim
