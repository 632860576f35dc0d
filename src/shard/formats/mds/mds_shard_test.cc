#include "shard/formats/mds/mds_shard.h"

#include <gtest/gtest.h>

#include "shard/testing/make_mds.h"

namespace headrace::detail {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Column column(std::uint64_t size) {
  Column out;
  out.fixed_size_bytes = size;
  return out;
}

TEST(MdsLayout, PutsSizesOfVaryingColumnsFirst) {
  const MdsLayout layout({column(0), column(2), column(0)});
  EXPECT_FALSE(layout.is_fixed());
  std::string sample;
  testing::append_u32(sample, 3);
  testing::append_u32(sample, 1);
  sample += "abcXYz";
  ColumnBytes out[3];
  ASSERT_TRUE(layout.cut(as_bytes(sample), out));
  EXPECT_EQ(std::to_integer<char>(out[0].bytes[2]), 'c');
  EXPECT_EQ(out[1].bytes.size(), 2U);
  EXPECT_EQ(std::to_integer<char>(out[2].bytes[0]), 'z');
}

TEST(MdsLayout, RefusesSizesThatDoNotAddUp) {
  const MdsLayout layout({column(0), column(2)});
  ColumnBytes out[2];
  for (const std::size_t size : {std::size_t{2}, std::size_t{4}, std::size_t{0xffffffff}}) {
    std::string sample;
    testing::append_u32(sample, size);
    EXPECT_FALSE(layout.cut(as_bytes(sample + "abcXY"), out)) << size;
  }
  EXPECT_FALSE(layout.cut(as_bytes(std::string("abc")), out));
  EXPECT_FALSE(layout.cut({}, out));
}

TEST(MdsLayout, CutsFixedColumnsAtConstantOffsets) {
  const MdsLayout layout({column(4), column(8)});
  EXPECT_TRUE(layout.is_fixed());
  EXPECT_EQ(layout.sample_bytes(), 12U);
  const std::string sample(12, 's');
  ColumnBytes out[2];
  layout.cut_fixed(as_bytes(sample).data(), out);
  EXPECT_EQ(out[1].bytes.data(), as_bytes(sample).data() + 4);
  EXPECT_EQ(out[1].bytes.size(), 8U);
}

TEST(MdsOffsets, AreTheSameInPieces) {
  const std::string shard = testing::mds_shard({"a", "", "ccc"});
  std::vector<std::uint64_t> offsets;
  append_mds_offsets(as_bytes(shard).first(8), 0, offsets);
  append_mds_offsets(as_bytes(shard).subspan(8, 12), 8, offsets);
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{22, 23, 23, 26}));
  EXPECT_TRUE(check_mds_offsets(offsets, 26).ok());
  EXPECT_EQ(check_mds_offsets(offsets, 27).code(), Code::kCorrupt);
  EXPECT_EQ(check_mds_offsets(std::vector<std::uint64_t>{22, 20, 26}, 26).code(), Code::kCorrupt);
  EXPECT_EQ(check_mds_offsets(std::vector<std::uint64_t>{3, 20, 26}, 26).code(), Code::kCorrupt);
}

TEST(MdsSample, IsFoundByTheTableOfTheShard) {
  std::string shard = testing::mds_shard({"a", "bb", "ccc"});
  auto sample = mds_sample(as_bytes(shard), 3, 1);
  ASSERT_TRUE(sample.has_value());
  EXPECT_EQ(sample->size(), 2U);
  EXPECT_EQ(mds_sample(as_bytes(shard), 2, 1).error().code(), Code::kCorrupt);
  EXPECT_EQ(mds_sample(as_bytes(shard).first(10), 3, 1).error().code(), Code::kCorrupt);
  EXPECT_EQ(mds_sample(as_bytes(shard).first(shard.size() - 1), 3, 2).error().code(),
            Code::kCorrupt);
  shard[8] = '\xff';
  EXPECT_EQ(mds_sample(as_bytes(shard), 3, 1).error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace headrace::detail
