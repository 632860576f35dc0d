#pragma once
/// \file
/// Sorts the samples of one bucket of py1e's window by where they land.
///
/// A sample is one word, an *item*: its fixed-point position in the bucket, truncated, above its
/// id. Two passes deal items out by the digits of their cell (a quarter of a position), the low
/// digit first. Few items share a cell: insertion puts those in order. The passes count nothing
/// beforehand, since positions lie evenly: each digit has room for about three times its share.
///
/// Place: src/order/mosaic; pure. One a thread.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "order/mosaic/huge_array.h"

namespace headrace::mosaic {

/// Positions a bucket. Narrower: more buckets are open at a time and their ends fall out of the
/// first-level cache; wider: the ends of digits do, and the bucket out of the second-level one.
/// Measured at 2^12 .. 2^16.
inline constexpr unsigned kBucketBits = 14;
inline constexpr std::uint64_t kBucketWidth = std::uint64_t{1} << kBucketBits;

/// Items of a bucket, dealt out by one digit.
struct DigitPass {
  static constexpr unsigned kDigitBits = 8;
  static constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
  static constexpr std::size_t kMostItems = 2 * kBucketWidth;
  // An odd number of cache lines: digits do not compete for the same sets.
  static constexpr std::size_t kRoom = 200;

  // Any number of items may overrun the room of the last digit before it is noticed.
  HugeArray<std::uint64_t> items{kDigits * kRoom + kMostItems};
  std::array<std::uint64_t*, kDigits> ends{};

  std::uint64_t* begin_of(std::size_t digit) noexcept { return &items[digit * kRoom]; }
  std::span<std::uint64_t> of(std::size_t digit) noexcept { return {begin_of(digit), ends[digit]}; }
  void reset() noexcept {
    for (std::size_t d = 0; d < kDigits; ++d) ends[d] = begin_of(d);
  }
  bool is_overrun() noexcept {
    bool is_over = false;
    for (std::size_t d = 0; d < kDigits; ++d) is_over |= ends[d] > begin_of(d) + kRoom;
    return is_over;
  }
};

class BucketSorter {
 public:
  static constexpr std::size_t kDigits = DigitPass::kDigits;

  /// Bits of an item below its position.
  void set_id_bits(unsigned bits) noexcept { id_mask_ = (std::uint64_t{1} << bits) - 1; }
  /// Begins a bucket of `count` items. False: more than fit, or so few that another way is quicker.
  bool begin(std::size_t count);
  /// Takes `items` of the bucket. `ahead`: what will be taken next.
  void add(std::span<const std::uint64_t> items, const std::uint64_t* ahead) noexcept;
  /// Second pass. False: positions are too uneven, nothing is sorted.
  bool deal() noexcept;
  /// Sorts a part of the bucket; parts ascend. Sets `has_ties` when some of its items have equal
  /// positions. \pre deal() was true; once for each digit.
  std::span<std::uint64_t> sort(std::size_t digit, bool& has_ties) noexcept;

 private:
  static constexpr std::size_t kLeastItems = 1024;

  std::uint64_t id_mask_ = 0;
  std::optional<DigitPass> low_;  // from the first bucket on that needs them
  std::optional<DigitPass> high_;
};

}  // namespace headrace::mosaic
