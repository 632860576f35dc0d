#include "sim/body_reader.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <utility>

#include "base/fd.h"
#include "headrace/status.h"

namespace headrace::sim {
namespace {

struct Read {
  S3Code code = S3Code::kNone;
  std::string payload;
  std::string echo;
  std::size_t used_bytes = 0;
  bool is_framed = true;
};

/// Parses `fields`, feeds `body` in pieces of `piece_bytes`.
Read read_body(const std::string& fields, const std::string& body, std::size_t piece_bytes,
               BodyReader::Target target = {}) {
  const std::string text = "PUT /b/k HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n";
  http::RequestHead head;
  EXPECT_TRUE(http::parse_request_head(text, head).has_value());
  target.max_memory_bytes = 1 << 20;
  BodyReader reader;
  Read out;
  out.code = reader.open(head, target);
  if (out.code != S3Code::kNone) return out;
  while (!reader.done() && out.used_bytes < body.size()) {
    out.used_bytes += reader.feed(std::string_view(body).substr(out.used_bytes, piece_bytes));
  }
  EXPECT_TRUE(reader.done());
  out.code = reader.finish();
  out.payload = reader.memory();
  out.echo = reader.echo();
  out.is_framed = reader.is_framed();
  return out;
}

std::string length_field(const std::string& body) {
  return "Content-Length: " + std::to_string(body.size()) + "\r\n";
}

constexpr char kAwsHead[] = "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n";

TEST(BodyReader, PlainBodyEndsAtItsLength) {
  for (std::size_t piece : {1u, 3u, 100u}) {
    const Read read = read_body("Content-Length: 5\r\n", "helloGET /", piece);
    EXPECT_EQ(read.code, S3Code::kNone);
    EXPECT_EQ(read.payload, "hello");
    EXPECT_EQ(read.used_bytes, 5u);
  }
}

TEST(BodyReader, HttpChunksComeOff) {
  const std::string body = "5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nX-T: 1\r\n\r\n";
  for (std::size_t piece : {1u, 2u, 7u, 100u}) {
    const Read read = read_body("Transfer-Encoding: chunked\r\n", body + "GET", piece);
    EXPECT_EQ(read.code, S3Code::kNone);
    EXPECT_EQ(read.payload, "hello world");
    EXPECT_EQ(read.used_bytes, body.size());
  }
}

TEST(BodyReader, AwsChunksWithSignaturesComeOff) {
  const std::string body = "5;chunk-signature=ab\r\nhello\r\n0;chunk-signature=cd\r\n\r\n";
  for (std::size_t piece : {1u, 2u, 7u, 100u}) {
    const Read read =
        read_body(std::string("x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\n"
                              "x-amz-decoded-content-length: 5\r\n") +
                      length_field(body),
                  body, piece);
    EXPECT_EQ(read.code, S3Code::kNone);
    EXPECT_EQ(read.payload, "hello");
  }
}

TEST(BodyReader, TrailingChecksumIsVerified) {
  // CRC-32 of "hello" is 3610a686.
  const std::string good = "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
  const std::string bad = "5\r\nhallo\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
  const std::string none = "5\r\nhello\r\n0\r\n\r\n";
  const std::string fields = std::string(kAwsHead) + "x-amz-trailer: x-amz-checksum-crc32\r\n";
  const Read read = read_body(fields + length_field(good), good, 4);
  EXPECT_EQ(read.code, S3Code::kNone);
  EXPECT_EQ(read.echo, "x-amz-checksum-crc32: NhCmhg==\r\n");
  EXPECT_EQ(read_body(fields + length_field(bad), bad, 4).code, S3Code::kBadDigest);
  EXPECT_EQ(read_body(fields + length_field(none), none, 4).code, S3Code::kBadDigest);
}

TEST(BodyReader, AwsChunksInsideHttpChunks) {
  const std::string inner = "3\r\nabc\r\n0\r\n\r\n";
  const std::string body =
      "4\r\n" + inner.substr(0, 4) + "\r\n9\r\n" + inner.substr(4) + "\r\n0\r\n\r\n";
  ASSERT_EQ(inner.size(), 13u);
  const Read read = read_body(std::string(kAwsHead) + "Transfer-Encoding: chunked\r\n", body, 5);
  EXPECT_EQ(read.code, S3Code::kNone);
  EXPECT_EQ(read.payload, "abc");
}

TEST(BodyReader, CutOffAwsChunksAreIncomplete) {
  const std::string body = "5\r\nhel";
  EXPECT_EQ(read_body(kAwsHead + length_field(body), body, 2).code, S3Code::kIncompleteBody);
  const std::string wrong = "zz\r\nhello\r\n0\r\n\r\n";
  EXPECT_EQ(read_body(kAwsHead + length_field(wrong), wrong, 100).code, S3Code::kIncompleteBody);
}

TEST(BodyReader, DecodedLengthMustBeMet) {
  const std::string body = "5\r\nhello\r\n0\r\n\r\n";
  const std::string fields = std::string(kAwsHead) + "x-amz-decoded-content-length: 6\r\n";
  EXPECT_EQ(read_body(fields + length_field(body), body, 4).code, S3Code::kIncompleteBody);
}

TEST(BodyReader, MalformedHttpChunksEndTheConnection) {
  const Read read = read_body("Transfer-Encoding: chunked\r\n", "5\r\nhelloXX\r\n", 100);
  EXPECT_EQ(read.code, S3Code::kIncompleteBody);
  EXPECT_FALSE(read.is_framed);
}

TEST(BodyReader, ChecksumsOfEveryKindAreVerified) {
  struct Case {
    const char* field;
    const char* good;
  };
  // Of "123456789": the check values that the CRC catalogues publish; digests by the openssl
  // command.
  for (const Case& c :
       {Case{"x-amz-checksum-crc32", "y/Q5Jg=="}, Case{"x-amz-checksum-crc32c", "4waSgw=="},
        Case{"x-amz-checksum-crc64nvme", "rosUhgp5mIg="},
        Case{"x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="},
        Case{"x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="},
        Case{"Content-MD5", "JfnnlDI7RTiF9RgfG2JNCw=="}}) {
    const std::string fields = std::string(c.field) + ": " + c.good + "\r\n";
    EXPECT_EQ(read_body(fields + "Content-Length: 9\r\n", "123456789", 4).code, S3Code::kNone)
        << c.field;
    EXPECT_EQ(read_body(fields + "Content-Length: 9\r\n", "123456780", 9).code, S3Code::kBadDigest)
        << c.field;
  }
}

TEST(BodyReader, PayloadHashOfTheSignatureIsVerified) {
  BodyReader::Target target;
  target.expected_sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
  EXPECT_EQ(read_body("Content-Length: 5\r\n", "hello", 2, target).code, S3Code::kNone);
  EXPECT_EQ(read_body("Content-Length: 5\r\n", "hallo", 2, target).code,
            S3Code::kContentSha256Mismatch);
}

TEST(BodyReader, BadFieldsAreRefused) {
  EXPECT_EQ(read_body("Content-MD5: short\r\nContent-Length: 5\r\n", "hello", 5).code,
            S3Code::kInvalidDigest);
  EXPECT_EQ(
      read_body(std::string(kAwsHead) + "x-amz-decoded-content-length: x\r\nContent-Length: 5\r\n",
                "hello", 5)
          .code,
      S3Code::kInvalidArgument);
  BodyReader::Target target;
  target.fd = 1;
  EXPECT_EQ(read_body("", "", 1, target).code, S3Code::kMissingContentLength);
}

TEST(BodyReader, DocumentsAreBounded) {
  const std::string body((1 << 20) + 1, 'x');
  EXPECT_EQ(read_body(length_field(body), body, body.size()).code,
            S3Code::kMaxMessageLengthExceeded);
}

TEST(BodyReader, DroppedBodiesAreStillFramed) {
  BodyReader::Target target;
  target.keep = false;
  const Read read = read_body("Content-Length: 5\r\nContent-MD5: wrong\r\n", "helloX", 2, target);
  EXPECT_EQ(read.code, S3Code::kNone);
  EXPECT_EQ(read.payload, "");
  EXPECT_EQ(read.used_bytes, 5u);
}

TEST(BodyReader, FilesHaveALimit) {
  const Fd fd(::memfd_create("body", MFD_CLOEXEC));
  BodyReader::Target target;
  target.fd = fd.get();
  target.max_file_bytes = 4;
  const std::string chunked = "5\r\nhello\r\n0\r\n\r\n";
  const std::string fields = std::string(kAwsHead) + "x-amz-decoded-content-length: 5\r\n";
  for (const auto& [head, body] :
       {std::pair(length_field("hello"), std::string("hello")),
        std::pair(fields + length_field(chunked), chunked),
        std::pair(std::string("Transfer-Encoding: chunked\r\n"), chunked)}) {
    EXPECT_EQ(read_body(head, body, 100, target).code, S3Code::kEntityTooLarge) << head;
  }
  EXPECT_EQ(read_body(length_field("hell"), "hell", 100, target).code, S3Code::kNone);
}

}  // namespace
}  // namespace headrace::sim
