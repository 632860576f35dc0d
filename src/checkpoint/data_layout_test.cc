#include <nlohmann/json.hpp>

#include "base/endian.h"
#include "gmock/gmock.h"
#include "headrace/checkpoint.h"

namespace headrace::checkpoint {
namespace {

TEST(DataLayout, DataBeginsAtAPageAndHasNoHoles) {
  auto layout = DataLayout::make(
      {{"bytes", "U8", {3}}, {"wide", "F64", {2}}, {"none", "F32", {0, 4}}, {"one", "BF16", {}}},
      {{"format", "pt"}});
  ASSERT_TRUE(layout.has_value());
  const std::string& header = layout->header();
  EXPECT_EQ(header.size() % 4096, 0U);
  EXPECT_EQ(load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(header.data())),
            header.size() - 8);
  const auto json = nlohmann::json::parse(header.substr(8));
  EXPECT_EQ(json["__metadata__"]["format"], "pt");
  EXPECT_EQ(json["wide"]["data_offsets"], (std::vector<int>{0, 16}));
  EXPECT_EQ(json["one"]["data_offsets"], (std::vector<int>{16, 18}));
  EXPECT_EQ(json["bytes"]["data_offsets"], (std::vector<int>{18, 21}));
  EXPECT_EQ(json["none"]["shape"], (std::vector<int>{0, 4}));
  EXPECT_EQ(layout->size_bytes(), header.size() + 21);
  EXPECT_EQ(layout->places()[0].offset_bytes, header.size() + 18);
}

TEST(DataLayout, RefusesWhatNoReaderTakes) {
  const auto code = [](std::vector<Piece> pieces) {
    auto layout = DataLayout::make(std::move(pieces), {});
    return layout ? Code::kOk : layout.error().code();
  };
  EXPECT_EQ(code({{"a", "U8", {1}}, {"a", "U8", {1}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"__metadata__", "U8", {1}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", "float32", {1}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", "F4", {3}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", "U8", {1ULL << 40, 1ULL << 40}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", "F64", {1ULL << 61}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"\xff", "U8", {1}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", "F4", {4}}, {"", "U8", {}}}), Code::kOk);
}

TEST(DataLayout, NoBlockOfACompressedFileLiesAcrossAnother) {
  std::vector<Piece> pieces;
  for (std::uint64_t i = 0; i < 500; ++i)
    pieces.push_back({"t" + std::to_string(i), "F32", {i % 50 == 0 ? 7000 * i : i * i % 3000}});
  auto layout = DataLayout::make_compressed(pieces, nullptr);
  ASSERT_TRUE(layout.has_value());
  EXPECT_TRUE(layout->is_compressed());
  EXPECT_EQ(layout->header().size(), 4096U);
  std::uint64_t end = kSumBlockBytes;
  std::uint64_t data_bytes = 0;
  for (const std::uint32_t i : layout->order()) {
    const auto [offset, length] = layout->places()[i];
    EXPECT_GE(offset, end);
    EXPECT_TRUE(offset % kSumBlockBytes == 0 || offset % kSumBlockBytes + length <= kSumBlockBytes);
    end = offset + length;
    data_bytes += length;
  }
  EXPECT_EQ(layout->size_bytes(), end);
  EXPECT_LT(end, 2 * data_bytes) << "holes are less than what lies between them";
}

}  // namespace
}  // namespace headrace::checkpoint
