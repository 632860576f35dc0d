// Three kinds of files, told apart by the index's layout text: none (an .npy, whose rows are bytes
// of one width), the offsets of arrays in an uncompressed .npz (a row is a piece of each array:
// one extent a column), and the members of a compressed .npz (nothing can be cut from within: the
// whole file is a block).
//
// Both readers rely on what they check when the dataset is made: that rows have the width of the
// columns together, or that every shard is of whole members.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "shard/codec/inflate.h"
#include "shard/dataset/fixed_dataset.h"
#include "shard/formats/numpy/numpy_driver.h"
#include "shard/formats/numpy/packed_layout.h"
#include "shard/formats/numpy/row_layout.h"

namespace headrace::detail {
namespace {

// Rows of an .npz: one extent a column, one after another in the buffer.
class NpzDataset final : public IndexedDataset {
 public:
  NpzDataset(DatasetParts parts, RowLayout layout)
      : IndexedDataset(std::move(parts)), layout_(std::move(layout)) {}

  std::uint64_t append_extents(std::uint32_t block, std::uint32_t begin, std::uint32_t end,
                               std::vector<Extent>& out) const override {
    const IndexObject object = view().object(shard_of(block).first_object);
    const auto& offsets = layout_[block_at(block).shard];
    const std::uint64_t first = first_in_shard(block) + begin;
    std::uint64_t target = 0;
    for (std::size_t c = 0; c < offsets.size(); ++c) {
      const std::uint64_t width = columns()[c].fixed_size_bytes;
      const std::uint64_t length = width * (end - begin);
      out.push_back({object.key, object.etag, offsets[c] + width * first, length, target});
      target += length;
    }
    return target;
  }

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == columns().size());
    const std::uint64_t count = bytes.end - bytes.begin;
    std::uint64_t target = 0;
    for (std::size_t c = 0; c < out.size(); ++c) {
      const std::uint64_t width = columns()[c].fixed_size_bytes;
      const std::uint64_t at = target + width * (index - bytes.begin);
      if (at + width > bytes.bytes.size())
        return corrupt_sample(bytes.block, index, "lies outside its block");
      out[c] = {bytes.bytes.subspan(at, width), true};
      target += width * count;
    }
    return Status();
  }

 private:
  const RowLayout layout_;
};

// Rows of a compressed .npz: whole arrays, inflated together.
class PackedNpzDataset final : public IndexedDataset {
 public:
  PackedNpzDataset(DatasetParts parts, PackedLayout layout)
      : IndexedDataset(std::move(parts)), layout_(std::move(layout)) {}

  Status decompress(std::uint32_t block, std::span<const std::byte> stored,
                    std::span<std::byte> raw) const override {
    const std::uint32_t shard = block_at(block).shard;
    for (std::size_t c = 0; c < layout_[shard].size(); ++c) {
      const PackedMember& member = layout_[shard][c];
      Status status = inflate_member(member, stored, raw.first(member.raw_bytes));
      raw = raw.subspan(member.raw_bytes);
      if (status.ok()) continue;
      const IndexObject object = view().object(shard_of(block).first_object);
      return std::move(status).annotate(
          fmt::format("inflating '{}' of {}/{}", columns()[c].name, url(), object.key));
    }
    return Status();
  }

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == columns().size());
    std::uint64_t begin = 0;
    for (std::size_t c = 0; c < out.size(); ++c) {
      const PackedMember& member = layout_[block_at(bytes.block).shard][c];
      const std::uint64_t width = columns()[c].fixed_size_bytes;
      const std::uint64_t at = begin + member.header_bytes + width * index;
      if (at + width > bytes.bytes.size())
        return corrupt_sample(bytes.block, index, "lies outside its block");
      out[c] = {bytes.bytes.subspan(at, width), true};
      begin += member.raw_bytes;
    }
    return Status();
  }

 private:
  static Status inflate_member(const PackedMember& member, std::span<const std::byte> stored,
                               std::span<std::byte> raw) {
    if (stored.size() < member.offset_bytes + member.stored_bytes)
      return Status(Code::kCorrupt, "lies outside its object");
    stored = stored.subspan(member.offset_bytes, member.stored_bytes);
    if (member.is_deflated) return inflate_bare(stored, raw, member.crc32);
    if (stored.size() != raw.size()) return Status(Code::kCorrupt, "has another size");
    std::copy(stored.begin(), stored.end(), raw.begin());
    return check_crc32(raw, member.crc32);
  }

  const PackedLayout layout_;
};

Result<std::shared_ptr<const Dataset>> make_packed_dataset(DatasetParts parts) {
  auto layout = parse_packed_layout(parts.view.layout(), parts.view);
  if (!layout) return std::move(layout).error().annotate(parts.url);
  for (const ShardRecord& shard : parts.view.shards()) {
    if (shard.compression != Compression::kOwn || shard.frame_count != 0)
      return Status(Code::kCorrupt, fmt::format("{}: its index is not of arrays", parts.url));
  }
  return std::shared_ptr<const Dataset>(
      std::make_shared<PackedNpzDataset>(std::move(parts), *std::move(layout)));
}

// The block table knows rows by these boundaries.
bool has_row_bounds(const IndexView& index) {
  std::uint64_t row_bytes = 0;
  for (const Column& column : index.columns()) {
    if (column.fixed_size_bytes == 0) return false;
    row_bytes += column.fixed_size_bytes;
  }
  for (const ShardRecord& shard : index.shards()) {
    if (shard.compression != Compression::kNone || shard.has_gaps || shard.bounds.base != 0 ||
        shard.bounds.first_group != kNoGroups || shard.bounds.stride != row_bytes) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<std::shared_ptr<const Dataset>> make_numpy_dataset(DatasetParts parts) {
  if (parts.view.layout().empty()) return make_fixed_dataset(std::move(parts));
  if (is_packed_layout(parts.view.layout())) return make_packed_dataset(std::move(parts));
  auto layout = parse_row_layout(parts.view.layout(), parts.view);
  if (!layout) return std::move(layout).error().annotate(parts.url);
  if (!has_row_bounds(parts.view))
    return Status(Code::kCorrupt, fmt::format("{}: its index is not of rows", parts.url));
  return std::shared_ptr<const Dataset>(
      std::make_shared<NpzDataset>(std::move(parts), *std::move(layout)));
}

}  // namespace headrace::detail
