#include "order/mosaic/bucket_sorter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace headrace::mosaic {
namespace {

constexpr unsigned kIdBits = 20;

/// Items of random positions and ascending ids; the positions have `position_bits` random bits.
std::vector<std::uint64_t> make_items(std::size_t count, unsigned position_bits) {
  std::mt19937_64 random(count);
  std::vector<std::uint64_t> items(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t position = random() >> (64 - position_bits) << (64 - position_bits);
    items[i] = (position >> kIdBits << kIdBits) | i;
  }
  return items;
}

bool deal(BucketSorter& sorter, const std::vector<std::uint64_t>& items) {
  sorter.set_id_bits(kIdBits);
  if (!sorter.begin(items.size())) return false;
  // In pieces, as from blocks.
  const std::size_t half = items.size() / 2;
  sorter.add(std::span(items).first(half), items.data() + half);
  sorter.add(std::span(items).subspan(half), items.data());
  return sorter.deal();
}

/// All items, and whether a part had ties.
std::pair<std::vector<std::uint64_t>, bool> sort_all(BucketSorter& sorter) {
  std::pair<std::vector<std::uint64_t>, bool> out;
  for (std::size_t digit = 0; digit < BucketSorter::kDigits; ++digit) {
    bool has_ties = false;
    const auto part = sorter.sort(digit, has_ties);
    out.first.insert(out.first.end(), part.begin(), part.end());
    out.second |= has_ties;
  }
  return out;
}

TEST(BucketSorter, SortsEvenPositions) {
  BucketSorter sorter;
  for (const std::size_t count : {2000U, 16'384U, 16'385U, 24'000U}) {
    std::vector<std::uint64_t> items = make_items(count, 44);
    ASSERT_TRUE(deal(sorter, items)) << count;
    std::sort(items.begin(), items.end());
    EXPECT_EQ(sort_all(sorter), std::pair(items, false)) << count;
  }
}

TEST(BucketSorter, TellsOfEqualPositions) {
  BucketSorter sorter;
  // As many items as a sixteenth of all positions: some are bound to be equal.
  std::vector<std::uint64_t> items = make_items(16'384, 14 + 4);
  ASSERT_TRUE(deal(sorter, items));
  const auto [sorted, has_ties] = sort_all(sorter);
  EXPECT_TRUE(has_ties);
  std::sort(items.begin(), items.end());
  EXPECT_EQ(sorted, items);
  // One pair alone.
  items = make_items(3000, 44);
  items[2000] = (items[17] >> kIdBits << kIdBits) | 2000;
  ASSERT_TRUE(deal(sorter, items));
  EXPECT_TRUE(sort_all(sorter).second);
}

TEST(BucketSorter, RefusesWhatDoesNotFit) {
  BucketSorter sorter;
  EXPECT_FALSE(deal(sorter, make_items(10, 44)));
  EXPECT_FALSE(deal(sorter, make_items(100'000, 44)));
  EXPECT_FALSE(deal(sorter, make_items(16'384, 3)));  // eight positions: high digits overrun
  std::vector<std::uint64_t> items = make_items(16'384, 44);
  for (std::uint64_t& item : items) item &= ~(std::uint64_t{0xff} << 48);  // one low digit
  EXPECT_FALSE(deal(sorter, items));
  EXPECT_TRUE(deal(sorter, make_items(16'384, 44)));
}

}  // namespace
}  // namespace headrace::mosaic
