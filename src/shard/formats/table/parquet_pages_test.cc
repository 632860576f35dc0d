#include "shard/formats/table/parquet_pages.h"

#include <gtest/gtest.h>

#include <string>

#include "shard/formats/table/thrift.h"

namespace headrace::detail {
namespace {

constexpr std::uint8_t kPlainCodec = 0, kUnknownCodec = 5;
constexpr ParquetLeaf kText{.physical_type = 6};

std::string page(std::int64_t type, std::int64_t inflated_bytes, const std::string& stored) {
  ThriftWriter writer;
  writer.begin_struct();
  writer.i32_field(1, type);
  writer.i32_field(2, inflated_bytes);
  writer.i32_field(3, static_cast<std::int64_t>(stored.size()));
  writer.end_struct();
  return writer.take() + stored;
}

std::string value(std::size_t size) {
  std::string out(4, '\0');
  for (int i = 0; i < 4; ++i) out[static_cast<std::size_t>(i)] = static_cast<char>(size >> (8 * i));
  return out + std::string(size, 'v');
}

ParquetPages look(const std::string& chunk, std::uint8_t codec = kPlainCodec) {
  return look_at_pages(std::as_bytes(std::span(chunk)), kText, codec);
}

TEST(ParquetPages, FindsTheLargestPageAndTheLongestValueOfADictionary) {
  const std::string dictionary = value(3) + value(700) + value(0);
  const std::string chunk = page(2, static_cast<std::int64_t>(dictionary.size()), dictionary) +
                            page(0, 5'000, "abc") + page(3, 9'000, "de") + page(0, 10, "");
  const ParquetPages pages = look(chunk);
  EXPECT_EQ(pages.largest_bytes, 9'000U);
  EXPECT_EQ(pages.dictionary_bytes, dictionary.size());
  EXPECT_EQ(pages.longest_value_bytes, 700U);
  // What cannot be inflated bounds its values by its size.
  EXPECT_EQ(look(chunk, kUnknownCodec).longest_value_bytes, dictionary.size());
  EXPECT_EQ(look_at_pages(std::as_bytes(std::span(chunk)), {.physical_type = 1}, kPlainCodec)
                .longest_value_bytes,
            0U);
}

TEST(ParquetPages, EndsWhereItCannotGoOn) {
  const std::string whole = page(0, 100, "abc") + page(0, 200, "defg");
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    const std::uint64_t largest = look(whole.substr(0, length)).largest_bytes;
    EXPECT_TRUE(largest == 0 || largest == 100 || largest == 200) << length;
  }
  EXPECT_EQ(look(page(0, -1, "abc") + page(0, 200, "")).largest_bytes, 0U);
  EXPECT_EQ(look(std::string(100, '\xff')).largest_bytes, 0U);
}

}  // namespace
}  // namespace headrace::detail
