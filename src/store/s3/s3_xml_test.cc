#include "store/s3/s3_xml.h"

#include <gtest/gtest.h>

namespace headrace::s3 {
namespace {

std::string listing(std::string_view inside) {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
         "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
         "<Name>bucket</Name><EncodingType>url</EncodingType>" +
         std::string(inside) + "</ListBucketResult>";
}

std::string entry(std::string_view key) {
  return "<Contents><Key>" + std::string(key) +
         "</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified><ETag>&quot;abc&quot;</"
         "ETag><Size>7</Size></Contents>";
}

TEST(ListXml, ReadsObjectsPrefixesAndToken) {
  auto page = parse_list(
      listing(
          "<IsTruncated>true</IsTruncated><NextContinuationToken>1/2+3==</NextContinuationToken>" +
          entry("p/a+b%2Bc%20d%25%C3%A9") +
          "<CommonPrefixes><Prefix>p/x%3D/</Prefix></CommonPrefixes>"),
      "p/");
  ASSERT_TRUE(page.has_value()) << page.error().message();
  ASSERT_EQ(page->objects.size(), 1u);
  EXPECT_EQ(page->objects[0].key, "a b+c d%\xc3\xa9");
  EXPECT_EQ(page->objects[0].size_bytes, 7u);
  EXPECT_EQ(page->objects[0].etag, "\"abc\"");
  EXPECT_EQ(page->objects[0].modified_unix_s, 1'255'369'830);
  EXPECT_EQ(page->common_prefixes, std::vector<std::string>{"x=/"});
  EXPECT_EQ(page->continuation, "1/2+3==");
}

TEST(ListXml, LeavesOutTheRootItself) {
  auto page = parse_list(listing(entry("p/") + entry("p/a")), "p/");
  ASSERT_TRUE(page.has_value());
  ASSERT_EQ(page->objects.size(), 1u);
  EXPECT_EQ(page->objects[0].key, "a");
  EXPECT_EQ(page->continuation, "");
}

TEST(ListXml, TakesPlainKeysWhenTheServerDoesNotEscape) {
  auto page =
      parse_list("<ListBucketResult>" + entry("a+b%2B &amp; c") + "</ListBucketResult>", "");
  ASSERT_TRUE(page.has_value());
  EXPECT_EQ(page->objects[0].key, "a+b%2B & c");
}

TEST(ListXml, KeepsKeysOfSpaces) {
  auto page = parse_list("<ListBucketResult>" + entry(" ") + "</ListBucketResult>", "");
  ASSERT_TRUE(page.has_value()) << page.error().message();
  EXPECT_EQ(page->objects[0].key, " ");
}

TEST(ListXml, RefusesWhatIsNoListing) {
  for (const std::string& body :
       {std::string(), std::string("not xml"), std::string("<Other/>"),
        listing(entry("p/a")).substr(0, 200),
        listing("<Contents><Key>p/a</Key><Size>-1</Size></Contents>"),
        listing("<Contents><Size>1</Size></Contents>"), listing(entry("p/%zz")),
        listing(entry("q/a")), listing("<CommonPrefixes><Prefix>q/</Prefix></CommonPrefixes>"),
        listing("<IsTruncated>true</IsTruncated>")}) {
    auto page = parse_list(body, "p/");
    ASSERT_FALSE(page.has_value()) << body;
    EXPECT_EQ(page.error().code(), Code::kCorrupt) << body;
  }
}

TEST(ResultXml, ReadsUploadIdAndEtags) {
  EXPECT_EQ(*parse_upload_id("<InitiateMultipartUploadResult><UploadId>id/1</UploadId></"
                             "InitiateMultipartUploadResult>"),
            "id/1");
  EXPECT_EQ(*parse_result_etag("  "
                               "\n<CompleteMultipartUploadResult><ETag>&quot;a-2&quot;</ETag></"
                               "CompleteMultipartUploadResult>"),
            "\"a-2\"");
  EXPECT_EQ(*parse_result_etag("<CopyObjectResult><ETag>a</ETag></CopyObjectResult>"), "\"a\"");
}

TEST(ResultXml, RefusesOtherDocuments) {
  EXPECT_EQ(parse_upload_id("<InitiateMultipartUploadResult/>").error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_upload_id("").error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_result_etag("<Other/>").error().code(), Code::kCorrupt);
  EXPECT_EQ(parse_result_etag("<CopyObjectResult>").error().code(), Code::kCorrupt);
}

TEST(ResultXml, FindsErrorsInsideSuccess) {
  EXPECT_TRUE(
      is_error_body("\n\n<?xml version=\"1.0\"?><Error><Code>InternalError</Code></Error>"));
  EXPECT_FALSE(is_error_body(
      "<ListBucketResult><Contents><Key>&lt;Error&gt;</Key></Contents></ListBucketResult>"));
  EXPECT_FALSE(is_error_body(""));
}

TEST(ResultXml, FormatsPartsEscaped) {
  const UploadedPart parts[] = {{1, "\"a\""}, {10000, "<&"}};
  EXPECT_EQ(format_complete(parts),
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
            "<Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part>"
            "<Part><PartNumber>10000</PartNumber><ETag>&lt;&amp;</ETag></Part></"
            "CompleteMultipartUpload>");
}

}  // namespace
}  // namespace headrace::s3
