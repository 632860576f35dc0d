#include "headrace/msgpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "headrace/decode.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using Type = MsgpackToken::Type;

/// A literal that may hold zeros.
template <std::size_t n>
std::string literal(const char (&text)[n]) {
  return {text, n - 1};
}

Status check(const std::string& text) {
  // Of its own, so that a sanitizer sees what reads behind the end.
  const auto bytes = std::make_unique<std::byte[]>(text.size());
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), bytes.get());
  return check_msgpack({bytes.get(), text.size()});
}

MsgpackToken first(const std::string& text) {
  MsgpackReader reader(std::as_bytes(std::span(text.data(), text.size())));
  const auto token = reader.next();
  EXPECT_TRUE(token) << text;
  return token ? *token : MsgpackToken();
}

TEST(Msgpack, ReadsNumbersOfEveryWidth) {
  EXPECT_EQ(first("\x7f").uint_value, 127U);
  EXPECT_EQ(first("\xe0").int_value, -32);
  EXPECT_EQ(first("\xcc\xff").uint_value, 255U);
  EXPECT_EQ(first(literal("\xcd\x01\x00")).uint_value, 256U);
  EXPECT_EQ(first(literal("\xce\xff\x00\x00\x00")).uint_value, 0xff000000U);
  EXPECT_EQ(first("\xcf\xff\xff\xff\xff\xff\xff\xff\xff").uint_value, ~std::uint64_t{0});
  EXPECT_EQ(first("\xd0\x80").int_value, -128);
  EXPECT_EQ(first("\xd0\x7f").type, Type::kUint);
  EXPECT_EQ(first(literal("\xd1\x80\x00")).int_value, -32768);
  EXPECT_EQ(first("\xd2\xff\xff\xff\xfe").int_value, -2);
  EXPECT_EQ(first(literal("\xd3\x80\x00\x00\x00\x00\x00\x00\x00")).int_value,
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(first(literal("\xca\x3f\x00\x00\x00")).float_value, 0.5);
  EXPECT_EQ(first(literal("\xcb\xbf\xe0\x00\x00\x00\x00\x00\x00")).float_value, -0.5);
}

TEST(Msgpack, ReadsTimestamps) {
  const MsgpackToken token = first(literal("\xd7\xff\x00\x00\x00\x08\x00\x00\x00\x05"));
  EXPECT_EQ(token.type, Type::kTimestamp);
  EXPECT_EQ(token.int_value, 5);
  EXPECT_EQ(token.nanoseconds, 2U);
  EXPECT_EQ(first(literal("\xd6\xff\xff\x00\x00\x00")).int_value, 0xff000000);
  EXPECT_EQ(
      first(literal("\xc7\x0c\xff\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff")).int_value, -1);
}

TEST(Msgpack, OneValueWithNothingBehindItIsGood) {
  for (const std::string& good :
       {literal("\xc0"), literal("\x80"), literal("\x90"),
        literal("\x82\xa1k\x01\xa1l\x93\x01\x02\x03"), literal("\xdc\x00\x01\xc3"),
        literal("\xdd\x00\x00\x00\x01\xc2"), literal("\xde\x00\x00"), literal("\xc4\x02\xff\xfe"),
        literal("\xd9\x02\xc3\xa4"), literal("\x81\x01\x80")})
    EXPECT_TRUE(check(good).ok()) << ::testing::PrintToString(good);
}

TEST(Msgpack, EverythingElseIsCorruptAndSaysWhy) {
  for (const auto& [bad, what] : std::vector<std::pair<std::string, std::string>>{
           {"", "ends inside"},
           {literal("\x92\x01"), "ends inside"},
           {literal("\x81\x01"), "ends inside"},
           {literal("\xdd\xff\xff\xff\xff"), "ends inside"},
           {literal("\xa3"
                    "ab"),
            "ends inside"},
           {literal("\xc6\xff\xff\xff\xff"), "ends inside"},
           {literal("\xc0\xc0"), "left behind"},
           {literal("\xc1"), "0xc1"},
           {literal("\xa1\xff"), "UTF-8"},
           {literal("\x81\x90\x01"), "key"},
           {literal("\x81\x80\x01"), "key"},
           {literal("\x81\xd6\xff\x00\x00\x00\x00\x01"), "key"},
           {literal("\xd4\xff\x00"), "timestamp"},
           {literal("\xd7\xff\xff\xff\xff\xff\x00\x00\x00\x00"), "nanoseconds"},
           {std::string(600, '\x91') + '\x01', "512"}}) {
    const Status status = check(bad);
    EXPECT_EQ(status.code(), Code::kCorrupt) << ::testing::PrintToString(bad);
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }
  EXPECT_TRUE(check(std::string(512, '\x91') + '\x01').ok());
}

TEST(Msgpack, ExtensionsOfApplicationsAreUnsupported) {
  const Status status =
      check(literal("\xc7\x03\x2a"
                    "abc"));
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(std::string(status.message()), HasSubstr("type 42"));
}

TEST(Msgpack, NoBytesAreReadBeyondTheEnd) {
  const std::string good =
      literal("\x84\xa1k\xcd\x01\x02\xa1l\x93\x01\xc3\xca\x00\x00\x00\x00\x05\xc4\x02xy") +
      literal(
          "\xa3"
          "ext\xd7\xff\x00\x00\x00\x08\x00\x00\x00\x05");
  ASSERT_TRUE(check(good).ok());
  Random random(6);
  for (int round = 0; round < 20000; ++round) {
    std::string text = random.below(3) == 0 ? good.substr(0, random.below(good.size() + 1)) : good;
    for (std::uint64_t flips = random.below(4); flips > 0 && !text.empty(); --flips)
      text[random.below(text.size())] = static_cast<char>(random.next());
    static_cast<void>(check(text));
  }
}

TEST(DecodeMsgpack, ChecksWhileABatchIsMade) {
  const auto columns =
      decode_msgpack(false)->bind({.name = "m", .encoding = "bytes", .dtype = {}, .shape = {}});
  ASSERT_TRUE(columns);
  const DecodedColumn& column = (*columns).front();
  EXPECT_EQ(column.output.encoding, "msgpack");
  const std::string good = literal("\x81\xa1k\x01");
  std::string out(good.size(), 'x');
  const auto room = std::as_writable_bytes(std::span(out.data(), out.size()));
  EXPECT_TRUE(
      column.decoder->decode(std::as_bytes(std::span(good.data(), good.size())), 0, room).ok());
  EXPECT_EQ(out, good);
  const std::string bad = literal("\x82\xa1k\x01");
  EXPECT_EQ(
      column.decoder->decode(std::as_bytes(std::span(bad.data(), bad.size())), 0, room).code(),
      Code::kCorrupt);
}

}  // namespace
}  // namespace headrace
