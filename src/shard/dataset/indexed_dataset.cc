// Nothing is parsed when a dataset is opened: `view_` looks into the bytes of the index, and every
// offset is looked up when it is asked for. Those bytes may come page by page from a file, and a
// page that cannot be read gives offsets that mean nothing. Hence the order in sample_bytes():
// first the lookup, then index_status(), then the comparison; append_extents() has no status to
// return, so it asks for nothing when a page has failed and leaves the reason to sample_bytes().
//
// Three kinds of shards have different origins for the same offsets:
// - plain: offsets are positions in the object, and a block may be there in part, from any sample
//   on;
// - compressed as a whole: the block is the shard and begins at 0 of its inflated bytes;
// - in frames: offsets count inflated bytes of the shard, a block begins where its first frame
//   does (origins_, worked out once, because finding the frame is a search).
//
// Every offset is compared with the bytes that are there before it is used: an index comes from a
// store and may be wrong or hostile.
#include "shard/dataset/indexed_dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "shard/codec/digest.h"
#include "shard/codec/inflate.h"
#include "shard/dataset/fingerprint.h"
#include "shard/dataset/format_driver.h"

namespace headrace::detail {

IndexedDataset::IndexedDataset(DatasetParts parts)
    : url_(std::move(parts.url)),
      bytes_(std::move(parts.bytes)),
      view_(std::move(parts.view)),
      blocks_(std::move(parts.blocks)) {
  bool has_frames = false;
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    const ShardRecord& shard = shard_of(b);
    const bool is_inflated = shard.compression != Compression::kNone;
    const std::uint64_t inflated = is_inflated ? blocks_[b].raw_bytes : 0;
    has_compressed_ = has_compressed_ || is_inflated;
    has_frames = has_frames || shard.frame_count > 0;
    // While a block is inflated, both its forms are in memory.
    largest_block_bytes_ = std::max(largest_block_bytes_, blocks_[b].stored_bytes + inflated);
  }
  if (!has_frames) return;
  origins_.resize(blocks_.size());
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    const ShardRecord& shard = shard_of(b);
    if (shard.frame_count > 0)
      origins_[b] = view_.frame_of(shard, frames_of_block(b).begin).raw_begin;
  }
}

const std::string& IndexedDataset::fingerprint() const noexcept {
  // A walk over all objects and shards: only for those who ask.
  std::call_once(has_fingerprint_, [this] { fingerprint_ = content_fingerprint(view_); });
  return fingerprint_;
}

Dataset::Shard IndexedDataset::shard(std::uint32_t index) const {
  const ShardRecord& record = view_.shards()[index];
  const IndexObject object = view_.object(record.first_object);
  return Shard{.key = object.key,
               .etag = object.etag,
               .size_bytes = record.stored_bytes,
               .first_sample = record.first_sample,
               .sample_count = record.sample_count,
               .compression = compression_name(record.compression),
               .hashes = record.hashes};
}

std::uint32_t IndexedDataset::block_of(std::uint64_t position) const {
  const auto after =
      std::upper_bound(blocks_.begin(), blocks_.end(), position,
                       [](std::uint64_t p, const Block& b) { return p < b.first_sample; });
  return static_cast<std::uint32_t>(after - blocks_.begin()) - 1;
}

std::uint64_t IndexedDataset::append_extents(std::uint32_t block, std::uint32_t begin,
                                             std::uint32_t end, std::vector<Extent>& out) const {
  const ShardRecord& shard = shard_of(block);
  const IndexObject object = view_.object(shard.first_object);
  std::uint64_t from = 0;
  std::uint64_t to = shard.stored_bytes;
  if (shard.compression == Compression::kNone) {
    const std::uint64_t first = first_in_shard(block);
    from = view_.begin_of(shard, first + begin);
    to = std::max(from, view_.end_of(shard, first + end - 1));
    // One of the two may be wrong; sample_bytes() then says why.
    if (bytes_.pages() != nullptr && bytes_.pages()->has_failed()) to = from;
  } else if (shard.frame_count > 0) {
    from = view_.frame_of(shard, frames_of_block(block).begin).stored_begin;
    to = from + blocks_[block].stored_bytes;
  }
  const bool is_whole = from == 0 && to == shard.stored_bytes;
  if (to > from) out.push_back({object.key, object.etag, from, to - from, 0, is_whole});
  return to - from;
}

void IndexedDataset::append_layout(std::uint32_t block, std::string& out) const {
  const ShardRecord& shard = shard_of(block);
  const std::uint64_t first = first_in_shard(block);
  for (std::uint64_t i = first; i < first + blocks_[block].sample_count; ++i) {
    const auto [begin, end] = view_.range_of(shard, i);
    const std::uint64_t range[] = {begin, end};
    out.append(reinterpret_cast<const char*>(range), sizeof(range));
  }
}

