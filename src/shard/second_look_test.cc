#include "headrace/second_look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

using ::testing::HasSubstr;
using Verdict = SecondLook::Verdict;

TEST(SecondLook, BytesThatComeTwiceTheSameAreTheDatas) {
  SecondLook look;
  EXPECT_TRUE(look.is_empty());
  EXPECT_EQ(look.take(7), Verdict::kReadAgain);
  EXPECT_EQ(look.take(7), Verdict::kData);
}

TEST(SecondLook, TheTwoNeedNotFollowEachOther) {
  SecondLook look;
  EXPECT_EQ(look.take(7), Verdict::kReadAgain);
  EXPECT_EQ(look.take(8), Verdict::kReadAgain);
  EXPECT_EQ(look.take(9), Verdict::kReadAgain);
  EXPECT_EQ(look.take(7), Verdict::kData);
}

TEST(SecondLook, GivesUpOnBytesThatAlwaysDiffer) {
  SecondLook look;
  for (std::uint64_t i = 1; i < SecondLook::kMostReads; ++i)
    EXPECT_EQ(look.take(i), Verdict::kReadAgain);
  EXPECT_EQ(look.take(99), Verdict::kNeverSame);
  const Status error = SecondLook::never_same(Status(Code::kCorrupt, "crc"));
  EXPECT_EQ(error.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(error.message()), HasSubstr("crc"));
}

TEST(SecondLook, EveryBitCounts) {
  std::string bytes(1000, 'x');
  const std::uint64_t digest = SecondLook::digest_of(std::as_bytes(std::span(bytes)));
  bytes[999] ^= 1;
  EXPECT_NE(SecondLook::digest_of(std::as_bytes(std::span(bytes))), digest);
}

}  // namespace
}  // namespace headrace
