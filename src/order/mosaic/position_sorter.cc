// The result is the one of numpy's stable argsort over all positions, found window by window.
//
// Invariants:
// - A sample moves by less than `reach`. So once samples up to `at` are placed, every bucket below
//   at - reach is complete: flush_before() sorts and writes those, and only those.
// - Writing lags behind reading: the next place to write (next_out_) is never beyond what was read,
//   but at the borders of a stretch, where the neighbours write too; there samples are read from
//   the halo, which was copied before anybody wrote.
// - next_out_ starts as the border's position and is exact once all samples within reach of it are
//   placed: those that cross it from the left have taken their places away, those that cross it to
//   the left have added theirs (push_border_run()).
// - Of a bucket's chain all blocks but the last are full, and items stand in the sequence of their
//   samples. That is how trace() finds the sample of an item again: by the block's first_index and
//   by counting those of the same bucket on from there, with the same draws.
// - Buckets are open within reach on both sides of the reading position, so their numbers modulo
//   the ring's size differ.
#include "order/mosaic/position_sorter.h"

#include <bit>

namespace headrace::mosaic {

template <class T>
PositionSorter<T>::PositionSorter(const ShiftedNode<T>& node, std::size_t stretch,
                                  SorterMemory& memory)
    : node_(node),
      memory_(memory),
      stretch_(stretch),
      begin_(node.borders[stretch]),
      end_(node.borders[stretch + 1]),
      layout_(static_cast<unsigned>(std::bit_width(node.largest_id | 1))),
      next_out_(begin_),
      next_bucket_(begin_ >> kBucketBits) {
  // Open buckets lie within reach of the samples placed last, on both sides.
  const std::uint64_t open = ((2 * node.reach + kPlaced) >> kBucketBits) + 3;
  ends_.resize(std::bit_ceil(open));
  chains_.resize(ends_.size());
  ring_mask_ = static_cast<std::uint32_t>(ends_.size() - 1);
  // Of the samples within reach on both sides, half are in open buckets at a time; and a block of
  // each bucket is begun.
  memory_.blocks.reserve(std::min<std::uint64_t>(node.reach, node.samples.size()) / Block::kItems +
                         open);
  memory_.buckets.set_id_bits(layout_.id_bits);
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
  PlacedSamples& placed = memory_.placed;
  span.rng.skip64(begin - span.offset);
  // Samples between these cannot leave the stretch.
  const std::uint64_t inner_begin = begin_ == 0 ? 0 : begin_ + node_.reach;
  const std::uint64_t inner_end =
      end_ == node_.samples.size() ? end_ : end_ - std::min(end_, node_.reach);
  for (std::uint64_t at = begin; at < end;) {
    std::uint64_t count = std::min<std::uint64_t>(end - at, kPlaced);
    const T* samples = samples_at(at, count);
    span.rng.fill64(std::span(placed.draws).first(count));
    place_samples(span, layout_, at, std::span(samples, count), placed);
    if (at >= inner_begin && at + count <= inner_end) {
      push_run(at, count);
    } else {
      push_border_run(at, count);
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
void PositionSorter<T>::push_run(std::uint64_t begin, std::size_t count) {
  const PlacedSamples& placed = memory_.placed;
  for (std::size_t i = 0; i < count; ++i) push(placed.buckets[i], placed.items[i], begin + i);
}

template <class T>
void PositionSorter<T>::push_border_run(std::uint64_t begin, std::size_t count) {
  const PlacedSamples& placed = memory_.placed;
  const std::uint64_t first = begin_ >> kBucketBits;
  // The node's end is in reach of rounding: a shift may land on it exactly.
  const bool is_last = end_ == node_.samples.size();
  const std::uint64_t last = is_last ? ~std::uint64_t{0} : end_ >> kBucketBits;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t index = begin + i;
    const std::uint32_t bucket = placed.buckets[i];
    const bool is_before = bucket < first;
    // Where the first sample of this stretch goes: behind all that land before it. Those are as
    // many as stand before it, less those that come from there to here, and more those that go
    // there from here.
    if (index < begin_ && !is_before) --next_out_;
    if (index >= begin_ && is_before) ++next_out_;
    if (!is_before && bucket < last) push(bucket, placed.items[i], index);
  }
}

template <class T>
std::uint64_t* PositionSorter<T>::add_block(std::uint32_t bucket, std::uint64_t index) {
  Chain& chain = chains_[bucket & ring_mask_];
  Block* const block = memory_.blocks.take();
  block->after = nullptr;
  block->first_index = index;
  if (chain.first == nullptr) {
    chain.first = block;
  } else {
    chain.last->after = block;
    ++chain.full_blocks;
  }
  chain.last = block;
  return block->items;
}

/// Writes the buckets that lie before `position` altogether.
template <class T>
void PositionSorter<T>::flush_before(std::uint64_t position) {
  const std::uint64_t stop = std::min(position, end_ + kBucketWidth) >> kBucketBits;
  for (; next_bucket_ < stop; ++next_bucket_) {
    const auto bucket = static_cast<std::uint32_t>(next_bucket_);
    if (chains_[bucket & ring_mask_].first != nullptr) write_bucket(bucket);
  }
}

/// `visit` takes the items of a block and the items after them.
template <class T>
template <class Visit>
void PositionSorter<T>::for_each_block(std::uint32_t bucket, const Visit& visit) const {
  const Chain& chain = chains_[bucket & ring_mask_];
  for (const Block* block = chain.first; block != chain.last; block = block->after) {
    visit(*block, std::span(block->items));
  }
  const std::uint64_t* const items = chain.last->items;
  visit(*chain.last, std::span(items, ends_[bucket & ring_mask_]));
}

template <class T>
bool PositionSorter<T>::deal_bucket(std::uint32_t bucket) {
  BucketSorter& sorter = memory_.buckets;
  const Chain& chain = chains_[bucket & ring_mask_];
  const auto last = static_cast<std::size_t>(ends_[bucket & ring_mask_] - chain.last->items);
  const std::size_t count = chain.full_blocks * Block::kItems + last;
  if (!sorter.begin(count)) return false;
  for_each_block(bucket, [&](const Block& block, std::span<const std::uint64_t> items) {
    sorter.add(items, block.after == nullptr ? items.data() : block.after->items);
  });
  return sorter.deal();
}

template <class T>
void PositionSorter<T>::write_bucket(std::uint32_t bucket) {
  if (deal_bucket(bucket)) {
    for (std::size_t digit = 0; digit < BucketSorter::kDigits; ++digit) {
      bool has_ties = false;
      const std::span<std::uint64_t> items = memory_.buckets.sort(digit, has_ties);
      if (has_ties) order_ties(bucket, items);
      write(items);
    }
  } else {
    sort_uneven(bucket);
  }
  Chain& chain = chains_[bucket & ring_mask_];
  memory_.blocks.give(chain.first, chain.last);
  chain = Chain{};
  ends_[bucket & ring_mask_] = nullptr;
}

template <class T>
void PositionSorter<T>::sort_uneven(std::uint32_t bucket) {
  std::vector<std::uint64_t>& all = memory_.uneven;
  all.clear();
  for_each_block(bucket, [&](const Block&, std::span<const std::uint64_t> items) {
    all.insert(all.end(), items.begin(), items.end());
  });
  std::sort(all.begin(), all.end());
  order_ties(bucket, all);
  write(all);
}

template <class T>
void PositionSorter<T>::write(std::span<const std::uint64_t> items) {
  const std::uint64_t id_mask = (std::uint64_t{1} << layout_.id_bits) - 1;
  T* out = &node_.samples[next_out_];
  for (std::size_t i = 0; i < items.size(); ++i) out[i] = static_cast<T>(items[i] & id_mask);
  next_out_ += items.size();
}

/// Sorts each run of equal truncated positions by the full ones, and equal ones of these by index.
template <class T>
void PositionSorter<T>::order_ties(std::uint32_t bucket, std::span<std::uint64_t> items) const {
  std::vector<Tied> run;
  for (std::size_t begin = 0; begin < items.size();) {
    std::size_t end = begin + 1;
    while (end < items.size() && (items[begin] ^ items[end]) >> layout_.id_bits == 0) ++end;
    if (end - begin > 1) {
      run.clear();
      for (std::size_t i = begin; i < end; ++i) run.push_back(trace(bucket, items[i]));
      std::sort(run.begin(), run.end(), [](const Tied& a, const Tied& b) {
        return a.position < b.position || (a.position == b.position && a.index < b.index);
      });
      for (std::size_t i = begin; i < end; ++i) items[i] = run[i - begin].item;
    }
    begin = end;
  }
}

/// Finds out which sample an item of a bucket stands for, and where that lands in full: items of a
/// block are in the sequence of their samples, and the block knows where these begin.
template <class T>
typename PositionSorter<T>::Tied PositionSorter<T>::trace(std::uint32_t bucket,
                                                          std::uint64_t item) const {
  Tied tied;
  tied.item = item;
  std::size_t before = 0;  // items of the same block before it
  for_each_block(bucket, [&](const Block& block, std::span<const std::uint64_t> items) {
    const auto found = std::find(items.begin(), items.end(), item);
    if (found == items.end()) return;
    tied.index = block.first_index;
    before = static_cast<std::size_t>(found - items.begin());
  });
  auto span = std::upper_bound(
      node_.spans.begin(), node_.spans.end(), tied.index,
      [](std::uint64_t index, const ShiftedSpan& other) { return index < other.offset; });
  --span;
  for (;; ++span) {
    numpy_random::Generator rng = span->rng;
    rng.skip64(tied.index - span->offset);
    for (; tied.index < span->offset + span->size; ++tied.index) {
      tied.position = span->position(tied.index, rng.next64());
      if (layout_.bucket(layout_.fixed(tied.position)) != bucket) continue;
      if (before-- == 0) return tied;
    }
  }
}

template class PositionSorter<std::uint32_t>;
template class PositionSorter<std::uint64_t>;

}  // namespace headrace::mosaic
