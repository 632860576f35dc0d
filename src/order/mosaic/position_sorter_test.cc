// The windowed sort against a sort of everything, also where truncated positions are equal.
#include "order/mosaic/position_sorter.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace headrace::mosaic {
namespace {

/// A node of spans that shift by up to half of `block` beyond their size.
template <class T>
ShiftedNode<T> make_node(std::vector<T>& samples, double block, std::mt19937_64& random) {
  ShiftedNode<T> node;
  node.samples = samples;
  double reach = 0;
  for (std::uint64_t offset = 0; offset < samples.size();) {
    const std::uint64_t size =
        std::min<std::uint64_t>(1 + random() % 3000, samples.size() - offset);
    const double cut = std::max((block - static_cast<double>(size)) / 2, 0.0);
    const double low = std::max(-cut, -static_cast<double>(offset));
    const double high = std::min(cut, static_cast<double>(samples.size() - offset - size));
    node.spans.push_back({offset, size, low, high, numpy_random::Generator(random())});
    reach = std::max({reach, -low, high});
    offset += size;
  }
  node.reach = static_cast<std::uint64_t>(reach) + 2;
  return node;
}

template <class T>
std::vector<T> sorted_at_once(const ShiftedNode<T>& node) {
  std::vector<std::pair<double, T>> all;
  for (ShiftedSpan span : node.spans) {
    for (std::uint64_t i = span.offset; i < span.offset + span.size; ++i) {
      all.emplace_back(span.position(i, span.rng.next64()), node.samples[i]);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<T> out;
  for (const auto& [position, sample] : all) out.push_back(sample);
  return out;
}

template <class T>
void sort_stretches(ShiftedNode<T>& node) {
  node.copy_halos();
  SorterMemory memory;
  for (std::size_t i = 0; i + 1 < node.borders.size(); ++i) {
    PositionSorter<T>(node, i, memory).run();
  }
}

template <class T>
void expect_sorted(std::uint64_t count, double block, std::uint64_t largest_id,
                   std::vector<std::uint64_t> inner_borders) {
  std::mt19937_64 random(count);
  std::vector<T> samples(count);
  std::iota(samples.begin(), samples.end(), T{0});
  std::shuffle(samples.begin(), samples.end(), random);
  ShiftedNode<T> node = make_node(samples, block, random);
  node.largest_id = std::max(largest_id, count);
  node.borders = std::move(inner_borders);
  node.borders.insert(node.borders.begin(), 0);
  node.borders.push_back(count);
  const std::vector<T> expected = sorted_at_once(node);
  sort_stretches(node);
  EXPECT_EQ(samples, expected) << count << " samples, blocks of " << block;
}

TEST(PositionSorter, SortsAsIfAtOnce) {
  for (const std::uint64_t count : {1U, 2U, 700U, 4096U, 16'384U, 16'385U, 90'000U}) {
    for (const double block : {0.0, 1.5, 4000.0, 50'000.0}) {
      expect_sorted<std::uint32_t>(count, block, 0, {});
    }
  }
}

TEST(PositionSorter, SortsInStretches) {
  expect_sorted<std::uint32_t>(300'000, 9000, 0, {3 * kBucketWidth, 8 * kBucketWidth});
  expect_sorted<std::uint32_t>(300'000, 60'000, 0, {4 * kBucketWidth, 8 * kBucketWidth});
  expect_sorted<std::uint64_t>(200'000, 20'000, 0, {5 * kBucketWidth});
}

TEST(PositionSorter, ComparesInFullWhereTruncatedPositionsAreEqual) {
  // Ids of 40 bits leave 10 bits of fraction: most buckets hold equal ones.
  expect_sorted<std::uint64_t>(60'000, 9000, std::uint64_t{1} << 40, {});
  expect_sorted<std::uint64_t>(60'000, 3500, std::uint64_t{1} << 40, {2 * kBucketWidth});
}

TEST(PositionSorter, SortsWhatLandsUnevenly) {
  // All within one position: no digit has room for that; above twice the width, no bucket has.
  for (const std::uint64_t count : {5'000U, 50'000U}) {
    std::vector<std::uint32_t> samples(count);
    std::iota(samples.begin(), samples.end(), 0U);
    ShiftedNode<std::uint32_t> node;
    node.samples = samples;
    for (std::uint64_t i = 0; i < count; ++i) {
      const double low = 700 - static_cast<double>(i);
      node.spans.push_back({i, 1, low, low + 1, numpy_random::Generator(i)});
    }
    node.reach = count;
    node.largest_id = count;
    node.borders = {0, count};
    const std::vector<std::uint32_t> expected = sorted_at_once(node);
    sort_stretches(node);
    EXPECT_EQ(samples, expected);
  }
}

}  // namespace
}  // namespace headrace::mosaic
