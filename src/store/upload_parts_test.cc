#include "store/upload_parts.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(UploadParts, HaveTheSizeThatIsWantedWhileTheyAreFewEnough) {
  StoreTraits traits;
  EXPECT_EQ(upload_part_bytes(0, 8 * kMiB, traits), 8 * kMiB);
  EXPECT_EQ(upload_part_bytes(80'000 * kMiB, 8 * kMiB, traits), 8 * kMiB);
  EXPECT_EQ(upload_part_bytes(80'000 * kMiB + 1, 8 * kMiB, traits), 9 * kMiB);
  EXPECT_EQ(upload_part_bytes(1000, 100, traits), 100U) << "no MiB where none is needed";
}

TEST(UploadParts, AreAsManyAsTheStoreTakes) {
  StoreTraits traits;
  traits.max_parts = 7;
  for (std::uint64_t size = 1; size < 100 * kMiB; size = size * 3 + 1) {
    const std::uint64_t part = upload_part_bytes(size, 1000, traits);
    EXPECT_LE((size + part - 1) / part, 7U) << size;
  }
}

TEST(UploadParts, AreAsLargeAsTheStoreWants) {
  StoreTraits traits;
  traits.min_part_bytes = 5 * kMiB;
  EXPECT_EQ(upload_part_bytes(6 * kMiB, kMiB, traits), 5 * kMiB);
}

TEST(UploadParts, WhatHasArrivedIsNoted) {
  Completion done;
  done.etag = "e";
  done.checksum = "s";
  const UploadedPart part = arrived_part(3, 77, done);
  EXPECT_EQ(part.part_number, 3U);
  EXPECT_EQ(part.etag, "e");
  EXPECT_EQ(part.size_bytes, 77U);
  EXPECT_EQ(part.checksum, "s");
}

}  // namespace
}  // namespace headrace
