#include "store/transfer/verdict.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::transfer {
namespace {

http::ResponseHead parse(const std::string& text) {
  static std::string kept;
  kept = text + "\r\n";
  http::ResponseHead head;
  const auto parsed = http::parse_response_head(kept, head);
  EXPECT_TRUE(parsed && *parsed == kept.size()) << text;
  return head;
}

Request get(std::uint64_t offset_bytes, std::uint64_t length_bytes, bool allow_short = false) {
  Request request;
  request.offset_bytes = offset_bytes;
  request.length_bytes = length_bytes;
  request.allow_short = allow_short;
  return request;
}

std::string partial(const std::string& range, int length) {
  return "HTTP/1.1 206 P\r\nContent-Range: bytes " + range +
         "\r\nContent-Length: " + std::to_string(length) + "\r\n";
}

TEST(Verdict, RangeThatWasAskedGoesIntoTheSlab) {
  const Verdict verdict = judge_transfer(get(100, 50), parse(partial("100-149/1000", 50)));
  EXPECT_EQ(verdict.use, BodyUse::kSlab);
  EXPECT_EQ(verdict.body_bytes, 50U);
  EXPECT_EQ(verdict.object_size_bytes, 1000U);
}

TEST(Verdict, UnknownTotalIsAllowed) {
  const Verdict verdict = judge_transfer(get(100, 50), parse(partial("100-149/*", 50)));
  EXPECT_EQ(verdict.use, BodyUse::kSlab);
  EXPECT_EQ(verdict.object_size_bytes, 0U);
}

TEST(Verdict, ShortRangeNeedsPermissionAndTheObjectsEnd) {
  EXPECT_EQ(judge_transfer(get(100, 50, true), parse(partial("100-119/120", 20))).body_bytes, 20U);
  EXPECT_EQ(judge_transfer(get(100, 50, false), parse(partial("100-119/120", 20))).status.code(),
            Code::kCorrupt);
  EXPECT_EQ(judge_transfer(get(100, 50, true), parse(partial("100-119/1000", 20))).status.code(),
            Code::kCorrupt);
  EXPECT_EQ(judge_transfer(get(100, 50, true), parse(partial("100-119/*", 20))).status.code(),
            Code::kCorrupt);
}

TEST(Verdict, RangesThatWereNotAskedAreCorrupt) {
  for (const char* range : {"0-49/1000", "101-150/1000", "100-150/1000"}) {
    EXPECT_EQ(judge_transfer(get(100, 50, true), parse(partial(range, 50))).status.code(),
              Code::kCorrupt)
        << range;
  }
}

TEST(Verdict, WholeObjectAnswersOnlyARequestFromItsStart) {
  const std::string whole = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n";
  EXPECT_EQ(judge_transfer(get(0, 50), parse(whole)).use, BodyUse::kSlab);
  EXPECT_EQ(judge_transfer(get(0, 60, true), parse(whole)).body_bytes, 50U);
  EXPECT_EQ(judge_transfer(get(0, 60), parse(whole)).status.code(), Code::kCorrupt);
  EXPECT_EQ(judge_transfer(get(0, 40), parse(whole)).status.code(), Code::kUnsupported);
  EXPECT_EQ(judge_transfer(get(10, 40), parse(whole)).status.code(), Code::kUnsupported);
  EXPECT_EQ(judge_transfer(get(0, 50), parse("HTTP/1.1 200 OK\r\n")).status.code(), Code::kCorrupt);
}

TEST(Verdict, EmptyObjectIsAnEmptyShortAnswer) {
  const Verdict verdict =
      judge_transfer(get(0, 60, true), parse("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"));
  EXPECT_EQ(verdict.use, BodyUse::kNone);
  EXPECT_TRUE(verdict.status.ok());
}

TEST(Verdict, UnsatisfiableRange) {
  const std::string past = "HTTP/1.1 416 R\r\nContent-Length: 0\r\nContent-Range: bytes */80\r\n";
  const Verdict verdict = judge_transfer(get(80, 10, true), parse(past));
  EXPECT_TRUE(verdict.status.ok());
  EXPECT_EQ(verdict.object_size_bytes, 80U);
  EXPECT_EQ(judge_transfer(get(80, 10), parse(past)).status.code(), Code::kCorrupt);
  // A refusal that contradicts itself is the protocol's to explain.
  EXPECT_EQ(judge_transfer(get(70, 10, true), parse(past)).use, BodyUse::kError);
}

TEST(Verdict, OtherStatusesAreErrorsToAskTheProtocolAbout) {
  for (const int status : {201, 204, 301, 304, 400, 403, 404, 412, 429, 500, 503}) {
    const std::string text = "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: 0\r\n";
    EXPECT_EQ(judge_transfer(get(0, 10), parse(text)).use, BodyUse::kError) << status;
  }
}

TEST(Verdict, UploadsAreDoneWithAny2xx) {
  Request put;
  put.op = Op::kPut;
  EXPECT_EQ(judge_transfer(put, parse("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")).use,
            BodyUse::kAnswer);
  EXPECT_EQ(judge_transfer(put, parse("HTTP/1.1 412 P\r\nContent-Length: 0\r\n")).use,
            BodyUse::kError);
}

TEST(Verdict, CallsKnowAnswersWithoutBody) {
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n";
  EXPECT_EQ(judge_call(parse(ok), false).use, BodyUse::kAnswer);
  EXPECT_EQ(judge_call(parse(ok), true).use, BodyUse::kNone);
  EXPECT_EQ(judge_call(parse("HTTP/1.1 204 N\r\n"), false).use, BodyUse::kNone);
  EXPECT_EQ(judge_call(parse("HTTP/1.1 404 N\r\nContent-Length: 9\r\n"), true).use,
            BodyUse::kError);
}

TEST(Verdict, UnsatisfiedTotals) {
  EXPECT_EQ(unsatisfied_total("bytes */0"), 0U);
  EXPECT_EQ(unsatisfied_total("bytes */18446744073709551615"), ~std::uint64_t{0});
  for (const char* text :
       {"", "bytes */", "bytes */*", "bytes */1x", "bytes 0-1/2", "bytes */18446744073709551616"}) {
    EXPECT_FALSE(unsatisfied_total(text)) << text;
  }
}

TEST(Verdict, RetryAfterInSeconds) {
  const auto of = [](const std::string& value) {
    return retry_after(parse("HTTP/1.1 503 S\r\nRetry-After: " + value + "\r\n"));
  };
  EXPECT_EQ(of("7"), std::chrono::seconds(7));
  EXPECT_EQ(of("999999"), std::chrono::hours(1));
  EXPECT_FALSE(of("-1"));
  EXPECT_FALSE(of("Fri, 31 Dec 1999 23:59:59 GMT"));
  EXPECT_FALSE(retry_after(parse("HTTP/1.1 503 S\r\n")));
}

TEST(Verdict, RetryAfterOfARateLimit) {
  const auto of = [](const std::string& value) {
    return retry_after(parse("HTTP/1.1 429 T\r\nRateLimit: " + value + "\r\n"));
  };
  EXPECT_EQ(of("\"api\";r=0;t=55"), std::chrono::seconds(55));
  EXPECT_EQ(of("\"pages\";r=9;t=200, \"api\";r=0;t=7;x=1, \"r\";r=0;t=5"), std::chrono::seconds(7));
  for (const char* text :
       {"\"api\";r=3;t=55", "\"api\";r=0;t=", "\"api\";r=0;w=1", "\"api\"", ";r=0;"}) {
    EXPECT_FALSE(of(text)) << text;
  }
  EXPECT_EQ(retry_after(parse("HTTP/1.1 429 T\r\nRetry-After: 2\r\nRateLimit: \"a\";r=0;t=9\r\n")),
            std::chrono::seconds(2));
}

}  // namespace
}  // namespace headrace::transfer
