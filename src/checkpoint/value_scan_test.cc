#include "checkpoint/value_scan.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/test_seed.h"
#include "gmock/gmock.h"

namespace headrace::checkpoint {
namespace {

template <typename Value>
std::span<const std::byte> bytes_of(const std::vector<Value>& values) {
  return std::as_bytes(std::span(values));
}

TEST(ValueScanTest, CountsWhatIsNotFinite) {
  std::mt19937_64 random(test_seed());
  std::vector<std::uint32_t> narrow(10'001);
  std::vector<std::uint64_t> wide(10'001);
  std::uint64_t expected = 0, expected_wide = 0;
  for (std::uint32_t& bits : narrow) {
    bits = static_cast<std::uint32_t>(random());
    if (random() % 3 == 0) bits |= 0x7f800000;
    expected += !std::isfinite(std::bit_cast<float>(bits));
  }
  for (std::uint64_t& bits : wide) {
    bits = random() | (random() % 3 == 0 ? 0x7ff0000000000000 : 0);
    expected_wide += !std::isfinite(std::bit_cast<double>(bits));
  }
  EXPECT_GT(expected, 3000U);
  EXPECT_EQ(count_not_finite(NumberKind::kF32, bytes_of(narrow)), expected);
  EXPECT_EQ(count_not_finite(NumberKind::kF64, bytes_of(wide)), expected_wide);
}

TEST(ValueScanTest, KnowsAllValuesOfTwoBytes) {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  // Both signs, with each mantissa.
  EXPECT_EQ(count_not_finite(NumberKind::kF16, bytes_of(all)), 2U << 10);
  EXPECT_EQ(count_not_finite(NumberKind::kBf16, bytes_of(all)), 2U << 7);
  EXPECT_EQ(count_not_finite(NumberKind::kOther, bytes_of(all)), 0U);
  const std::vector<std::uint16_t> infinite(100'000, 0x7f80);
  EXPECT_EQ(count_not_finite(NumberKind::kBf16, bytes_of(infinite)), infinite.size());
}

TEST(ValueScanTest, KnowsTheDtypes) {
  EXPECT_EQ(number_kind("BF16"), NumberKind::kBf16);
  EXPECT_EQ(number_kind("C64"), NumberKind::kF32);
  EXPECT_EQ(number_kind("F8_E5M2"), NumberKind::kOther);
  EXPECT_EQ(number_kind("I32"), NumberKind::kOther);
}

TEST(ValueScanTest, FindsOneBitThatIsNotZero) {
  std::vector<std::uint8_t> zeros(1000);
  EXPECT_TRUE(is_all_zero({}));
  EXPECT_TRUE(is_all_zero(bytes_of(zeros)));
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{1}, std::size_t{500}, zeros.size() - 1}) {
    zeros[at] = 1;
    EXPECT_FALSE(is_all_zero(bytes_of(zeros))) << at;
    zeros[at] = 0;
  }
  EXPECT_FALSE(is_all_zero(bytes_of(std::vector<std::uint8_t>(10, 7))));
}

}  // namespace
}  // namespace headrace::checkpoint
