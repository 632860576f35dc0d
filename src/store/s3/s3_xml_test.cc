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

TEST(BucketXml, ReadsNamesTimesAndToken) {
  auto page = parse_buckets(
      "<ListAllMyBucketsResult><Owner><ID>1</ID></Owner><Buckets>"
      "<Bucket><Name>one</Name><CreationDate>2009-10-12T17:50:30.000Z</CreationDate></Bucket>"
      "<Bucket><Name>two</Name></Bucket></Buckets>"
      "<ContinuationToken>two</ContinuationToken></ListAllMyBucketsResult>");
  ASSERT_TRUE(page) << page.error().message();
  ASSERT_EQ(page->buckets.size(), 2U);
  EXPECT_EQ(page->buckets[0].name, "one");
  EXPECT_EQ(page->buckets[0].created_unix_s, 1'255'369'830);
  EXPECT_EQ(page->buckets[1].created_unix_s, 0);
  EXPECT_EQ(page->continuation, "two");
  EXPECT_FALSE(parse_buckets(listing("")));
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

TEST(ResultXml, FormatsPartsEscaped) {
  const UploadedPart parts[] = {{1, "\"a\""}, {10000, "<&"}};
  EXPECT_EQ(format_complete(parts),
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
            "<Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part>"
            "<Part><PartNumber>10000</PartNumber><ETag>&lt;&amp;</ETag></Part></"
            "CompleteMultipartUpload>");
}

TEST(CompleteXml, CarriesChecksumsOfTheirKind) {
  const std::vector<UploadedPart> parts = {{1, "\"a\"", 5, "4waSgw=="}, {2, "\"b\"", 5, ""}};
  const std::string body = format_complete(parts, ChecksumKind::kCrc32c);
  EXPECT_NE(body.find("<ETag>&quot;a&quot;</ETag><ChecksumCRC32C>4waSgw==</ChecksumCRC32C></Part>"),
            std::string::npos)
      << body;
  EXPECT_NE(body.find("<ETag>&quot;b&quot;</ETag></Part>"), std::string::npos);
  EXPECT_EQ(format_complete(parts).find("Checksum"), std::string::npos);
}

TEST(PartsXml, ReadsPartsAndMarker) {
  auto page = parse_parts(
      "<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>2"
      "</NextPartNumberMarker><Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag><Size>7"
      "</Size><ChecksumCRC32C>4waSgw==</ChecksumCRC32C></Part><Part><PartNumber>2</PartNumber>"
      "<ETag>b</ETag></Part></ListPartsResult>",
      ChecksumKind::kCrc32c);
  ASSERT_TRUE(page.has_value()) << page.error().message();
  ASSERT_EQ(page->parts.size(), 2U);
  EXPECT_EQ(page->parts[0].etag, "\"a\"");
  EXPECT_EQ(page->parts[0].size_bytes, 7U);
  EXPECT_EQ(page->parts[0].checksum, "4waSgw==");
  EXPECT_EQ(page->parts[1].etag, "\"b\"");
  EXPECT_EQ(page->next_marker, 2U);
  EXPECT_EQ(parse_parts("<x/>", ChecksumKind::kNone).error().code(), Code::kCorrupt);
}

TEST(UploadsXml, ReadsUploadsBelowTheRoot) {
  auto page = parse_uploads(
      "<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
      "<NextKeyMarker>p/b%2B</NextKeyMarker><NextUploadIdMarker>id2</NextUploadIdMarker>"
      "<Upload><Key>p/a%20b</Key><UploadId>id1</UploadId><Initiated>2009-10-12T17:50:30.000Z"
      "</Initiated></Upload><Upload><Key>other</Key><UploadId>id3</UploadId></Upload>"
      "</ListMultipartUploadsResult>",
      "p/");
  ASSERT_TRUE(page.has_value()) << page.error().message();
  ASSERT_EQ(page->uploads.size(), 1U);
  EXPECT_EQ(page->uploads[0].key, "a b");
  EXPECT_EQ(page->uploads[0].upload_id, "id1");
  EXPECT_EQ(page->uploads[0].started_unix_s, 1'255'369'830);
  EXPECT_EQ(page->next_key, "p/b+");
  EXPECT_EQ(page->next_upload_id, "id2");
  EXPECT_EQ(parse_uploads("", "").error().code(), Code::kCorrupt);
}

TEST(DeleteXml, EscapesWhatXmlChanges) {
  const std::vector<std::string> keys = {"a<&>\"", "b\r\n\t"};
  EXPECT_EQ(format_delete(keys),
            "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>"
            "<Object><Key>a&lt;&amp;&gt;&quot;</Key></Object>"
            "<Object><Key>b&#13;&#10;&#9;</Key></Object></Delete>");
}

TEST(DeleteXml, ReadsTheErrors) {
  auto failures = parse_delete(
      "<DeleteResult><Deleted><Key>x</Key></Deleted><Error><Key>a&amp;b</Key><Code>AccessDenied"
      "</Code><Message>no</Message></Error></DeleteResult>");
  ASSERT_TRUE(failures.has_value());
  ASSERT_EQ(failures->size(), 1U);
  EXPECT_EQ(failures->front().key, "a&b");
  EXPECT_EQ(failures->front().error.code, "AccessDenied");
  EXPECT_TRUE(parse_delete("<DeleteResult/>")->empty());
  EXPECT_EQ(parse_delete("<html/>").error().code(), Code::kCorrupt);
}

TEST(CopyPartXml, ReadsTagAndChecksum) {
  auto part = parse_copied_part(
      "<CopyPartResult><ETag>&quot;a&quot;</ETag><ChecksumCRC64NVME>rosUhgp5mIg="
      "</ChecksumCRC64NVME></CopyPartResult>",
      ChecksumKind::kCrc64Nvme);
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->etag, "\"a\"");
  EXPECT_EQ(part->checksum, "rosUhgp5mIg=");
  EXPECT_EQ(parse_copied_part("<CopyPartResult/>", ChecksumKind::kNone).error().code(),
            Code::kCorrupt);
}

}  // namespace
}  // namespace headrace::s3
