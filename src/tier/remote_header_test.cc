#include "tier/remote_header.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace::tier {
namespace {

const ExtentInfo kInfo = {
    .name = {{1, 2}, 300, 40}, .object_size_bytes = 5000, .url = "s3://b/k", .etag = "\"e\""};

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(RemoteHeader, EveryFlippedBitIsSeen) {
  std::vector<std::byte> data = bytes_of("forty bytes, of which every bit matters.");
  std::vector<std::byte> header(remote_header_bytes(kInfo));
  make_remote_header(kInfo, 0, data, header);
  ASSERT_EQ(check_remote_header(kInfo, 0, data, header), 5000U);
  const auto flip_each = [&](std::vector<std::byte>& bytes) {
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      const std::byte mask{static_cast<unsigned char>(1U << (bit % 8))};
      bytes[bit / 8] ^= mask;
      EXPECT_FALSE(check_remote_header(kInfo, 0, data, header)) << bit;
      bytes[bit / 8] ^= mask;
    }
  };
  flip_each(header);
  flip_each(data);
  ASSERT_EQ(check_remote_header(kInfo, 0, data, header), 5000U);
}

TEST(RemoteHeader, IsOfOnePartOfOneExtent) {
  const std::vector<std::byte> data = bytes_of("part");
  std::vector<std::byte> header(remote_header_bytes(kInfo));
  make_remote_header(kInfo, 8, data, header);
  EXPECT_TRUE(check_remote_header(kInfo, 8, data, header));
  EXPECT_FALSE(check_remote_header(kInfo, 12, data, header));
  std::vector<ExtentInfo> others(6, kInfo);
  others[0].name.object.high = 9;
  others[1].name.object.low = 9;
  others[2].name.offset_bytes = 9;
  others[3].name.length_bytes = 9;
  others[4].url = "s3://b/j";
  others[5].etag = "\"f\"";
  for (const ExtentInfo& other : others) EXPECT_FALSE(check_remote_header(other, 8, data, header));
  ExtentInfo shifted = kInfo;  // The same letters.
  shifted.url = "s3://b/k\"";
  shifted.etag = "e\"";
  EXPECT_FALSE(check_remote_header(shifted, 8, data, header));
  EXPECT_FALSE(check_remote_header(kInfo, 8, data, std::span(header).first(header.size() - 1)));
}

TEST(ExtentParts, AreEqualAndCoverAll) {
  for (std::uint64_t length = 1; length < 300; ++length) {
    for (std::uint64_t most = 1; most < 50; ++most) {
      const ExtentParts parts(length, most);
      std::uint64_t at = 0;
      for (std::uint64_t i = 0; i < parts.count(); ++i) {
        const ExtentPart part = parts.part(i);
        ASSERT_EQ(part.from_bytes, at);
        ASSERT_GT(part.length_bytes, 0U);
        ASSERT_LE(part.length_bytes, most);
        ASSERT_TRUE(part.length_bytes == parts.part(0).length_bytes || i + 1 == parts.count());
        at += part.length_bytes;
      }
      ASSERT_EQ(at, length);
    }
  }
}

}  // namespace
}  // namespace headrace::tier
