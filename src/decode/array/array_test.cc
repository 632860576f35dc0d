#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/random.h"
#include "headrace/decode.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

OutputColumn bytes_column() { return {.name = "c", .encoding = "bytes", .dtype = {}, .shape = {}}; }

std::string npy(const std::string& header, const std::string& data) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file.push_back(static_cast<char>(header.size() & 0xff));
  file.push_back(static_cast<char>(header.size() >> 8));
  return file + header + data;
}

std::string good_npy() {
  std::string data(24, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i);
  return npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }    \n", data);
}

std::shared_ptr<const ValueDecoder> npy_decoder() {
  auto decode = decode_npy({.dtype = "float32", .item_bytes = 4, .shape = {2, 3}}, "<f4");
  EXPECT_TRUE(decode);
  auto column = (*decode)->bind(bytes_column());
  EXPECT_TRUE(column);
  EXPECT_EQ(column->front().output.fixed_size_bytes, 24U);
  EXPECT_EQ(column->front().output.encoding, "ndarray:float32:2,3");
  return column->front().decoder;
}

TEST(DecodeNpy, GivesTheNumbers) {
  const auto decoder = npy_decoder();
  std::string out(24, 'x');
  ASSERT_TRUE(decoder
                  ->decode(bytes_of(good_npy()), 0,
                           std::as_writable_bytes(std::span(out.data(), out.size())))
                  .ok());
  EXPECT_EQ(out, good_npy().substr(good_npy().size() - 24));
}

TEST(DecodeNpy, RefusesWhatIsAnotherArray) {
  const auto decoder = npy_decoder();
  const std::string data(24, '\0');
  for (const auto& [header, what] : {
           std::pair("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", "dtype"),
           std::pair("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", "dtype"),
           std::pair("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", "shape"),
           std::pair("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 30), }", "shape"),
           std::pair("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", "order"),
           std::pair("{'descr': '<f4'", "shape"),
           std::pair("", "dtype"),
       }) {
    const auto needs = decoder->needs(bytes_of(npy(header, data)));
    ASSERT_FALSE(needs) << header;
    EXPECT_EQ(needs.error().code(), Code::kCorrupt);
    EXPECT_THAT(std::string(needs.error().message()), HasSubstr(what));
  }
}

TEST(DecodeNpy, NoBytesAreReadBeyondTheEnd) {
  const auto decoder = npy_decoder();
  Random random(3);
  std::string out(24, 'x');
  for (int round = 0; round < 20000; ++round) {
    std::string file = good_npy().substr(0, random.below(good_npy().size() + 1));
    if (!file.empty() && random.below(2) == 0)
      file[random.below(file.size())] = static_cast<char>(random.next());
    file.shrink_to_fit();  // So that a sanitizer sees a read behind it.
    static_cast<void>(decoder->needs(bytes_of(file)));
    static_cast<void>(decoder->decode(bytes_of(file), 0,
                                      std::as_writable_bytes(std::span(out.data(), out.size()))));
  }
}

TEST(DecodeViews, OnlyOfBytesAndText) {
  for (const char* encoding : {"bytes", "str", "jpeg"}) {
    OutputColumn column = bytes_column();
    column.encoding = encoding;
    EXPECT_EQ(decode_as("json")->bind(column)->front().output.encoding, "json");
  }
  for (const char* encoding : {"ndarray:uint16", "list[bytes]", "pkl", "pil", "str_int"}) {
    OutputColumn column = bytes_column();
    column.encoding = encoding;
    const auto refused = decode_as("json")->bind(column);
    ASSERT_FALSE(refused) << encoding;
    EXPECT_THAT(std::string(refused.error().message()), HasSubstr(encoding));
  }
  OutputColumn numbers = bytes_column();
  numbers.dtype = "int64";
  EXPECT_FALSE(decode_as("str")->bind(numbers));
}