Status IndexedDataset::decompress(std::uint32_t block, std::span<const std::byte> stored,
                                  std::span<std::byte> raw) const {
  const ShardRecord& shard = shard_of(block);
  Status status = shard.frame_count == 0 ? inflate(shard.compression, stored, raw)
                                         : inflate_frames(block, stored, raw);
  if (status.ok()) return status;
  return std::move(status).annotate(
      fmt::format("inflating {}/{}", url_, view_.object(shard.first_object).key));
}

Status IndexedDataset::inflate_frames(std::uint32_t block, std::span<const std::byte> stored,
                                      std::span<std::byte> raw) const {
  if (stored.size() != blocks_[block].stored_bytes || raw.size() != blocks_[block].raw_bytes)
    return Status(Code::kInvalidArgument, "buffers of other sizes than the block");
  const ShardRecord& shard = shard_of(block);
  const FrameRun run = frames_of_block(block);
  const Frame first = view_.frame_of(shard, run.begin);
  for (std::uint32_t i = run.begin; i < run.end; ++i) {
    const Frame frame = view_.frame_of(shard, i);
    Status status =
        inflate(shard.compression,
                stored.subspan(frame.stored_begin - first.stored_begin, frame.stored_bytes),
                raw.subspan(frame.raw_begin - first.raw_begin, frame.raw_bytes));
    if (!status.ok())
      return std::move(status).annotate(fmt::format("frame at byte {}", frame.stored_begin));
  }
  return Status();
}

std::uint64_t IndexedDataset::block_origin(std::uint32_t block) const noexcept {
  const ShardRecord& shard = shard_of(block);
  if (shard.compression == Compression::kNone) return view_.begin_of(shard, first_in_shard(block));
  return origins_.empty() ? 0 : origins_[block];
}

Status IndexedDataset::verify(std::uint32_t block, std::span<const std::byte> stored) const {
  const ShardRecord& shard = shard_of(block);
  // A digest covers the whole object, so there is nothing to compare a part of a plain shard with.
  if (shard.hashes.empty() || stored.size() != shard.stored_bytes) return Status();
  Status status = check_digest(shard.hashes, stored);
  if (status.ok()) return status;
  return std::move(status).annotate(
      fmt::format("verifying {}/{}", url_, view_.object(shard.first_object).key));
}

Result<std::span<const std::byte>> IndexedDataset::sample_bytes(const BlockBytes& bytes,
                                                                std::uint32_t index) const {
  HEADRACE_TRY(check_whole(bytes.block, index));
  const ShardRecord& shard = shard_of(bytes.block);
  const std::uint64_t first = first_in_shard(bytes.block);
  // A plain block may be there in part, a compressed one is there as a whole.
  const std::uint64_t origin = shard.compression == Compression::kNone
                                   ? view_.begin_of(shard, first + bytes.begin)
                                   : block_origin(bytes.block);
  const auto [from, to] = view_.range_of(shard, first + index);
  HEADRACE_TRY(index_status());
  if (from < origin || to - origin > bytes.bytes.size()) {
    return corrupt_sample(bytes.block, index, "lies outside the bytes of its block");
  }
  return bytes.bytes.subspan(from - origin, to - from);
}

Status IndexedDataset::corrupt_sample(std::uint32_t block, std::uint32_t index,
                                      std::string_view what) const {
  const ShardRecord& shard = shard_of(block);
  return Status(Code::kCorrupt,
                fmt::format("{}/{}: sample {} (dataset position {}): {}", url_,
                            view_.object(shard.first_object).key, first_in_shard(block) + index,
                            block_at(block).first_sample + index, what));
}

Status IndexedDataset::broken_sample(std::uint32_t block, std::uint32_t index) const {
  const std::uint64_t first = shard_of(block).first_sample;
  for (const BrokenShard& shard : view_.broken()) {
    if (shard.sample_count > 0 && shard.first_sample == first)
      return corrupt_sample(block, index, fmt::format("its shard is broken: {}", shard.message));
  }
  return corrupt_sample(block, index, "its shard is broken");
}

Result<std::shared_ptr<const Dataset>> make_dataset(DatasetParts parts,
                                                    const DatasetOptions& options) {
  const FormatDriver* driver = driver_of(parts.view.format());
  if (driver == nullptr) return unknown_format(parts.url, parts.view.format());
  return driver->make(std::move(parts), options);
}

}  // namespace headrace::detail
