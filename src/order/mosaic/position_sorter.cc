#include "order/mosaic/position_sorter.h"

#include <algorithm>
#include <array>
#include <limits>

namespace headrace::mosaic {

template <class T>
PositionSorter<T>::PositionSorter(const ShiftedNode<T>& node, std::size_t stretch)
    : node_(node),
      stretch_(stretch),
      begin_(node.borders[stretch]),
      end_(node.borders[stretch + 1]),
      next_out_(begin_),
      next_bucket_(begin_ >> kBucketBits),
      id_bits_(static_cast<unsigned>(std::bit_width(node.largest_id | 1))),
      fraction_bits_(64 - static_cast<unsigned>(kBucketBits) - id_bits_),
      scale_(static_cast<double>(std::uint64_t{1} << fraction_bits_)) {
  // Open buckets lie within reach of the samples drawn last, on both sides.
  const std::uint64_t open = ((2 * node.reach + kDrawn) >> kBucketBits) + 3;
  ring_.resize(std::bit_ceil(open));
  ring_mask_ = ring_.size() - 1;
  // All samples within reach, and a block of each bucket begun.
  first_blocks_ = static_cast<std::uint32_t>(2 * node.reach / kBlockSamples + open + 64);
  cells_.resize(kCells + 1);
  sorted_.resize(2 * kBucketWidth);
}

template <class T>
void PositionSorter<T>::run() {
  const std::uint64_t first = begin_ - std::min(begin_, node_.reach);
  const std::uint64_t last = std::min<std::uint64_t>(end_ + node_.reach, node_.samples.size());
  for (const ShiftedSpan& span : node_.spans) {
    const std::uint64_t begin = std::max(span.offset, first);
    const std::uint64_t end = std::min(span.offset + span.size, last);
    if (begin < end) shift_span(span, begin, end);
  }
  flush_before(end_ + kBucketWidth);
}

template <class T>
void PositionSorter<T>::shift_span(ShiftedSpan span, std::uint64_t begin, std::uint64_t end) {
  std::array<std::uint64_t, kDrawn> draws;
  std::array<double, kDrawn> positions;
  span.rng.skip64(begin - span.offset);
  // Samples between these cannot leave the stretch.
  const std::uint64_t inner_begin = begin_ == 0 ? 0 : begin_ + node_.reach;
  const std::uint64_t inner_end =
      end_ == node_.samples.size() ? end_ : end_ - std::min(end_, node_.reach);
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t count = std::min(end - at, kDrawn);
    const auto block = std::span(draws).first(count);
    span.rng.fill64(block);
    for (std::uint64_t i = 0; i < count; ++i) {
      positions[i] = span.position(at + i, block[i]);
    }
    if (at >= inner_begin && at + count <= inner_end) {
      push_run(at, count, positions.data());
    } else {
      push_border_run(at, count, positions.data());
    }
    at += count;
    if (at > node_.reach) flush_before(at - node_.reach);
  }
}

/// The samples from `index` on, from the node or from the copy around a border; `count` is cut to
/// what lies together.
template <class T>
const T* PositionSorter<T>::samples_at(std::uint64_t index, std::uint64_t& count) const noexcept {
  for (const std::size_t border : {stretch_, stretch_ + 1}) {
    const std::vector<T>& halo = node_.halos[border];
    if (halo.empty()) continue;
    const std::uint64_t from = node_.halo_begin(border);
    if (index >= from && index < from + halo.size()) {
      count = std::min<std::uint64_t>(count, from + halo.size() - index);
      return &halo[index - from];
    }
    if (index < from) count = std::min(count, from - index);
  }
  return &node_.samples[index];
}

template <class T>
void PositionSorter<T>::push_run(std::uint64_t begin, std::uint64_t count,
                                 const double* positions) {
  while (count != 0) {
    std::uint64_t run = count;
    const T* samples = samples_at(begin, run);
    for (std::uint64_t i = 0; i < run; ++i) push(positions[i], samples[i]);
    begin += run;
    positions += run;
    count -= run;
  }
}

template <class T>
void PositionSorter<T>::push_border_run(std::uint64_t begin, std::uint64_t count,
                                        const double* positions) {
  const auto low = static_cast<double>(begin_);
  // The node's end is in reach of rounding: a shift may land on it exactly.
  const bool is_last = end_ == node_.samples.size();
  const auto high = static_cast<double>(end_);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t index = begin + i;
    const bool is_before = positions[i] < low;
    if (index < begin_ && !is_before) --next_out_;
    if (index >= begin_ && is_before) ++next_out_;
    if (is_before || (positions[i] >= high && !is_last)) continue;
    std::uint64_t one = 1;
    push(positions[i], *samples_at(index, one));
  }
}

template <class T>
void PositionSorter<T>::push(double position, T sample) {
  const std::uint64_t at = fixed(position);
  Bucket& bucket = ring_[bucket_of(at) & ring_mask_];
  std::uint32_t slot = bucket.next_slot;
  if (slot % kBlockSamples == 0) slot = add_block(bucket);
  // The bucket's number falls off the top.
  items_[slot] = at << id_bits_ | sample;
  bucket.next_slot = slot + 1;
  ++bucket.count;
}

