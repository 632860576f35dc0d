#include "shard/codec/inflate.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"
#include "headrace/inflate.h"
#include "shard/codec/stream_inflater.h"
#include "shard/testing/deflate.h"

namespace headrace::detail {
namespace {

using testing::deflate;

constexpr Compression kAll[] = {Compression::kZstd,  Compression::kGzip,   Compression::kZlib,
                                Compression::kBzip2, Compression::kBrotli, Compression::kSnappy,
                                Compression::kXz};

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Code inflate(Compression compression, const std::string& stored, std::string& raw) {
  return detail::inflate(compression, as_bytes(stored), std::as_writable_bytes(std::span(raw)))
      .code();
}

bool may_repeat(Compression c) {
  return c == Compression::kZstd || c == Compression::kGzip || c == Compression::kBzip2 ||
         c == Compression::kXz;
}

std::string counted(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(i * 7919);
  return text;
}

class Inflate : public ::testing::TestWithParam<Compression> {};

TEST_P(Inflate, GivesBackWhatWasDeflated) {
  for (const std::string& text :
       {std::string(), std::string("x"), counted(20'000), std::string(3'000'000, 'a')}) {
    std::string raw(text.size(), '\0');
    ASSERT_EQ(inflate(GetParam(), deflate(GetParam(), text), raw), Code::kOk) << text.size();
    EXPECT_EQ(raw, text);
  }
}

TEST_P(Inflate, IsFoundByItsName) {
  const std::string text = counted(100);
  std::string raw(text.size(), '\0');
  const auto stored = deflate(GetParam(), text);
  const Status status = headrace::inflate(compression_name(GetParam()), as_bytes(stored),
                                          std::as_writable_bytes(std::span(raw)));
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(raw, text);
  EXPECT_EQ(headrace::inflate("own", as_bytes(stored), {}).code(), Code::kInvalidArgument);
}

TEST_P(Inflate, WantsExactlyTheSizeExpected) {
  const std::string stored = deflate(GetParam(), std::string(1000, 'x'));
  for (const std::size_t size : {0U, 999U, 1001U, 100'000U}) {
    std::string raw(size, '\0');
    EXPECT_EQ(inflate(GetParam(), stored, raw), Code::kCorrupt) << size;
  }
}

TEST_P(Inflate, RefusesEveryCutAndWhatFollowsTheEnd) {
  const std::string text = counted(50);
  const std::string good = deflate(GetParam(), text);
  std::string raw(text.size(), '\0');
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_EQ(inflate(GetParam(), good.substr(0, size), raw), Code::kCorrupt) << size;
  EXPECT_EQ(inflate(GetParam(), good + "junk!", raw), Code::kCorrupt);
}

TEST_P(Inflate, NeverTakesDamageForAnotherSize) {
  const std::string text = counted(500);
  const std::string good = deflate(GetParam(), text);
  Random random(7);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    const std::size_t at = random.below(bad.size());
    bad[at] = static_cast<char>(bad[at] ^ (1 << random.below(8)));
    std::string raw(text.size(), '\0');
    const Code code = inflate(GetParam(), bad, raw);
    EXPECT_TRUE(code == Code::kOk || code == Code::kCorrupt || code == Code::kUnsupported) << at;
  }
}

TEST_P(Inflate, ReadsSeveralMembers) {
  const std::string a = counted(3000), b = "second";
  const std::string stored =
      deflate(GetParam(), a) + deflate(GetParam(), "") + deflate(GetParam(), b);
  std::string raw(a.size() + b.size(), '\0');
  ASSERT_EQ(inflate(GetParam(), stored, raw), may_repeat(GetParam()) ? Code::kOk : Code::kCorrupt);
  if (may_repeat(GetParam())) {
    EXPECT_EQ(raw, a + b);
  }
}

// Everything that comes out of a stream fed in pieces of random size; `code` says how it ended.
std::string inflate_in_pieces(Compression compression, const std::string& stored, Random& random,
                              Code& code) {
  auto stream = StreamInflater::create(compression);
  std::string out, room;
  std::size_t at = 0;
  code = stream ? Code::kOk : stream.error().code();
  while (code == Code::kOk) {
    const auto in =
        as_bytes(stored).subspan(at, std::min<std::size_t>(stored.size() - at, random.below(700)));
    room.resize(1 + random.below(5000));
    auto step = (*stream)->step(in, std::as_writable_bytes(std::span(room)));
    if (!step) {
      code = step.error().code();
      break;
    }
    at += step->consumed_bytes;
    out.append(room, 0, step->produced_bytes);
    if (at == stored.size() && step->produced_bytes < room.size()) break;
  }
  if (code == Code::kOk && !(*stream)->is_complete()) code = Code::kCorrupt;
  return out;
}

TEST_P(Inflate, StreamsInPiecesOfAnySize) {
  Random random(3);
  const std::string text = counted(20'000) + std::string(100'000, 'z');
  std::string stored = deflate(GetParam(), text), wanted = text;
  if (may_repeat(GetParam())) {
    stored += deflate(GetParam(), "more");
    wanted += "more";
  }
  for (int i = 0; i < 20; ++i) {
    Code code;
    const std::string out = inflate_in_pieces(GetParam(), stored, random, code);
    if (GetParam() == Compression::kSnappy) {
      EXPECT_EQ(code, Code::kUnsupported);
      continue;
    }
    ASSERT_EQ(code, Code::kOk);
    EXPECT_EQ(out, wanted);
    inflate_in_pieces(GetParam(), stored.substr(0, stored.size() - 1), random, code);
    EXPECT_EQ(code, Code::kCorrupt);
    inflate_in_pieces(GetParam(), stored + "junk", random, code);
    EXPECT_EQ(code, Code::kCorrupt);
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, Inflate, ::testing::ValuesIn(kAll), [](const auto& codec) {
  return std::string(compression_name(codec.param));
});

TEST(InflateZstd, SkipsSkippableFramesAndNeedsNoContentSize) {
  const std::string a(100'000, 'a'), b = "second", skippable("\x50\x2a\x4d\x18\x03\0\0\0xyz", 11);
  std::string raw(a.size() + b.size(), '\0');
  const std::string stored =
      testing::deflate_zstd(a, false) + skippable + deflate(Compression::kZstd, b);
  ASSERT_EQ(inflate(Compression::kZstd, stored, raw), Code::kOk);
  EXPECT_EQ(raw, a + b);
}

TEST(InflateGzip, TakesZerosBehindTheLastMember) {
  std::string raw(1, '\0');
  const std::string stored = deflate(Compression::kGzip, "x") + std::string(512, '\0');
  EXPECT_EQ(inflate(Compression::kGzip, stored, raw), Code::kOk);
  Random random(1);
  Code code;
  EXPECT_EQ(inflate_in_pieces(Compression::kGzip, stored, random, code), "x");
  EXPECT_EQ(code, Code::kOk);
}

TEST(InflateAny, RefusesWhatIsNoCompression) {
  std::string raw(1, '\0');
  for (const Compression c : {Compression::kNone, Compression::kOwn, Compression::kUnpacked}) {
    EXPECT_EQ(inflate(c, "x", raw), Code::kUnsupported);
    EXPECT_EQ(StreamInflater::create(c).error().code(), Code::kUnsupported);
  }
}

TEST(InflateZstd, RefusesAWindowBeyondTheBoundInAStream) {
  // A frame header that asks for a window of 2^30 bytes, and one raw block.
  const std::string huge("\x28\xb5\x2f\xfd\x00\xa0\x09\x00\x00x", 10);
  Random random(1);
  Code code;
  inflate_in_pieces(Compression::kZstd, huge, random, code);
  EXPECT_EQ(code, Code::kUnsupported);
}

TEST(InflateGzip, TakesZerosBetweenMembersAsTheStreamDoes) {
  Random random(4);
  const std::string stored = deflate(Compression::kGzip, "one") + std::string(700, '\0') +
                             deflate(Compression::kGzip, "two") + std::string(5, '\0');
  std::string raw(6, '\0');
  EXPECT_EQ(inflate(Compression::kGzip, stored, raw), Code::kOk);
  EXPECT_EQ(raw, "onetwo");
  Code code;
  EXPECT_EQ(inflate_in_pieces(Compression::kGzip, stored, random, code), "onetwo");
  EXPECT_EQ(code, Code::kOk);
  EXPECT_EQ(inflate(Compression::kGzip, stored + "x", raw), Code::kCorrupt);
  inflate_in_pieces(Compression::kGzip, stored + "x", random, code);
  EXPECT_EQ(code, Code::kCorrupt);
}

}  // namespace
}  // namespace headrace::detail
