// What S3 refuses of checksums of multipart uploads, and what it computes.
#include "sim/upload_sums.h"

#include <gmock/gmock.h>

#include "sim/server_fixture.h"

namespace headrace::sim {
namespace {

using ::testing::HasSubstr;

TEST(UploadSums, TextRoundTrips) {
  for (const UploadSums& sums :
       {UploadSums{"x-amz-checksum-sha256", true}, UploadSums{"x-amz-checksum-crc64nvme", false},
        UploadSums{"", false}, UploadSums{"", true}}) {
    const UploadSums read = upload_sums_from_text(to_text(sums));
    EXPECT_EQ(read.field, sums.field);
    EXPECT_EQ(read.is_composite, sums.is_composite);
  }
  EXPECT_EQ(upload_sums_from_text("nonsense").field, "");
}

class UploadSumsTest : public ServerTest {
 protected:
  TestResponse create(const std::string& algorithm, const std::string& type = "") {
    TestRequest request{"POST", "/b/m", "uploads"};
    if (!algorithm.empty()) request.fields.emplace_back("x-amz-checksum-algorithm", algorithm);
    if (!type.empty()) request.fields.emplace_back("x-amz-checksum-type", type);
    TestResponse response = client().request(request);
    id_ = response.xml("UploadId");
    return response;
  }
  TestResponse put_part(TestFields fields) {
    TestResponse response =
        client().put("/b/m", text_, std::move(fields), "partNumber=1&uploadId=" + id_);
    etag_ = response.header("etag");
    return response;
  }
  /// With `sum` beside the ETag, and `type` of the whole.
  TestResponse complete(const std::string& sum, const std::string& type = "") {
    TestRequest request{"POST", "/b/m", "uploadId=" + id_};
    if (!type.empty()) request.fields.emplace_back("x-amz-checksum-type", type);
    request.body = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" + etag_ +
                   "</ETag>" + sum + "</Part></CompleteMultipartUpload>";
    return client().request(request);
  }
  static std::string sum_of(ChecksumKind kind) {
    auto checksum = Checksum::create(kind);
    (*checksum)->update(text_);
    return to_base64((*checksum)->finish());
  }
  static void expect_refused(const TestResponse& response, const char* why) {
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.xml("Code"), "InvalidRequest");
    EXPECT_THAT(response.xml("Message"), HasSubstr(why));
  }

  static constexpr const char* text_ = "some bytes";
  std::string id_, etag_;
};

TEST_F(UploadSumsTest, NotEveryAlgorithmCanBeOfEveryType) {
  expect_refused(create("CRC64NVME", "COMPOSITE"),
                 "The COMPOSITE checksum type cannot be used with the crc64nvme");
  expect_refused(create("SHA256", "FULL_OBJECT"),
                 "The FULL_OBJECT checksum type cannot be used with the sha256");
  expect_refused(create("SHA1", "FULL_OBJECT"), "with the sha1 checksum algorithm");
  expect_refused(create("", "COMPOSITE"), "can only be used with the x-amz-checksum-algorithm");
  expect_refused(create("MD4"), "algorithm provided is unsupported");
  EXPECT_EQ(client().get("/b", {}, "uploads=").xml("UploadId"), "");
  for (const char* algorithm : {"CRC32", "CRC32C", "SHA1", "SHA256"}) {
    EXPECT_EQ(create(algorithm).header("x-amz-checksum-type"), "COMPOSITE") << algorithm;
  }
  EXPECT_EQ(create("CRC64NVME").header("x-amz-checksum-type"), "FULL_OBJECT");
  EXPECT_EQ(create("CRC32", "FULL_OBJECT").header("x-amz-checksum-type"), "FULL_OBJECT");
}

TEST_F(UploadSumsTest, PartsHaveTheSumOfTheUpload) {
  const std::string crc32 = sum_of(ChecksumKind::kCrc32);
  create("CRC32C");
  expect_refused(put_part({{"x-amz-checksum-crc32", crc32}}),
                 "expected checksum Type: crc32c, actual checksum Type: crc32");
  expect_refused(put_part({}), "expected checksum Type: crc32c, actual checksum Type: null");
  create("CRC32C", "FULL_OBJECT");
  expect_refused(put_part({{"x-amz-checksum-crc32", crc32}}), "expected checksum Type: crc32c");
  // S3 computes the sum that it needs.
  EXPECT_EQ(put_part({}).status, 200);
  EXPECT_EQ(complete("").xml("ChecksumCRC32C"), sum_of(ChecksumKind::kCrc32c));
  create("");
  EXPECT_EQ(put_part({{"x-amz-checksum-crc32", crc32}}).status, 200);
}

TEST_F(UploadSumsTest, CompletionsRepeatTheSumsOfParts) {
  const std::string sum = sum_of(ChecksumKind::kSha256);
  create("SHA256");
  EXPECT_EQ(put_part({{"x-amz-checksum-sha256", sum}}).status, 200);
  expect_refused(complete(""),
                 "The upload was created using a sha256 checksum. The complete request must "
                 "include the checksum for each part. It was missing for part 1 in the request.");
  EXPECT_EQ(client().head("/b/m").status, 404);
  const std::string element = "<ChecksumSHA256>" + sum + "</ChecksumSHA256>";
  expect_refused(complete(element, "FULL_OBJECT"),
                 "The upload was created using the COMPOSITE checksum mode.");
  EXPECT_EQ(complete(element, "COMPOSITE").status, 200);
  create("CRC32C", "FULL_OBJECT");
  EXPECT_EQ(put_part({{"x-amz-checksum-crc32c", sum_of(ChecksumKind::kCrc32c)}}).status, 200);
  expect_refused(complete("", "COMPOSITE"), "created using the FULL_OBJECT checksum mode");
  EXPECT_EQ(complete("").status, 200);
}

TEST_F(UploadSumsTest, CopiedPartsGetTheSumOfTheUpload) {
  client().put("/b/from", text_);
  create("SHA256");
  const TestResponse part = put_part({{"x-amz-copy-source", "b/from"}});
  EXPECT_EQ(part.status, 200) << part.body;
  const std::string sum = sum_of(ChecksumKind::kSha256);
  EXPECT_EQ(part.xml("ChecksumSHA256"), sum);
  etag_ = part.xml("ETag");
  EXPECT_EQ(complete("<ChecksumSHA256>" + sum + "</ChecksumSHA256>").status, 200);
}

}  // namespace
}  // namespace headrace::sim
