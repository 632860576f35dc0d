// Invariant: runs_ rise and do not overlap, as DataLayout gives the places out.
#include "checkpoint/part_map.h"

#include <algorithm>

namespace headrace::checkpoint {

PartMap::PartMap(const DataLayout& layout, std::uint64_t part_bytes)
    : size_bytes_(layout.size_bytes()),
      part_bytes_(part_bytes),
      count_(static_cast<std::uint32_t>((size_bytes_ + part_bytes - 1) / part_bytes)) {
  runs_.push_back({0, layout.header().size(), Slice::kHeader});
  for (const std::uint32_t i : layout.order()) {
    const PlacedPiece& place = layout.places()[i];
    if (place.length_bytes > 0) runs_.push_back({place.offset_bytes, place.length_bytes, i});
  }
}

std::uint64_t PartMap::length_bytes(std::uint32_t part) const noexcept {
  return std::min(part_bytes_, size_bytes_ - part * part_bytes_);
}

std::vector<Slice> PartMap::slices(std::uint32_t part) const {
  const std::uint64_t begin = part * part_bytes_;
  const std::uint64_t end = begin + length_bytes(part);
  auto run = std::prev(std::ranges::upper_bound(runs_, begin, {}, &Run::offset_bytes));
  std::vector<Slice> out;
  for (; run != runs_.end() && run->offset_bytes < end; ++run) {
    const std::uint64_t from = std::max(begin, run->offset_bytes);
    const std::uint64_t to = std::min(end, run->offset_bytes + run->length_bytes);
    if (from >= to) continue;  // The part begins in a hole.
    out.push_back({run->piece, from - run->offset_bytes, to - from, from - begin});
  }
  return out;
}

}  // namespace headrace::checkpoint
