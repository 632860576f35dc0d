#include "http/response.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "http/test_heads.h"

namespace headrace::http {
namespace {

Code code_of(std::string_view text) {
  ResponseHead head;
  auto size = parse_response_head(text, head);
  return size ? Code::kOk : size.error().code();
}

constexpr std::string_view kS3Head =
    "HTTP/1.1 206 Partial Content\r\n"
    "x-amz-id-2: abc/def==\r\n"
    "Last-Modified: Wed, 12 Oct 2009 17:50:00 GMT\r\n"
    "ETag: \"fba9dede5f27731c9771645a39863328\"\r\n"
    "Accept-Ranges: bytes\r\n"
    "Content-Range: bytes 100-299/1000\r\n"
    "Content-Type:  text/plain \t\r\n"
    "Content-Length: 200\r\n"
    "\r\n";

TEST(ResponseHead, ReadsAnS3Answer) {
  const std::string text = std::string(kS3Head) + "body";
  const ResponseHead head = response_head(text);
  EXPECT_EQ(head.status, 206);
  EXPECT_EQ(head.head_bytes, kS3Head.size());
  EXPECT_TRUE(head.keep_alive);
  EXPECT_FALSE(head.is_chunked);
  EXPECT_EQ(head.content_length, 200u);
  ASSERT_TRUE(head.content_range.has_value());
  EXPECT_EQ(head.content_range->first, 100u);
  EXPECT_EQ(head.content_range->last, 299u);
  EXPECT_EQ(head.content_range->total, 1000u);
  EXPECT_EQ(head.etag, "\"fba9dede5f27731c9771645a39863328\"");
  EXPECT_EQ(head.header("CONTENT-type"), "text/plain");
  EXPECT_EQ(head.header("absent"), "");
}

TEST(ResponseHead, EveryShorterPieceIsIncomplete) {
  for (std::size_t n = 0; n < kS3Head.size(); ++n) {
    ResponseHead head;
    auto size = parse_response_head(kS3Head.substr(0, n), head);
    ASSERT_TRUE(size.has_value()) << n;
    EXPECT_EQ(*size, 0u) << n;
  }
}

TEST(ResponseHead, KeepsConnectionsByVersionAndField) {
  EXPECT_TRUE(response_head("HTTP/1.1 200 OK\r\n\r\n").keep_alive);
  EXPECT_FALSE(response_head("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").keep_alive);
  EXPECT_FALSE(response_head("HTTP/1.1 200 OK\r\nConnection: upgrade, Close\r\n\r\n").keep_alive);
  EXPECT_FALSE(response_head("HTTP/1.0 200 OK\r\n\r\n").keep_alive);
  EXPECT_TRUE(response_head("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
}

TEST(ResponseHead, TakesStatusLinesWithoutReason) {
  EXPECT_EQ(response_head("HTTP/1.1 200\r\n\r\n").status, 200);
  EXPECT_EQ(response_head("HTTP/1.1 404 \r\n\r\n").status, 404);
}

TEST(ResponseHead, RefusesWhatIsNotHttp) {
  for (std::string_view text :
       {"HTTP/2 200\r\n\r\n", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n", "HTTP/1.1 200OK\r\n\r\n",
        "HTTP/1.1 200 OK\n\n", "\r\nHTTP/1.1 200 OK\r\n\r\n", "<html>"}) {
    EXPECT_EQ(code_of(text), Code::kCorrupt) << text;
  }
}

TEST(ResponseHead, RefusesBadFields) {
  for (std::string_view field : {"no colon", ": empty name", "space : x", " folded", "a: b\rc",
                                 "a: \x01", "na\xc3\xa9me: x"}) {
    EXPECT_EQ(code_of("HTTP/1.1 200 OK\r\n" + std::string(field) + "\r\n\r\n"), Code::kCorrupt)
        << field;
  }
  EXPECT_EQ(code_of(std::string_view("HTTP/1.1 200 OK\r\na: \0\r\n\r\n", 27)), Code::kCorrupt);
}

TEST(ResponseHead, RefusesConflictingLengths) {
  const auto head = [](std::string_view fields) {
    return "HTTP/1.1 200 OK\r\n" + std::string(fields) + "\r\n";
  };
  EXPECT_EQ(code_of(head("Content-Length: 5\r\nContent-Length: 6\r\n")), Code::kCorrupt);
  EXPECT_EQ(code_of(head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")), Code::kCorrupt);
  EXPECT_EQ(code_of(head("Content-Length: -5\r\n")), Code::kCorrupt);
  EXPECT_EQ(code_of(head("Content-Length: 5, 5\r\n")), Code::kCorrupt);
  EXPECT_EQ(code_of(head("Content-Length: 18446744073709551616\r\n")), Code::kCorrupt);
  EXPECT_EQ(code_of(head("Transfer-Encoding: gzip, chunked\r\n")), Code::kCorrupt);
  EXPECT_EQ(response_head(head("Content-Length: 5\r\nContent-Length: 5\r\n")).content_length, 5u);
}

TEST(ResponseHead, RefusesImpossibleContentRanges) {
  const auto head = [](std::string_view range) {
    return "HTTP/1.1 206 P\r\nContent-Range: " + std::string(range) + "\r\n\r\n";
  };
  for (std::string_view range : {"bytes 5-4/10", "bytes 0-10/10", "bytes 0-1", "bytes a-b/c",
                                 "bytes 0-/10", "bytes -5/10"}) {
    EXPECT_EQ(code_of(head(range)), Code::kCorrupt) << range;
  }
  EXPECT_FALSE(response_head(head("bytes 0-9/*")).content_range->total.has_value());
  EXPECT_FALSE(response_head(head("bytes */100")).content_range.has_value());
  EXPECT_FALSE(response_head(head("lines 1-2/3")).content_range.has_value());
}

TEST(ResponseHead, IsBounded) {
  std::string text = "HTTP/1.1 200 OK\r\n";
  while (text.size() < kMaxHeadBytes) text += "a: " + std::string(60, 'x') + "\r\n";
  EXPECT_EQ(code_of(text), Code::kCorrupt);
  EXPECT_EQ(code_of("HTTP/1.1 200 " + std::string(kMaxHeadBytes, 'x')), Code::kCorrupt);
}

TEST(BodyLength, FollowsStatusAndFraming) {
  const auto length = [](std::string_view text, bool is_head_request = false) {
    return body_length(response_head(text), is_head_request);
  };
  EXPECT_EQ(length("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"), 7u);
  EXPECT_EQ(length("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", true), 0u);
  EXPECT_EQ(length("HTTP/1.1 100 Continue\r\n\r\n"), 0u);
  EXPECT_EQ(length("HTTP/1.1 204 No Content\r\n\r\n"), 0u);
  EXPECT_EQ(length("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"), 0u);
  EXPECT_EQ(length("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), std::nullopt);
  EXPECT_EQ(length("HTTP/1.1 200 OK\r\n\r\n"), std::nullopt);
}

constexpr std::string_view kChunked =
    "4;name=value\r\nWiki\r\n6\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nTrailer: x\r\n\r\n";
constexpr std::string_view kUnpacked = "Wikipedia in \r\n\r\nchunks.";

TEST(ChunkedDecoder, DecodesWhateverTheCuts) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    ChunkedDecoder decoder;
    const std::string input = std::string(kChunked) + "NEXT";
    std::string out;
    std::size_t at = 0;
    while (!decoder.done()) {
      const std::size_t take = std::min<std::size_t>(1 + random.below(9), input.size() - at);
      auto used = decoder.feed(std::string_view(input).substr(at, take), out, 1000);
      ASSERT_TRUE(used.has_value());
      at += *used;
    }
    EXPECT_EQ(out, kUnpacked);
    EXPECT_EQ(at, kChunked.size());
  }
}

TEST(ChunkedDecoder, RefusesMalformedBodies) {
  for (std::string_view text : {"x\r\n", "\r\n", "4\nWiki", "4\r\nWikiX\r\n",
                                "fffffffffffffffff\r\n", "4 4\r\n", "-1\r\n"}) {
    ChunkedDecoder decoder;
    std::string out;
    auto used = decoder.feed(text, out, 1000);
    ASSERT_FALSE(used.has_value()) << text;
    EXPECT_EQ(used.error().code(), Code::kCorrupt) << text;
  }
}

TEST(ChunkedDecoder, IsBounded) {
  ChunkedDecoder decoder;
  std::string out;
  EXPECT_EQ(decoder.feed("5\r\n", out, 4).error().code(), Code::kExhausted);
  ChunkedDecoder endless;
  EXPECT_EQ(endless.feed("1;" + std::string(5000, 'x'), out, 4).error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace::http
