#include "order/mosaic/bucket_sorter.h"

namespace headrace::mosaic {

bool BucketSorter::begin(std::size_t count) {
  if (count < kLeastItems || count > DigitPass::kMostItems) return false;
  for (std::optional<DigitPass>* pass : {&low_, &high_}) {
    if (!pass->has_value()) pass->emplace();
    (*pass)->reset();
  }
  return true;
}

void BucketSorter::add(std::span<const std::uint64_t> items, const std::uint64_t* ahead) noexcept {
  constexpr unsigned kShift = 64 - 2 * DigitPass::kDigitBits;
  constexpr std::size_t kLine = 8;
  const auto deal_one = [ends = low_->ends.data()](std::uint64_t item) {
    *ends[item >> kShift & (kDigits - 1)]++ = item;
  };
  std::size_t i = 0;
  for (; i + kLine <= items.size(); i += kLine) {
    __builtin_prefetch(ahead + i);
    for (std::size_t k = 0; k < kLine; ++k) deal_one(items[i + k]);
  }
  for (; i < items.size(); ++i) deal_one(items[i]);
}

bool BucketSorter::deal() noexcept {
  constexpr unsigned kShift = 64 - DigitPass::kDigitBits;
  if (low_->is_overrun()) return false;
  std::uint64_t** const ends = high_->ends.data();
  for (std::size_t d = 0; d < kDigits; ++d) {
    for (const std::uint64_t item : low_->of(d)) *ends[item >> kShift]++ = item;
  }
  return !high_->is_overrun();
}

std::span<std::uint64_t> BucketSorter::sort(std::size_t digit, bool& has_ties) noexcept {
  const std::span<std::uint64_t> items = high_->of(digit);
  const std::uint64_t id_mask = id_mask_;
  has_ties = false;
  if (items.empty()) return items;
  std::uint64_t before = items[0];
  for (std::size_t i = 1; i < items.size(); ++i) {
    const std::uint64_t item = items[i];
    if (item > (before | id_mask)) [[likely]] {
      before = item;
      continue;
    }
    std::size_t to = i;
    for (; to != 0 && item < items[to - 1]; --to) items[to] = items[to - 1];
    items[to] = item;
    // Equal positions are neighbours when the later one gets its place: nothing lies between.
    has_ties |= to != 0 && item <= (items[to - 1] | id_mask);
    has_ties |= to != i && items[to + 1] <= (item | id_mask);
    before = items[i];
  }
  return items;
}

}  // namespace headrace::mosaic