TEST(DecodeViews, OfTextAreUtf8) {
  for (const char* encoding : {"str", "json"}) {
    auto column = decode_as(encoding)->bind(bytes_column());
    const auto decoder = column->front().decoder;
    ASSERT_NE(decoder, nullptr) << encoding;
    for (const std::string good : {"", "\xc3\xa4", "{"}) {
      std::string out((*decoder->needs(bytes_of(good))).output_bytes, 'x');
      EXPECT_TRUE(decoder->decode(bytes_of(good), 0, std::as_writable_bytes(std::span(out))).ok());
      EXPECT_EQ(out, good);
    }
    for (const std::string bad : {"\xff", "ab\xc3", "\xed\xa0\x80"}) {
      std::string out(bad.size(), 'x');
      EXPECT_EQ(decoder->decode(bytes_of(bad), 0, std::as_writable_bytes(std::span(out))).code(),
                Code::kCorrupt);
    }
  }
  EXPECT_EQ(decode_as("npy")->bind(bytes_column())->front().decoder, nullptr);
}

TEST(DecodeArrays, HaveSidesAndADtype) {
  EXPECT_TRUE(decode_array({.dtype = "uint8", .item_bytes = 1, .shape = {}}));
  for (const ArrayType& wrong : {ArrayType{"uint8", 1, {2, 0}}, ArrayType{"uint8", 0, {2}},
                                 ArrayType{"", 1, {2}}, ArrayType{"f8", 8, {1U << 31, 1U << 31}}})
    EXPECT_FALSE(decode_array(wrong));
}

/// 16-bit PCM.
std::string wav(std::uint16_t channels, const std::string& data) {
  const auto number = [](std::uint64_t value, int size) {
    std::string text;
    for (int i = 0; i < size; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
    return text;
  };
  const std::string format = number(1, 2) + number(channels, 2) + number(16000, 4) +
                             number(16000U * channels * 2, 4) + number(channels * 2U, 2) +
                             number(16, 2);
  return "RIFF" + number(36 + data.size(), 4) + "WAVEfmt " + number(16, 4) + format + "data" +
         number(data.size(), 4) + data;
}

TEST(DecodeAudio, NoBytesAreReadBeyondTheEndAndNothingLeaks) {
  const auto column = (*decode_audio({}))->bind(bytes_column());
  ASSERT_TRUE(column);
  const ValueDecoder& decoder = *(*column).front().decoder;
  Random random(4);
  const std::string good = wav(2, std::string(400, '\x11'));
  int decoded = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string file = random.below(3) == 0 ? good.substr(0, random.below(good.size() + 1)) : good;
    for (std::uint64_t flips = random.below(4); flips > 0 && !file.empty(); --flips)
      file[random.below(file.size())] = static_cast<char>(random.next());
    file.shrink_to_fit();
    const auto needs = decoder.needs(bytes_of(file));
    // A header may claim what no machine has: the loader asks for the memory, and is refused.
    if (!needs || (*needs).output_bytes > (1U << 24)) continue;
    std::string out((*needs).output_bytes, 'x');
    decoded +=
        decoder.decode(bytes_of(file), 0, std::as_writable_bytes(std::span(out.data(), out.size())))
            .ok();
  }
  EXPECT_GT(decoded, 300);
}

TEST(DecodeKey, DependsOnEachOfItsParts) {
  const std::uint64_t key = decode_key(1, 2, 3);
  EXPECT_EQ(key, decode_key(1, 2, 3));
  EXPECT_NE(key, decode_key(2, 2, 3));
  EXPECT_NE(key, decode_key(1, 3, 3));
  EXPECT_NE(key, decode_key(1, 2, 4));
  EXPECT_NE(decode_key(0, 0, 1), decode_key(0, 1, 0));
  // Written down, since augmentation must not change from one version to the next.
  EXPECT_EQ(decode_key(17, 3, 12345), std::uint64_t{4895598493359542233});
}

}  // namespace
}  // namespace headrace
