#include "store/s3/s3_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/test_heads.h"
#include "store/vendor/error_table_checks.h"

namespace headrace::s3 {
namespace {

using testing::HasSubstr;
using testing::Not;
using vendor::Answer;

std::string xml(std::string_view code, std::string_view more = "") {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>" + std::string(code) +
         "</Code><Message>server words</Message>" + std::string(more) +
         "<RequestId>RID1</RequestId></Error>";
}

Status judge(const Answer& answer) {
  const std::string text =
      "HTTP/1.1 " + std::to_string(answer.status) + " X\r\n" + answer.fields + "\r\n";
  return error_status("GET s3://b/k [0, 8)", http::response_head(text), answer.body,
                      {"us-east-1", "environment variables"});
}

std::string words(const Answer& answer) { return std::string(judge(answer).message()); }

class EveryRow : public testing::TestWithParam<vendor::ErrorRow> {};

TEST_P(EveryRow, GivesItsCodeAndAdvice) {
  const vendor::ErrorRow& row = GetParam();
  const Status status =
      judge({row.http_status, "", row.vendor_code.empty() ? "" : xml(row.vendor_code)});
  vendor::expect_row(row, status, "GET s3://b/k [0, 8)");
}

INSTANTIATE_TEST_SUITE_P(S3Errors, EveryRow,
                         testing::ValuesIn(error_table().begin(), error_table().end()),
                         vendor::row_name);

TEST(S3Errors, TableHasNoRowTwice) { vendor::expect_no_row_twice(error_table()); }

// What callers and the retry loop rely on, spelled out apart from the table.
TEST(S3Errors, PromisedCodes) {
  const std::pair<std::string, Code> promised[] = {{"NoSuchBucket", Code::kNotFound},
                                                   {"NoSuchKey", Code::kNotFound},
                                                   {"AccessDenied", Code::kDenied},
                                                   {"InvalidAccessKeyId", Code::kDenied},
                                                   {"SignatureDoesNotMatch", Code::kDenied},
                                                   {"ExpiredToken", Code::kDenied},
                                                   {"RequestTimeTooSkewed", Code::kDenied},
                                                   {"SlowDown", Code::kThrottled},
                                                   {"InternalError", Code::kUnavailable},
                                                   {"RequestTimeout", Code::kUnavailable},
                                                   {"PreconditionFailed", Code::kChanged},
                                                   {"InvalidRange", Code::kCorrupt},
                                                   {"PermanentRedirect", Code::kInvalidArgument}};
  for (const auto& [name, code] : promised)
    EXPECT_EQ(judge({400, "", xml(name)}).code(), code) << name;
  EXPECT_EQ(judge({503, "", ""}).code(), Code::kThrottled);
  EXPECT_EQ(judge({500, "", ""}).code(), Code::kUnavailable);
  EXPECT_EQ(judge({404, "", ""}).code(), Code::kNotFound);
}

TEST(S3Errors, UnknownCodesFollowTheStatus) {
  EXPECT_EQ(judge({404, "", xml("NoSuchThing")}).code(), Code::kNotFound);
  EXPECT_EQ(judge({418, "", xml("Teapot")}).code(), Code::kInvalidArgument);
  EXPECT_EQ(judge({599, "", ""}).code(), Code::kUnavailable);
  EXPECT_EQ(judge({302, "", ""}).code(), Code::kUnsupported);
  EXPECT_EQ(judge({200, "", ""}).code(), Code::kCorrupt);
  EXPECT_EQ(judge({200, "", xml("InternalError")}).code(), Code::kUnavailable);
  EXPECT_THAT(words({418, "", xml("Teapot")}),
              HasSubstr("Teapot, the store says \"server words\""));
}

TEST(S3Errors, SkewNamesTheServersClock) {
  EXPECT_THAT(
      words({403, "Date: Wed, 01 Jan 2020 00:00:00 GMT\r\n", xml("RequestTimeTooSkewed")}),
      testing::AllOf(HasSubstr("clock is wrong"), HasSubstr("Wed, 01 Jan 2020 00:00:00 GMT")));
}

TEST(S3Errors, WrongRegionNamesTheRightOne) {
  EXPECT_THAT(words({301, "x-amz-bucket-region: eu-central-1\r\n", ""}),
              HasSubstr("AWS_REGION to \"eu-central-1\" (now \"us-east-1\")"));
  EXPECT_THAT(words({400, "", xml("AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>")}),
              HasSubstr("\"eu-west-3\""));
  EXPECT_THAT(
      words({301, "", xml("PermanentRedirect", "<Endpoint>b.s3.eu.example.com</Endpoint>")}),
      HasSubstr("b.s3.eu.example.com"));
}

TEST(S3Errors, DeniedNamesTheCredentialsUsed) {
  EXPECT_THAT(words({403, "", xml("AccessDenied")}),
              HasSubstr("credentials: environment variables"));
}

TEST(S3Errors, RequestIdComesFromHeadOrBody) {
  EXPECT_THAT(words({404, "x-amz-request-id: RID2\r\n", xml("NoSuchKey")}),
              HasSubstr("request id RID2"));
  EXPECT_THAT(words({404, "", xml("NoSuchKey")}), HasSubstr("request id RID1"));
}

TEST(S3Errors, SecretsOfTheBodyStayOut) {
  const std::string body =
      xml("SignatureDoesNotMatch",
          "<AWSAccessKeyId>AKIDSECRET</AWSAccessKeyId><StringToSign>tosign</StringToSign>"
          "<SignatureProvided>sigsig</SignatureProvided>");
  EXPECT_THAT(words({403, "", body}),
              testing::AllOf(Not(HasSubstr("AKIDSECRET")), Not(HasSubstr("tosign")),
                             Not(HasSubstr("sigsig"))));
  EXPECT_THAT(words({400, "", xml("ExpiredToken", "<Token-0>tokentoken</Token-0>")}),
              Not(HasSubstr("tokentoken")));
}

TEST(S3Errors, TextOfProxiesIsQuotedInOneShortLine) {
  const std::string message =
      words({502, "", "<html>\r\n<h1>Bad Gateway</h1>" + std::string(1000, 'x')});
  EXPECT_THAT(message, HasSubstr("the store says \"<html>  <h1>Bad Gateway</h1>"));
  EXPECT_LT(message.size(), 400u);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(S3Errors, CutOffBodyStillTellsItsCode) {
  EXPECT_EQ(judge({403, "", "<Error><Code>RequestTimeTooSkewed</Code><Message>The diff"}).code(),
            Code::kDenied);
}

}  // namespace
}  // namespace headrace::s3
