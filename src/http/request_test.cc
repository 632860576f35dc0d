#include "http/request.h"

#include <gtest/gtest.h>

#include "http/response.h"
#include "http/test_heads.h"

namespace headrace::http {
namespace {

Code code_of(std::string_view text) {
  RequestHead head;
  auto size = parse_request_head(text, head);
  return size ? Code::kOk : size.error().code();
}

constexpr std::string_view kPut =
    "PUT /bucket/a%20b?partNumber=1&uploadId=x HTTP/1.1\r\n"
    "Host: 127.0.0.1:9000\r\n"
    "Expect: 100-continue\r\n"
    "Content-Length: 12\r\n"
    "\r\n";

TEST(RequestHead, ReadsAPut) {
  const std::string text = std::string(kPut) + "body";
  const RequestHead head = request_head(text);
  EXPECT_EQ(head.method, "PUT");
  EXPECT_EQ(head.target, "/bucket/a%20b?partNumber=1&uploadId=x");
  EXPECT_EQ(head.path, "/bucket/a%20b");
  EXPECT_EQ(head.query, "partNumber=1&uploadId=x");
  EXPECT_EQ(head.host, "127.0.0.1:9000");
  EXPECT_TRUE(head.expects_continue);
  EXPECT_EQ(head.content_length, 12u);
  EXPECT_TRUE(head.keep_alive);
  EXPECT_EQ(head.head_bytes, kPut.size());
  EXPECT_EQ(head.header("host"), "127.0.0.1:9000");
}

TEST(RequestHead, EveryShorterPieceIsIncomplete) {
  for (std::size_t n = 0; n < kPut.size(); ++n) {
    RequestHead head;
    auto size = parse_request_head(kPut.substr(0, n), head);
    ASSERT_TRUE(size.has_value()) << n;
    EXPECT_EQ(*size, 0u) << n;
  }
}

TEST(RequestHead, ReducesAbsoluteTargets) {
  EXPECT_EQ(request_head("GET http://host:80/b/k?x HTTP/1.1\r\nHost: h\r\n\r\n").target, "/b/k?x");
  EXPECT_EQ(request_head("GET http://host HTTP/1.1\r\nHost: h\r\n\r\n").target, "/");
}

TEST(RequestHead, KnowsChunkedAndClose) {
  const RequestHead head = request_head(
      "PUT /k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(head.is_chunked);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_FALSE(request_head("GET / HTTP/1.0\r\n\r\n").keep_alive);
}

TEST(RequestHead, UnknownExpectationsAreIgnored) {
  RequestHead head;
  constexpr std::string_view kText = "PUT / HTTP/1.1\r\nHost: h\r\nExpect: miracles\r\n\r\n";
  ASSERT_TRUE(parse_request_head(kText, head).has_value());
  EXPECT_FALSE(head.expects_continue);
}

TEST(RequestHead, RefusesMalformedHeads) {
  for (std::string_view text :
       {"GET /\r\n\r\n", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "get / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: h\r\n\r\n", "GET k HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\nHost: h\n\n", "GET / HTTP/1.1\r\nHost : h\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    EXPECT_EQ(code_of(text), Code::kInvalidArgument) << text;
  }
  EXPECT_EQ(code_of("GET /" + std::string(kMaxHeadBytes, 'x')), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::http
