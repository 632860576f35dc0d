#include "store/gcs/gcs_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/gcs/gcs_xml.h"
#include "store/vendor/error_table_checks.h"

namespace headrace::gcs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(GcsErrors, EveryRowOfTheTableHolds) {
  for (const vendor::ErrorRow& row : error_table()) {
    http::ResponseHead head;
    head.status = row.http_status;
    const std::string body = row.vendor_code.empty()
                                 ? ""
                                 : "<?xml version='1.0'?><Error><Code>" +
                                       std::string(row.vendor_code) +
                                       "</Code><Message>its words</Message></Error>";
    const Status status = error_status("GET gs://b/k", head, body, "the source");
    vendor::expect_row(row, status, "GET gs://b/k");
    const std::string message(status.message());
    if (row.advice.empty() && !body.empty()) {
      EXPECT_THAT(message, HasSubstr("its words"));
    }
    if (row.code == Code::kDenied) {
      EXPECT_THAT(message, HasSubstr("the source"));
    }
  }
}

TEST(GcsErrors, TableHasNoRowTwice) { vendor::expect_no_row_twice(error_table()); }

TEST(GcsErrors, UnknownStatusesFallIntoTheirClass) {
  const std::pair<int, Code> cases[] = {{418, Code::kInvalidArgument},
                                        {599, Code::kUnavailable},
                                        {302, Code::kUnsupported},
                                        {200, Code::kCorrupt}};
  for (const auto& [number, code] : cases) {
    http::ResponseHead head;
    head.status = number;
    EXPECT_EQ(error_status("x", head, "", "").code(), code) << number;
  }
}

TEST(GcsErrors, ReadsXmlJsonAndNeither) {
  EXPECT_EQ(
      parse_error_body("<Error><Code>A</Code><Message>m</Message><Details>d</Details></Error>")
          .message,
      "m d");
  EXPECT_EQ(parse_error_body(R"({"error":{"code":404,"message":"gone"}})").message, "gone");
  EXPECT_EQ(parse_error_body("<Error><Code>Cut").code, "Cut");
  for (const char* text : {"", "plain", "{", "[]", R"({"error":5})"})
    EXPECT_TRUE(parse_error_body(text).code.empty()) << text;
}

TEST(GcsXml, ReadsListings) {
  auto page = parse_list(
      "<?xml version='1.0'?><ListBucketResult><EncodingType>url</EncodingType>"
      "<IsTruncated>true</IsTruncated><NextContinuationToken>tok</NextContinuationToken>"
      "<Contents><Key>r/</Key><Generation>1</Generation><Size>0</Size></Contents>"
      "<Contents><Key>r/a+b%2Bc</Key><Generation>17</Generation><ETag>\"x\"</ETag><Size>5</Size>"
      "<LastModified>2019-02-01T09:00:00.123Z</LastModified></Contents>"
      "<CommonPrefixes><Prefix>r/d%2F</Prefix></CommonPrefixes></ListBucketResult>",
      "r/");
  ASSERT_TRUE(page) << page.error().message();
  ASSERT_EQ(page->objects.size(), 1U);
  EXPECT_EQ(page->objects[0].key, "a b+c");
  EXPECT_EQ(page->objects[0].etag, "17");
  EXPECT_EQ(page->objects[0].size_bytes, 5U);
  EXPECT_EQ(page->objects[0].modified_unix_s, 1'549'011'600);
  EXPECT_THAT(page->common_prefixes, ElementsAre("d/"));
  EXPECT_EQ(page->continuation, "tok");
}

TEST(GcsXml, RefusesDocumentsThatAreNotWhatWasAskedFor) {
  const std::string start = "<ListBucketResult>";
  for (const std::string& body :
       {std::string(), std::string("<html/>"), std::string("<ListBucketResult>"),
        start + "<Contents><Key>other</Key><Generation>1</Generation><Size>0</Size></Contents>"
                "</ListBucketResult>",
        start + "<Contents><Key>r/x</Key><Size>0</Size></Contents></ListBucketResult>",
        start + "<Contents><Key>r/x</Key><Generation>1</Generation></Contents></ListBucketResult>",
        start + "<IsTruncated>true</IsTruncated></ListBucketResult>"}) {
    EXPECT_EQ(parse_list(body, "r/").error().code(), Code::kCorrupt) << body;
  }
  EXPECT_EQ(parse_upload_id("<InitiateMultipartUploadResult/>").error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_parts("<x/>").error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_parts("<ListPartsResult><Part/></ListPartsResult>").error().code(),
            Code::kCorrupt);
  EXPECT_EQ(parse_uploads("<ListMultipartUploadsResult><Upload/></ListMultipartUploadsResult>", "")
                .error()
                .code(),
            Code::kCorrupt);
  EXPECT_EQ(parse_delete("<x/>").error().code(), Code::kCorrupt);
}

TEST(GcsXml, WritesAndReadsUploadsAndDeletes) {
  const UploadedPart parts[] = {{1, "\"a\""}, {2, "b"}};
  EXPECT_EQ(
      format_complete(parts),
      "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag>"
      "</Part><Part><PartNumber>2</PartNumber><ETag>b</ETag></Part></CompleteMultipartUpload>");
  const std::string keys[] = {"a<&>\t"};
  EXPECT_EQ(format_delete(keys), "<Delete><Object><Key>a&lt;&amp;&gt;&#9;</Key></Object></Delete>");
  auto failures = parse_delete(
      "<DeleteResult><Deleted><Key>a</Key></Deleted><Error><Key>b</Key><Code>AccessDenied</Code>"
      "<Message>no</Message></Error></DeleteResult>");
  ASSERT_TRUE(failures);
  ASSERT_EQ(failures->size(), 1U);
  EXPECT_EQ((*failures)[0].key, "b");
  auto page = parse_parts(
      "<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>2"
      "</NextPartNumberMarker><Part><PartNumber>2</PartNumber><ETag>\"e\"</ETag><Size>9</Size>"
      "</Part></ListPartsResult>");
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_EQ(page->next, "2");
  EXPECT_EQ(page->parts[0].size_bytes, 9U);
  auto uploads = parse_uploads(
      "<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>u</UploadId>"
      "<Initiated>2019-02-01T09:00:00Z</Initiated></Upload></ListMultipartUploadsResult>",
      "");
  ASSERT_TRUE(uploads);
  EXPECT_EQ(uploads->uploads[0].started_unix_s, 1'549'011'600);
  EXPECT_TRUE(uploads->next_key.empty());
}

}  // namespace
}  // namespace headrace::gcs
