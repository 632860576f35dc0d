#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "base/random.h"
#include "headrace/decode.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using Kind = TfFeature::Kind;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text.push_back(static_cast<char>(value | 0x80));
  text.push_back(static_cast<char>(value));
  return text;
}

/// Field `number` with `bytes`.
std::string field(int number, const std::string& bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string int64_list(const std::vector<std::int64_t>& values) {
  std::string packed;
  for (const std::int64_t value : values) packed += varint(static_cast<std::uint64_t>(value));
  return field(3, field(1, packed));
}

std::string float_list(const std::vector<float>& values) {
  std::string packed(values.size() * 4, '\0');
  std::memcpy(packed.data(), values.data(), packed.size());
  return field(2, field(1, packed));
}

std::string bytes_list(const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += field(1, value);
  return field(1, list);
}

/// A map entry; `feature` is the Feature's bytes.
std::string entry(const std::string& key, const std::string& feature) {
  return field(1, field(1, key) + field(2, feature));
}

std::string example(const std::string& entries) { return field(1, entries); }

DecodedColumns bind(std::vector<TfFeature> features) {
  auto decode = decode_tf_example(std::move(features));
  EXPECT_TRUE(decode);
  auto columns = (*decode)->bind({.name = "data", .encoding = "bytes", .dtype = {}, .shape = {}});
  EXPECT_TRUE(columns);
  return *std::move(columns);
}

/// What a column's decoder makes of a record.
Result<std::string> decoded(const DecodedColumn& column, const std::string& record) {
  // Of their own, so that a sanitizer sees what reads or writes behind the end.
  const auto value = std::make_unique<std::byte[]>(record.size());
  std::copy_n(bytes_of(record).data(), record.size(), value.get());
  HEADRACE_TRY_ASSIGN(const DecodeNeeds needs, column.decoder->needs({value.get(), record.size()}));
  const auto out = std::make_unique<std::byte[]>(needs.output_bytes);
  HEADRACE_TRY(
      column.decoder->decode({value.get(), record.size()}, 0, {out.get(), needs.output_bytes}));
  return std::string(reinterpret_cast<const char*>(out.get()), needs.output_bytes);
}

std::string decoded_text(const TfFeature& feature, const std::string& record) {
  auto text = decoded(bind({feature}).front(), record);
  return text ? *text : "error: " + std::string(text.error().message());
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(TfExample, BecomesAColumnAFeature) {
  const std::string record =
      example(entry("label", int64_list({7})) + entry("box", float_list({0.5F, 1, 2, 4})) +
              entry("name", bytes_list({"cat"})) + entry("tokens", int64_list({1, -1, 300})) +
              entry("parts", bytes_list({"ab", "", "c"})));
  const DecodedColumns columns = bind({{.name = "label", .kind = Kind::kInt64},
                                       {.name = "box", .kind = Kind::kFloat, .shape = {2, 2}},
                                       {.name = "name"},
                                       {.name = "tokens", .kind = Kind::kInt64, .is_list = true},
                                       {.name = "parts", .is_list = true}});
  ASSERT_EQ(columns.size(), 5U);
  EXPECT_EQ(columns[0].output.encoding, "ndarray:int64");
  EXPECT_EQ(columns[1].output.encoding, "ndarray:float32:2,2");
  EXPECT_EQ(columns[1].output.fixed_size_bytes, 16U);
  EXPECT_EQ(columns[2].output.encoding, "bytes");
  EXPECT_EQ(columns[3].output.encoding, "list:int64");
  EXPECT_EQ(columns[4].output.encoding, "list[bytes]");
  EXPECT_EQ(*decoded(columns[0], record), raw<std::int64_t>({7}));
  EXPECT_EQ(*decoded(columns[1], record), raw<float>({0.5F, 1, 2, 4}));
  EXPECT_EQ(*decoded(columns[2], record), "cat");
  EXPECT_EQ(*decoded(columns[3], record), raw<std::int64_t>({1, -1, 300}));
  EXPECT_EQ(*decoded(columns[4], record), raw<std::uint32_t>({0, 3, 2, 0, 1}) + "abc");
}

TEST(TfExample, ReadsWhatOtherWritersMayWrite) {
  const TfFeature label{.name = "label", .kind = Kind::kInt64, .is_list = true};
  const std::string seven = raw<std::int64_t>({7});
  const std::string unpacked = field(3, varint(1 << 3) + varint(7));
  EXPECT_EQ(decoded_text(label, example(entry("label", unpacked))), seven);
  // The value in front of the key, an unknown field, the map in two parts.
  const std::string turned =
      field(1, field(2, int64_list({7})) + field(9, "x") + field(1, "label"));
  EXPECT_EQ(decoded_text(
                label, example(entry("other", int64_list({1}))) + field(5, "y") + example(turned)),
            seven);
  // The last entry of a key counts, and the last kind; lists of one kind are joined.
  EXPECT_EQ(decoded_text(label, example(entry("label", int64_list({1, 2})) +
                                        entry("label", int64_list({7})))),
            seven);
  EXPECT_EQ(decoded_text(label, example(entry("label", float_list({1}) + int64_list({7})))), seven);
  EXPECT_EQ(decoded_text(label, example(entry("label", int64_list({7}) + unpacked))),
            seven + seven);
}

TEST(TfExample, WhatIsMissingHasADefaultOrIsBad) {
  std::vector<std::byte> nine(8, std::byte{0});
  nine[0] = std::byte{9};
  const std::string record = example(entry("other", int64_list({1})) + entry("empty", ""));
  for (const char* name : {"label", "empty"}) {
    EXPECT_EQ(decoded_text({.name = name, .kind = Kind::kInt64, .missing = nine}, record),
              raw<std::int64_t>({9}));
    EXPECT_THAT(decoded_text({.name = name, .kind = Kind::kInt64}, record),
                HasSubstr("is missing, and has no default"));
    EXPECT_EQ(decoded_text({.name = name, .kind = Kind::kInt64, .is_list = true}, record), "");
    EXPECT_EQ(decoded_text({.name = name, .is_list = true}, record), raw<std::uint32_t>({0, 0}));
    EXPECT_EQ(decoded_text({.name = name, .missing = nine}, record), raw<std::int64_t>({9}));
  }
  EXPECT_EQ(decoded_text({.name = "label", .kind = Kind::kInt64, .missing = nine}, ""),
            raw<std::int64_t>({9}));
}

TEST(TfExample, AnotherKindOrNumberOfValuesIsBad) {
  const std::string record =
      example(entry("two", int64_list({1, 2})) + entry("none", int64_list({})) +
              entry("text", bytes_list({"a"})));
  const TfFeature two{.name = "two", .kind = Kind::kInt64};
  EXPECT_THAT(decoded_text(two, record), HasSubstr("feature 'two' has 2 values, not 1"));
  EXPECT_THAT(
      decoded_text({.name = "none", .kind = Kind::kInt64, .missing = std::vector<std::byte>(8)},
                   record),
      HasSubstr("feature 'none' has 0 values, not 1"));
  EXPECT_THAT(decoded_text({.name = "two", .kind = Kind::kFloat}, record),
              HasSubstr("has values of int64, not of float32"));
  EXPECT_THAT(decoded_text({.name = "two"}, record), HasSubstr("not of bytes"));
  EXPECT_THAT(decoded_text({.name = "text", .kind = Kind::kInt64, .is_list = true}, record),
              HasSubstr("has values of bytes"));
  EXPECT_THAT(decoded_text(two, record.substr(0, record.size() - 1)),
              HasSubstr("no tf.train.Example"));
}

TEST(TfExample, ValuesOfBytesAreDecodedFurther) {
  const auto numbers = decode_array({.dtype = "uint16", .item_bytes = 2, .shape = {2}});
  ASSERT_TRUE(numbers);
  const DecodedColumns columns =
      bind({{.name = "meta", .decode = decode_as("json")}, {.name = "raw", .decode = *numbers}});
  EXPECT_EQ(columns[0].output.name, "meta");
  EXPECT_EQ(columns[0].output.encoding, "json");
  EXPECT_EQ(columns[1].output.encoding, "ndarray:uint16:2");
  const std::string good =
      example(entry("meta", bytes_list({"{}"})) + entry("raw", bytes_list({"abcd"})));
  EXPECT_EQ(*decoded(columns[0], good), "{}");
  EXPECT_EQ(*decoded(columns[1], good), "abcd");
  const auto wrong = decoded(columns[1], example(entry("raw", bytes_list({"abc"}))));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), Code::kCorrupt);
  EXPECT_THAT(std::string(wrong.error().message()), HasSubstr("a value of 3 bytes, not of 4"));
}

