// One slab a batch: ids, mask, and for each column its values, offsets and presence, each at a
// multiple of 64 bytes. lay_out() finds all sizes before anything is copied, so the slab is taken
// once, of the right size, and fill() cannot fail.
//
// Missing values: zeros in a column of fixed size, nothing in a ragged one; `present` tells them
// from real ones, and is there only when something is missing.
#include "feed/finish/batch.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace headrace::feed {
namespace {

constexpr std::size_t kAlignBytes = 64;
/// How many slots ahead the first lines of a sample are fetched: a copy of some KiB hides one miss
/// of memory.
constexpr std::size_t kPrefetchSlots = 2;

/// Reserves `bytes` at the next aligned offset.
std::size_t place(std::size_t& total, std::size_t bytes) noexcept {
  const std::size_t offset = (total + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  total = offset + bytes;
  return offset;
}

template <class T>
T* array_at(std::span<std::byte> bytes, std::size_t offset) noexcept {
  return reinterpret_cast<T*>(bytes.data() + offset);
}

void prefetch(const ColumnBytes& cell) noexcept {
  if (cell.bytes.empty()) return;
  __builtin_prefetch(cell.bytes.data());
  if (cell.bytes.size() > 64) __builtin_prefetch(cell.bytes.data() + 64);
  if (cell.bytes.size() > 128) __builtin_prefetch(cell.bytes.data() + 128);
}

Status wrong_size(const OutputColumn& column, std::size_t size) {
  return Status(Code::kCorrupt, "column '" + column.name + "': a value of " + std::to_string(size) +
                                    " bytes where every value has " +
                                    std::to_string(column.fixed_size_bytes));
}

}  // namespace

Status check_sizes(const Selection& selection, std::span<const ColumnBytes> row) {
  for (std::size_t c = 0; c < selection.schema.size(); ++c) {
    const ColumnBytes& cell = row[selection.indices[c]];
    const std::uint64_t fixed = selection.schema[c].fixed_size_bytes;
    if (fixed > 0 && cell.present && cell.size() != fixed)
      return wrong_size(selection.schema[c], cell.size());
  }
  return {};
}

Result<BatchLayout> lay_out(const Selection& selection, const CutMatrix& cuts,
                            std::uint32_t count) {
  BatchLayout layout;
  layout.ids_offset = place(layout.total_bytes, count * sizeof(std::int64_t));
  layout.mask_offset = place(layout.total_bytes, count);
  layout.columns.reserve(selection.schema.size());
  for (std::size_t c = 0; c < selection.schema.size(); ++c) {
    BatchLayout::ColumnPlace column;
    const std::uint64_t fixed = selection.schema[c].fixed_size_bytes;
    std::size_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const ColumnBytes& cell = cuts.at(i, selection.indices[c]);
      if (!cell.present) {
        column.has_missing = true;
      } else if (fixed > 0 && cell.size() != fixed) {
        return wrong_size(selection.schema[c], cell.size());
      } else {
        sum += cell.size();
      }
    }
    column.values_bytes = fixed > 0 ? count * fixed : sum;
    column.values_offset = place(layout.total_bytes, column.values_bytes);
    if (fixed == 0)
      column.offsets_offset =
          place(layout.total_bytes, (std::size_t{count} + 1) * sizeof(std::uint64_t));
    if (column.has_missing) column.present_offset = place(layout.total_bytes, count);
    layout.columns.push_back(column);
  }
  return layout;
}

BatchImpl::BatchImpl(std::shared_ptr<Waker> waker, std::shared_ptr<const Selection> selection,
                     Slab slab, std::uint32_t count, Identity identity,
                     std::vector<ReplacedSample> replaced)
    : waker_(std::move(waker)),
      selection_(std::move(selection)),
      slab_(std::move(slab)),
      count_(count),
      identity_(identity),
      replaced_(std::move(replaced)) {
  waker_->count_batch(1);
}

BatchImpl::~BatchImpl() {
  slab_ = Slab();
  // After the slab has gone back: whoever is woken by the next line finds its memory.
  waker_->count_batch(-1);
  waker_->memory_returned();
}

void BatchImpl::fill(const BatchLayout& layout, const CutMatrix& cuts,
                     std::span<const std::int64_t> ids, std::span<const std::uint8_t> mask) {
  const BatchSchema& schema = selection_->schema;
  const std::vector<std::size_t>& indices = selection_->indices;
  const std::span<std::byte> slab = slab_.bytes();
  byte_count_ = layout.total_bytes;
  std::memcpy(slab.data() + layout.ids_offset, ids.data(), count_ * sizeof(std::int64_t));
  std::memcpy(slab.data() + layout.mask_offset, mask.data(), count_);
  ids_ = {array_at<const std::int64_t>(slab, layout.ids_offset), count_};
  mask_ = {array_at<const std::uint8_t>(slab, layout.mask_offset), count_};

  const std::size_t width = schema.size();
  std::vector<std::byte*> cursors(width);
  columns_.resize(width);
  for (std::size_t c = 0; c < width; ++c) {
    const BatchLayout::ColumnPlace& at = layout.columns[c];
    BatchColumn& column = columns_[c];
    column.column = &schema[c];
    column.values = slab.subspan(at.values_offset, at.values_bytes);
    cursors[c] = column.values.data();
    if (at.has_missing) {
      auto* present = array_at<std::uint8_t>(slab, at.present_offset);
      for (std::uint32_t i = 0; i < count_; ++i)
        present[i] = cuts.at(i, indices[c]).present ? 1 : 0;
      column.present = {present, count_};
    }
    if (!schema[c].is_ragged()) continue;
    auto* offsets = array_at<std::uint64_t>(slab, at.offsets_offset);
    offsets[0] = 0;
    for (std::uint32_t i = 0; i < count_; ++i) {
      const ColumnBytes& cell = cuts.at(i, indices[c]);
      offsets[i + 1] = offsets[i] + (cell.present ? cell.size() : 0);
    }
    column.offsets = {offsets, std::size_t{count_} + 1};
  }

  // By slot, not by column: the columns of a sample are neighbours where they are read.
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (i + kPrefetchSlots < count_ && width > 0) prefetch(cuts.at(i + kPrefetchSlots, indices[0]));
    for (std::size_t c = 0; c < width; ++c) {
      const ColumnBytes& cell = cuts.at(i, indices[c]);
      if (cell.present) {
        const std::size_t size = cell.size();
        cell.write_to({cursors[c], size});
        cursors[c] += size;
      } else if (const std::uint64_t fixed = schema[c].fixed_size_bytes; fixed > 0) {
        std::memset(cursors[c], 0, fixed);
        cursors[c] += fixed;
      }
    }
  }
}

}  // namespace headrace::feed
