// One slab a batch: ids, mask, and for each column its values, offsets and presence, each at a
// multiple of 64 bytes. lay_out() finds all sizes before anything is copied, so the slab is taken
// once, of the right size, and copying cannot fail. Decoding can, of single values: those are
// named, and the others stay. Columns of fixed size come first, so that they keep their places when
// values of others are replaced.
//
// Missing values: zeros in a column of fixed size, nothing in a ragged one; `present` tells them
// from real ones, and is there only when something is missing.
#include "feed/finish/batch.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "headrace/second_look.h"

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

/// The value's bytes; of one that is put together, a copy of them in `copy`.
std::span<const std::byte> contiguous(const ColumnBytes& cell, std::vector<std::byte>& copy) {
  if (cell.writer == nullptr) return cell.bytes;
  copy.resize(cell.size());
  cell.write_to(copy);
  return copy;
}

BadValue bad_value(std::uint32_t slot, std::size_t column, std::span<const std::byte> bytes,
                   Status status) {
  return {.slot = slot,
          .column = column,
          .digest = SecondLook::digest_of(bytes),
          .status = std::move(status)};
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
    if (selection.decoder(c) != nullptr) continue;
    if (fixed > 0 && cell.present && cell.size() != fixed)
      return wrong_size(selection.schema[c], cell.size());
  }
  return {};
}

ValueNeeds find_needs(const Selection& selection, const CutMatrix& cuts, std::uint32_t count,
                      std::vector<BadValue>& bad) {
  ValueNeeds needs;
  if (!selection.has_decoders()) return needs;
  const std::size_t width = selection.schema.size();
  needs.output_bytes.resize(count * width);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::size_t c = 0; c < width; ++c) {
      const ColumnBytes& cell = cuts.at(i, selection.indices[c]);
      const ValueDecoder* decoder = selection.decoder(c);
      if (decoder == nullptr || !cell.present) continue;
      std::vector<std::byte> copy;
      const std::span<const std::byte> bytes = contiguous(cell, copy);
      auto need = decoder->needs(bytes);
      if (!need) {
        bad.push_back(bad_value(i, c, bytes, std::move(need).error()));
        continue;
      }
      needs.output_bytes[i * width + c] = (*need).output_bytes;
      needs.workspace_bytes =
          std::max(needs.workspace_bytes, (*need).workspace_bytes + copy.size());
    }
  }
  return needs;
}