TEST(TfExample, RefusesWhatDoesNotGoTogether) {
  const std::vector<std::byte> four(4);
  for (const std::vector<TfFeature>& wrong : std::vector<std::vector<TfFeature>>{
           {},
           {{.name = "a"}, {.name = "a"}},
           {{.name = "a", .shape = {2}}},
           {{.name = "a", .kind = Kind::kInt64, .shape = {0}}},
           {{.name = "a", .kind = Kind::kInt64, .is_list = true, .shape = {2}}},
           {{.name = "a", .kind = Kind::kInt64, .missing = four}},
           {{.name = "a", .is_list = true, .missing = four}},
           {{.name = "a", .is_list = true, .decode = decode_as("json")}},
           {{.name = "a", .kind = Kind::kFloat, .decode = decode_as("json")}},
       }) {
    const auto decode = decode_tf_example(wrong);
    ASSERT_FALSE(decode);
    EXPECT_EQ(decode.error().code(), Code::kInvalidArgument);
  }
  const auto decode = decode_tf_example({{.name = "a"}});
  ASSERT_TRUE(decode);
  EXPECT_FALSE((*decode)->bind({.name = "x", .encoding = "int", .dtype = "int64", .shape = {}}));
}

TEST(TfExample, HostileBytesGiveWhatWasMeasuredOrAnError) {
  const std::string good =
      example(entry("label", int64_list({7})) + entry("box", float_list({0.5F, 1, 2, 4})) +
              entry("name", bytes_list({"cat"})) + entry("tokens", int64_list({1, -1, 300})) +
              entry("parts", bytes_list({"ab", "", "c"})));
  const DecodedColumns columns = bind({{.name = "label", .kind = Kind::kInt64},
                                       {.name = "box", .kind = Kind::kFloat, .shape = {4}},
                                       {.name = "name"},
                                       {.name = "tokens", .kind = Kind::kInt64, .is_list = true},
                                       {.name = "parts", .is_list = true}});
  Random random(5);
  for (int round = 0; round < 20000; ++round) {
    std::string record =
        random.below(2) == 0 ? good : good.substr(0, random.below(good.size() + 1));
    for (std::uint64_t flips = random.below(4); flips > 0 && !record.empty(); --flips)
      record[random.below(record.size())] = static_cast<char>(random.next());
    for (const DecodedColumn& column : columns) static_cast<void>(decoded(column, record));
  }
}

}  // namespace
}  // namespace headrace
