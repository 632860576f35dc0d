#include "store/azure/azure_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/test_heads.h"
#include "store/vendor/error_table_checks.h"

namespace headrace::azure {
namespace {

using testing::HasSubstr;
using testing::Not;
using vendor::Answer;

std::string code_field(std::string_view code) {
  return code.empty() ? "" : "x-ms-error-code: " + std::string(code) + "\r\n";
}

std::string xml(std::string_view code, std::string_view message = "server words\nRequestId:1") {
  return "\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>" + std::string(code) +
         "</Code><Message>" + std::string(message) + "</Message></Error>";
}

Status judge(const Answer& answer) {
  const std::string text = "HTTP/1.1 " + std::to_string(answer.status) + " X\r\n" + answer.fields +
                           "x-ms-request-id: RID1\r\n\r\n";
  return error_status("GET az://a/c/k [0, 8)", http::response_head(text), answer.body,
                      "the test's key");
}

std::string words(const Answer& answer) { return std::string(judge(answer).message()); }

class EveryAzureRow : public testing::TestWithParam<vendor::ErrorRow> {};

TEST_P(EveryAzureRow, GivesItsCodeAndAdvice) {
  const vendor::ErrorRow& row = GetParam();
  const Status status = judge({row.http_status, code_field(row.vendor_code), ""});
  vendor::expect_row(row, status, "GET az://a/c/k [0, 8)");
  EXPECT_EQ(code_for(row.vendor_code, row.http_status), row.code);
}

INSTANTIATE_TEST_SUITE_P(AzureErrors, EveryAzureRow,
                         testing::ValuesIn(error_table().begin(), error_table().end()),
                         vendor::row_name);

TEST(AzureErrors, TableHasNoRowTwice) { vendor::expect_no_row_twice(error_table()); }

// What callers and the retry loop rely on, spelled out apart from the table.
TEST(AzureErrors, PromisedCodes) {
  const std::pair<std::string, Code> promised[] = {
      {"BlobNotFound", Code::kNotFound},         {"ContainerNotFound", Code::kNotFound},
      {"AuthenticationFailed", Code::kDenied},   {"ServerBusy", Code::kThrottled},
      {"OperationTimedOut", Code::kUnavailable}, {"InternalError", Code::kUnavailable},
      {"ConditionNotMet", Code::kChanged},       {"BlobAlreadyExists", Code::kChanged},
      {"InvalidRange", Code::kCorrupt},          {"InvalidBlockList", Code::kInvalidArgument}};
  for (const auto& [name, code] : promised)
    EXPECT_EQ(judge({400, code_field(name), ""}).code(), code) << name;
  for (const int status : {429, 503}) EXPECT_EQ(judge({status, "", ""}).code(), Code::kThrottled);
  for (const int status : {408, 500, 502, 504, 599})
    EXPECT_EQ(judge({status, "", ""}).code(), Code::kUnavailable) << status;
  EXPECT_EQ(judge({418, "", ""}).code(), Code::kInvalidArgument);
  EXPECT_EQ(judge({302, "", ""}).code(), Code::kUnsupported);
  EXPECT_EQ(judge({200, "", ""}).code(), Code::kCorrupt);
}

TEST(AzureErrors, TakesTheCodeFromTheBodyWhenNoFieldHasIt) {
  EXPECT_EQ(judge({500, "", xml("ServerBusy")}).code(), Code::kThrottled);
}

TEST(AzureErrors, QuotesTheServiceOnlyWhereItHasNoAdvice) {
  EXPECT_THAT(words({400, code_field("InvalidInput"), xml("InvalidInput")}),
              HasSubstr("the service says \"server words\" (HTTP 400, request id RID1)"));
  const std::string denied = words({403, code_field("AuthenticationFailed"),
                                    xml("AuthenticationFailed", "The string to sign was sEcReT")});
  EXPECT_THAT(denied, Not(HasSubstr("sEcReT")));
  EXPECT_THAT(denied, HasSubstr("credentials: the test's key"));
}

TEST(AzureErrors, SurvivesAnyBody) {
  for (const std::string body : {"<Error><Code>ServerB", "<", "\xff\xfe", "<html><body>503</body>",
                                 "<Error/>", "not xml\r\nat all"}) {
    EXPECT_EQ(judge({503, "", body}).code(), Code::kThrottled) << body;
  }
}

}  // namespace
}  // namespace headrace::azure