template <class T>
std::uint32_t PositionSorter<T>::add_block(Bucket& bucket) {
  if (free_blocks_.empty()) {
    const auto blocks = static_cast<std::uint32_t>(block_after_.size());
    const std::uint32_t more = std::max(blocks / 2, first_blocks_);
    block_after_.resize(blocks + more, kNone);
    items_.grow(std::size_t{blocks + more} * kBlockSamples);
    for (std::uint32_t i = more; i-- > 0;) free_blocks_.push_back(blocks + i);
  }
  const std::uint32_t block = free_blocks_.back();
  free_blocks_.pop_back();
  block_after_[block] = kNone;
  if (bucket.first_block == kNone) {
    bucket.first_block = block;
  } else {
    block_after_[bucket.last_block] = block;
  }
  bucket.last_block = block;
  return block * kBlockSamples;
}

/// Writes the buckets that lie before `position` altogether.
template <class T>
void PositionSorter<T>::flush_before(std::uint64_t position) {
  const std::uint64_t stop = std::min(position, end_ + kBucketWidth) >> kBucketBits;
  for (; next_bucket_ < stop; ++next_bucket_) {
    Bucket& bucket = ring_[next_bucket_ & ring_mask_];
    if (bucket.count != 0) write_bucket(bucket, next_bucket_);
  }
}

template <class T>
template <class Visit>
void PositionSorter<T>::for_each_block(const Bucket& bucket, const Visit& visit) const {
  std::uint32_t left = bucket.count;
  for (std::uint32_t block = bucket.first_block; block != kNone; block = block_after_[block]) {
    const std::uint32_t count = std::min(left, kBlockSamples);
    visit(std::span<const std::uint64_t>(&items_[std::size_t{block} * kBlockSamples], count));
    left -= count;
  }
}

template <class T>
void PositionSorter<T>::release_blocks(const Bucket& bucket) {
  for (std::uint32_t block = bucket.first_block; block != kNone; block = block_after_[block]) {
    free_blocks_.push_back(block);
  }
}

/// Counting sort by the highest bits: half positions.
template <class T>
void PositionSorter<T>::sort_cells(const Bucket& bucket) {
  constexpr int kCellShift = 64 - std::bit_width(kCells - 1);
  std::fill(cells_.begin(), cells_.end(), 0U);
  for_each_block(bucket, [&](std::span<const std::uint64_t> items) {
    for (const std::uint64_t item : items) ++cells_[(item >> kCellShift) + 1];
  });
  for (std::uint32_t i = 1; i < kCells; ++i) cells_[i] += cells_[i - 1];
  for_each_block(bucket, [&](std::span<const std::uint64_t> items) {
    for (const std::uint64_t item : items) sorted_[cells_[item >> kCellShift]++] = item;
  });
}

/// Insertion within cells. False when truncated positions are equal, which proves nothing. Those of
/// two neighbours meet when the later one is inserted: nothing lies between them then either.
template <class T>
bool PositionSorter<T>::finish_cells(std::uint32_t count) {
  const std::uint64_t one_position = std::uint64_t{1} << id_bits_;
  bool is_clear = true;
  std::uint64_t before = sorted_[0];
  for (std::uint32_t i = 1; i < count; ++i) {
    const std::uint64_t item = sorted_[i];
    is_clear &= (item ^ before) >= one_position;
    if (item >= before) [[likely]] {
      before = item;
      continue;
    }
    std::uint32_t to = i;
    for (; to != 0 && item < sorted_[to - 1]; --to) sorted_[to] = sorted_[to - 1];
    sorted_[to] = item;
    is_clear &= (item ^ sorted_[to + 1]) >= one_position;
    is_clear &= to == 0 || (item ^ sorted_[to - 1]) >= one_position;
  }
  return is_clear;
}

/// Draws the bucket's positions again: they come in the order in which its samples came.
template <class T>
void PositionSorter<T>::sort_exactly(const Bucket& bucket, std::uint64_t number) {
  std::vector<std::pair<double, std::uint64_t>> exact;
  exact.reserve(bucket.count);
  for_each_block(bucket, [&](std::span<const std::uint64_t> items) {
    for (const std::uint64_t item : items) exact.emplace_back(0.0, item);
  });
  std::size_t next = 0;
  const std::uint64_t base = number << kBucketBits;
  const std::uint64_t first = base - std::min(base, node_.reach);
  const std::uint64_t last =
      std::min<std::uint64_t>(base + kBucketWidth + node_.reach, node_.samples.size());
  for (ShiftedSpan span : node_.spans) {
    const std::uint64_t begin = std::max(span.offset, first);
    const std::uint64_t end = std::min(span.offset + span.size, last);
    if (begin >= end) continue;
    span.rng.skip64(begin - span.offset);
    for (std::uint64_t i = begin; i < end; ++i) {
      const double position = span.position(i, span.rng.next64());
      if (bucket_of(fixed(position)) == number) exact[next++].first = position;
    }
  }
  std::stable_sort(exact.begin(), exact.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < exact.size(); ++i) sorted_[i] = exact[i].second;
}

template <class T>
void PositionSorter<T>::write_bucket(Bucket& bucket, std::uint64_t number) {
  if (sorted_.size() < bucket.count) sorted_.resize(bucket.count);
  sort_cells(bucket);
  if (!finish_cells(bucket.count)) sort_exactly(bucket, number);
  release_blocks(bucket);
  const std::uint64_t id_mask = (std::uint64_t{1} << id_bits_) - 1;
  T* out = &node_.samples[next_out_];
  for (std::uint32_t i = 0; i < bucket.count; ++i) out[i] = static_cast<T>(sorted_[i] & id_mask);
  next_out_ += bucket.count;
  bucket = Bucket{};
}

template class PositionSorter<std::uint32_t>;
template class PositionSorter<std::uint64_t>;

}  // namespace headrace::mosaic