Result<BatchLayout> lay_out(const Selection& selection, const CutMatrix& cuts,
                            const ValueNeeds& needs, std::uint32_t count) {
  const std::size_t width = selection.schema.size();
  BatchLayout layout;
  layout.ids_offset = place(layout.total_bytes, count * sizeof(std::int64_t));
  layout.mask_offset = place(layout.total_bytes, count);
  layout.columns.reserve(width);
  for (std::size_t c = 0; c < width; ++c) {
    BatchLayout::ColumnPlace column;
    const bool is_decoded = selection.decoder(c) != nullptr;
    const std::uint64_t fixed = selection.schema[c].fixed_size_bytes;
    std::size_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const ColumnBytes& cell = cuts.at(i, selection.indices[c]);
      if (!cell.present) {
        column.has_missing = true;
      } else if (is_decoded) {
        sum += needs.output_bytes[i * width + c];
      } else if (fixed > 0 && cell.size() != fixed) {
        return wrong_size(selection.schema[c], cell.size());
      } else {
        sum += cell.size();
      }
    }
    column.values_bytes = fixed > 0 ? count * fixed : sum;
    if (fixed > 0) column.values_offset = place(layout.total_bytes, column.values_bytes);
    layout.columns.push_back(column);
  }
  for (std::size_t c = 0; c < width; ++c) {
    BatchLayout::ColumnPlace& column = layout.columns[c];
    if (selection.schema[c].is_ragged()) {
      column.values_offset = place(layout.total_bytes, column.values_bytes);
      column.offsets_offset =
          place(layout.total_bytes, (std::size_t{count} + 1) * sizeof(std::uint64_t));
    }
    if (column.has_missing) column.present_offset = place(layout.total_bytes, count);
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

std::optional<BatchMemory> BatchImpl::shared() const {
  const std::optional<SharedPlace> place = waker_->pool().shared_place(slab_);
  if (!place) return std::nullopt;
  return BatchMemory{.place = *place, .bytes = slab_.bytes()};
}

void BatchImpl::lay(const BatchLayout& layout, const CutMatrix& cuts, const ValueNeeds& needs,
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
  columns_.resize(width);
  for (std::size_t c = 0; c < width; ++c) {
    const BatchLayout::ColumnPlace& at = layout.columns[c];
    BatchColumn& column = columns_[c];
    column.column = &schema[c];
    column.values = slab.subspan(at.values_offset, at.values_bytes);
    if (at.has_missing) {
      auto* present = array_at<std::uint8_t>(slab, at.present_offset);
      for (std::uint32_t i = 0; i < count_; ++i)
        present[i] = cuts.at(i, indices[c]).present ? 1 : 0;
      column.present = {present, count_};
    }
    if (!schema[c].is_ragged()) continue;
    auto* offsets = array_at<std::uint64_t>(slab, at.offsets_offset);
    offsets[0] = 0;
    const bool is_decoded = selection_->decoder(c) != nullptr;
    for (std::uint32_t i = 0; i < count_; ++i) {
      const ColumnBytes& cell = cuts.at(i, indices[c]);
      const std::uint64_t size = is_decoded ? needs.output_bytes[i * width + c] : cell.size();
      offsets[i + 1] = offsets[i] + (cell.present ? size : 0);
    }
    column.offsets = {offsets, std::size_t{count_} + 1};
  }
}

std::span<std::byte> BatchImpl::place_of(std::uint32_t slot, std::size_t column) const noexcept {
  const BatchColumn& to = columns_[column];
  if (const std::uint64_t fixed = to.column->fixed_size_bytes; fixed > 0)
    return to.values.subspan(slot * fixed, fixed);
  return to.values.subspan(to.offsets[slot], to.offsets[slot + 1] - to.offsets[slot]);
}

void BatchImpl::write_value(const ColumnBytes& cell, std::uint32_t slot, std::size_t column,
                            std::vector<BadValue>& bad) {
  const std::span<std::byte> out = place_of(slot, column);
  if (!cell.present) {
    std::fill(out.begin(), out.end(), std::byte{0});
  } else if (selection_->decoder(column) == nullptr) {
    cell.write_to(out);
  } else {
    std::vector<std::byte> copy;
    const auto position = static_cast<std::uint64_t>(ids_[slot]);
    const std::span<const std::byte> bytes = contiguous(cell, copy);
    Status status =
        selection_->values->make({.column = column,
                                  .position = position,
                                  .key = decode_key(selection_->seed, identity_.epoch, position),
                                  .stored = bytes},
                                 out);
    if (!status.ok()) bad.push_back(bad_value(slot, column, bytes, std::move(status)));
  }
}

void BatchImpl::fill_copies(const CutMatrix& cuts) {
  std::vector<BadValue> none;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (selection_->decoder(c) != nullptr) continue;
    for (std::uint32_t i = 0; i < count_; ++i)
      write_value(cuts.at(i, selection_->indices[c]), i, c, none);
  }
}

void BatchImpl::fill(const CutMatrix& cuts, std::uint32_t begin, std::uint32_t end,
                     std::vector<BadValue>& bad) {
  const std::vector<std::size_t>& indices = selection_->indices;
  const std::size_t width = columns_.size();
  // By slot, not by column: the columns of a sample are neighbours where they are read.
  for (std::uint32_t i = begin; i < end; ++i) {
    if (i + kPrefetchSlots < end && width > 0) prefetch(cuts.at(i + kPrefetchSlots, indices[0]));
    for (std::size_t c = 0; c < width; ++c) write_value(cuts.at(i, indices[c]), i, c, bad);
  }
}

}  // namespace headrace::feed
