#include "store/s3/s3_checksum.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "http/test_heads.h"

namespace headrace::s3 {
namespace {

std::string text_of(ChecksumKind kind, std::string_view bytes) {
  std::string text;
  vendor::append_checksum_text(kind, vendor::checksum_value(kind, std::as_bytes(std::span(bytes))),
                               text);
  return text;
}

Checksum announced(const std::string& head_text) {
  return announced_checksum(http::response_head(head_text));
}

TEST(S3Checksum, WritesBase64OfTheBigEndianSum) {
  EXPECT_EQ(text_of(ChecksumKind::kCrc32c, "123456789"), "4waSgw==");         // 0xe3069283
  EXPECT_EQ(text_of(ChecksumKind::kCrc64Nvme, "123456789"), "rosUhgp5mIg=");  // 0xae8b14860a799888
}

TEST(S3Checksum, ReadsWhatItWrites) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value =
        random.below(std::uint64_t{1} << 32) << 32 | random.below(std::uint64_t{1} << 32);
    std::string wide, narrow;
    vendor::append_checksum_text(ChecksumKind::kCrc64Nvme, value, wide);
    vendor::append_checksum_text(ChecksumKind::kCrc32c, value & 0xffffffff, narrow);
    ASSERT_EQ(vendor::parse_checksum_text(ChecksumKind::kCrc64Nvme, wide), value);
    ASSERT_EQ(vendor::parse_checksum_text(ChecksumKind::kCrc32c, narrow), value & 0xffffffff);
  }
  for (const char* bad : {"", "4waSgw=", "4waSgw==-3", "4waSg===", "4wa$gw==", "rosUhgp5mIg="})
    EXPECT_FALSE(vendor::parse_checksum_text(ChecksumKind::kCrc32c, bad)) << bad;
  EXPECT_FALSE(vendor::parse_checksum_text(ChecksumKind::kNone, "4waSgw=="));
}

TEST(S3Checksum, SumOfAllIsThatOfThePartsInOrder) {
  for (const ChecksumKind kind : {ChecksumKind::kCrc32c, ChecksumKind::kCrc64Nvme}) {
    std::vector<UploadedPart> parts = {{1, "\"a\"", 4, text_of(kind, "1234")},
                                       {2, "\"b\"", 5, text_of(kind, "56789")}};
    EXPECT_EQ(
        vendor::combined_checksum(kind, parts),
        vendor::checksum_value(kind, std::as_bytes(std::span(std::string_view("123456789")))));
    parts[1].size_bytes = 0;
    EXPECT_FALSE(vendor::combined_checksum(kind, parts));
    parts[1] = {2, "\"b\"", 5, ""};
    EXPECT_FALSE(vendor::combined_checksum(kind, parts));
  }
  EXPECT_FALSE(vendor::combined_checksum(ChecksumKind::kCrc32c, {}));
}

TEST(S3Checksum, AHeadTellsTheSumOfTheWholeObjectUnlessItIsASumOfSums) {
  const auto told = [](const std::string& fields) {
    const std::string text = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" + fields + "\r\n";
    return object_checksum(http::response_head(text));
  };
  EXPECT_EQ(told("x-amz-checksum-crc32c: 4waSgw==\r\n").value, 0xe3069283U);
  const Checksum full =
      told("x-amz-checksum-crc64nvme: rosUhgp5mIg=\r\nx-amz-checksum-type: FULL_OBJECT\r\n");
  EXPECT_EQ(full.kind, ChecksumKind::kCrc64Nvme);
  EXPECT_EQ(full.value, 0xae8b14860a799888U);
  for (const char* fields :
       {"", "x-amz-checksum-crc32c: 4waSgw==-3\r\n", "x-amz-checksum-crc32: AAAAAA==\r\n",
        "x-amz-checksum-crc32c: 4waSgw==\r\nx-amz-checksum-type: COMPOSITE\r\n"})
    EXPECT_EQ(told(fields).kind, ChecksumKind::kNone) << fields;
}

TEST(S3Checksum, WholeObjectsAreCompared) {
  const Checksum plain =
      announced("HTTP/1.1 200 OK\r\ncontent-length: 9\r\nx-amz-checksum-crc32c: 4waSgw==\r\n\r\n");
  EXPECT_EQ(plain.kind, ChecksumKind::kCrc32c);
  EXPECT_EQ(plain.value, 0xe3069283U);
  const Checksum covered = announced(
      "HTTP/1.1 206 Partial\r\ncontent-length: 9\r\ncontent-range: bytes 0-8/9\r\n"
      "x-amz-checksum-type: FULL_OBJECT\r\nx-amz-checksum-crc64nvme: rosUhgp5mIg=\r\n\r\n");
  EXPECT_EQ(covered.kind, ChecksumKind::kCrc64Nvme);
  EXPECT_EQ(covered.value, 0xae8b14860a799888U);
}

TEST(S3Checksum, SumsOfMoreThanTheBodyAreNotCompared) {
  const std::string range = "HTTP/1.1 206 Partial\r\ncontent-range: bytes 0-8/100\r\n";
  const std::string sum = "x-amz-checksum-crc32c: 4waSgw==\r\n\r\n";
  EXPECT_EQ(announced(range + sum).kind, ChecksumKind::kNone);
  EXPECT_EQ(announced(range + "x-amz-checksum-type: FULL_OBJECT\r\n" + sum).kind,
            ChecksumKind::kNone);
  EXPECT_EQ(announced("HTTP/1.1 206 Partial\r\ncontent-range: bytes 0-8/*\r\n" + sum).kind,
            ChecksumKind::kNone);
  EXPECT_EQ(announced("HTTP/1.1 206 Partial\r\n" + sum).kind, ChecksumKind::kNone);
  EXPECT_EQ(announced("HTTP/1.1 200 OK\r\nx-amz-checksum-type: COMPOSITE\r\n"
                      "x-amz-checksum-crc32c: 4waSgw==-2\r\n\r\n")
                .kind,
            ChecksumKind::kNone);
  EXPECT_EQ(announced("HTTP/1.1 404 No\r\n" + sum).kind, ChecksumKind::kNone);
}

TEST(S3Checksum, ThePartsOfAnObjectWithASumOfSumsAreCompared) {
  const Checksum part = announced(
      "HTTP/1.1 206 Partial\r\ncontent-range: bytes 0-8/100\r\nx-amz-checksum-type: COMPOSITE\r\n"
      "x-amz-checksum-crc32c: 4waSgw==\r\n\r\n");
  EXPECT_EQ(part.value, 0xe3069283U);
}

}  // namespace
}  // namespace headrace::s3
