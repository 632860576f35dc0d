// Ranges, percent-encoding, URLs, dates and header fields.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/date.h"
#include "http/fields.h"
#include "http/range.h"
#include "http/uri.h"

namespace headrace::http {
namespace {

std::string resolved(std::string_view range, std::uint64_t size_bytes) {
  const auto spec = parse_range(range);
  if (!spec) return "ignored";
  const auto part = resolve_range(*spec, size_bytes);
  if (!part) return "416";
  return std::to_string(part->offset_bytes) + "+" + std::to_string(part->length_bytes);
}

TEST(Range, ResolvesAgainstTheSize) {
  EXPECT_EQ(resolved("bytes=0-0", 10), "0+1");
  EXPECT_EQ(resolved("bytes=2-5", 10), "2+4");
  EXPECT_EQ(resolved("Bytes=2-", 10), "2+8");
  EXPECT_EQ(resolved("bytes=8-100", 10), "8+2");
  EXPECT_EQ(resolved("bytes=8-18446744073709551615", 10), "8+2");
  EXPECT_EQ(resolved("bytes=-3", 10), "7+3");
  EXPECT_EQ(resolved("bytes=-30", 10), "0+10");
  EXPECT_EQ(resolved("bytes=10-", 10), "416");
  EXPECT_EQ(resolved("bytes=-0", 10), "416");
  EXPECT_EQ(resolved("bytes=0-", 0), "416");
}

TEST(Range, IgnoresWhatItDoesNotServe) {
  for (std::string_view range :
       {"bytes=5-2", "bytes=1-2,4-5", "lines=1-2", "bytes=", "bytes=-", "bytes=a-b", "bytes 1-2"}) {
    EXPECT_EQ(resolved(range, 10), "ignored") << range;
  }
}

TEST(Range, FormatsTheLastByteIncluded) {
  std::string out = "x";
  append_range(0, 1, out);
  append_range(8'388'608, 8'388'608, out);
  EXPECT_EQ(out, "xbytes=0-0bytes=8388608-16777215");
}

TEST(Uri, EscapesAllButUnreserved) {
  EXPECT_EQ(encode("a-b._~Z9/é +%", Slash::kKeep), "a-b._~Z9/%C3%A9%20%2B%25");
  EXPECT_EQ(encode("a/b", Slash::kEscape), "a%2Fb");
  EXPECT_EQ(encode("", Slash::kKeep), "");
}

TEST(Uri, DecodeUndoesEncodeForEveryByte) {
  std::string all;
  for (int c = 1; c < 256; ++c) all.push_back(static_cast<char>(c));
  EXPECT_EQ(*decode(encode(all, Slash::kEscape)), all);
  EXPECT_EQ(*decode("a+b%2b"), "a+b+");
  EXPECT_EQ(*decode("a+b%2B", Plus::kSpace), "a b+");
}

TEST(Uri, DecodeIsStrict) {
  for (std::string_view text : {"%", "%4", "a%4", "%g0", "%0g", "%00", "%-1"}) {
    EXPECT_EQ(decode(text).error().code(), Code::kInvalidArgument) << text;
  }
}

TEST(Uri, SplitsQueries) {
  auto query = parse_query("list-type=2&prefix=a%2Fb+c&uploads&&x=");
  ASSERT_TRUE(query.has_value());
  const QueryList expected = {{"list-type", "2"}, {"prefix", "a/b c"}, {"uploads", ""}, {"x", ""}};
  EXPECT_EQ(*query, expected);
  EXPECT_EQ(parse_query("a=%").error().code(), Code::kInvalidArgument);
}

TEST(Uri, ReadsEndpoints) {
  auto url = parse_http_url("HTTPS://Minio.local:9000/gateway/");
  ASSERT_TRUE(url.has_value());
  EXPECT_TRUE(url->use_tls);
  EXPECT_EQ(url->host, "Minio.local");
  EXPECT_EQ(url->port, 9000);
  EXPECT_EQ(url->path, "/gateway");
  EXPECT_EQ(url->authority(), "Minio.local:9000");
  EXPECT_EQ(parse_http_url("http://h:80")->authority(), "h");
  EXPECT_EQ(parse_http_url("https://h")->port, 443);
  EXPECT_EQ(parse_http_url("http://[::1]:9000")->host, "::1");
  EXPECT_EQ(parse_http_url("http://[::1]:9000")->authority(), "[::1]:9000");
}

TEST(Uri, RefusesOtherEndpoints) {
  for (std::string_view text :
       {"localhost:9000", "ftp://h", "http://", "http://h:0", "http://h:65536", "http://h:x",
        "http://h:", "http://u:p@h", "http://h?x", "http://[::1", "http://[::1]x", "http://a b"}) {
    EXPECT_EQ(parse_http_url(text).error().code(), Code::kInvalidArgument) << text;
  }
}

TEST(Uri, MessagesShowUrlsWithoutSecrets) {
  EXPECT_EQ(without_secrets("http://bob:hunter2@h:1/x@y?sig=abc"), "http://***@h:1/x@y?...");
  EXPECT_EQ(without_secrets("https://h/a@b"), "https://h/a@b");
  EXPECT_EQ(without_secrets("https://h?x@y"), "https://h?...");
  EXPECT_EQ(without_secrets("h:80"), "h:80");
  // A '/' or '?' that should be escaped does not end the password.
  EXPECT_EQ(without_secrets("https://u:VE/RY@h:1/x?a@b"), "https://***@h:1/x?...");
  EXPECT_EQ(without_secrets("s3://KEY:/SE/RET@b/k"), "s3://***@b/k");
  EXPECT_EQ(without_secrets("https://u:12ab?RY@h/x"), "https://***@h/x");
  EXPECT_EQ(without_secrets("https://[::1]/a@b"), "https://[::1]/a@b");
  EXPECT_EQ(without_secrets("https://[::1]:80/a@b"), "https://[::1]:80/a@b");
  // Names that stand there are none of a user.
  EXPECT_EQ(without_secrets("abfss://c@a.dfs/k?sig=x"), "abfss://c@a.dfs/k?...");
  EXPECT_EQ(without_secrets("hf://name@main"), "hf://name@main");
  EXPECT_EQ(without_secrets("hf://u:p@name"), "hf://***@name");
  for (std::string_view text :
       {"http://bob:hunter2@h", "http://h/?sig=hunter2", "https://bob:x/hunter2@h"}) {
    EXPECT_THAT(parse_http_url(text).error().message(),
                testing::Not(testing::HasSubstr("hunter2")));
  }
}

TEST(Date, RoundTripsAllForms) {
  const WallTime time(std::chrono::seconds(784'111'777));  // RFC 9110's example
  EXPECT_EQ(format_http_date(time), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(format_iso_date(time), "1994-11-06T08:49:37.000Z");
  char amz[16];
  write_amz_date(time, amz);
  EXPECT_EQ(std::string_view(amz, 16), "19941106T084937Z");
  for (std::int64_t s = 0; s < 4'000'000'000; s += 86'399 * 97) {
    const WallTime t{std::chrono::seconds(s)};
    EXPECT_EQ(parse_http_date(format_http_date(t)), t);
    EXPECT_EQ(parse_iso_date(format_iso_date(t)), t);
    write_amz_date(t, amz);
    EXPECT_EQ(parse_amz_date({amz, 16}), t);
  }
}

TEST(Date, RefusesWhatIsNoDate) {
  for (std::string_view text :
       {"", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nox 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun, 06 Nov 1994 25:49:37 GMT"}) {
    EXPECT_EQ(parse_http_date(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_iso_date("1994-11-06T08:49:37"), std::nullopt);
  EXPECT_EQ(parse_iso_date("1994-11-06T08:49:37.x1Z"), std::nullopt);
  EXPECT_TRUE(parse_iso_date("1994-11-06T08:49:37Z").has_value());
  EXPECT_EQ(parse_amz_date("19941306T084937Z"), std::nullopt);
  EXPECT_EQ(parse_amz_date("1994110T6084937Z"), std::nullopt);
}

TEST(Fields, FindWithoutRegardToCase) {
  const std::string_view fields = "Host: h\r\nX-Amz-Date:\t20150830T123600Z \r\nhost: second\r\n";
  EXPECT_EQ(find_field(fields, "HOST"), "h");
  EXPECT_EQ(find_field(fields, "x-amz-date"), "20150830T123600Z");
  EXPECT_EQ(find_field(fields, "x-amz"), "");
  EXPECT_TRUE(list_contains("gzip , Chunked", "chunked"));
  EXPECT_FALSE(list_contains("chunkedx", "chunked"));
}

}  // namespace
}  // namespace headrace::http
