#include <fmt/format.h>

#include <memory>

#include "base/check.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/formats/arrayrecord/array_record_driver.h"
#include "shard/formats/arrayrecord/riegeli.h"

namespace headrace::detail {
namespace {

class ArrayRecordDataset final : public IndexedDataset {
 public:
  using IndexedDataset::IndexedDataset;

  Status decompress(std::uint32_t block, std::span<const std::byte> stored,
                    std::span<std::byte> raw) const override {
    const ShardRecord& shard = shard_of(block);
    const FrameRun run = frames_of_block(block);
    const Frame first = view().frame_of(shard, run.begin);
    if (stored.size() != block_at(block).stored_bytes || raw.size() != block_at(block).raw_bytes)
      return Status(Code::kInvalidArgument, "buffers of other sizes than the block");
    for (std::uint32_t i = run.begin; i < run.end; ++i) {
      const Frame frame = view().frame_of(shard, i);
      Status status = read_simple_chunk(
          stored.subspan(frame.stored_begin - first.stored_begin, frame.stored_bytes),
          frame.stored_begin, records_of(shard, i),
          raw.subspan(frame.raw_begin - first.raw_begin, frame.raw_bytes));
      if (!status.ok()) {
        return std::move(status).annotate(fmt::format(
            "{}/{} at byte {}", url(), view().object(shard.first_object).key, frame.stored_begin));
      }
    }
    return Status();
  }

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == 1);
    const ShardRecord& shard = shard_of(bytes.block);
    const std::uint64_t sample = first_in_shard(bytes.block) + index;
    const std::uint32_t chunk = frames_of(view(), shard, sample, 1).begin;
    const Frame frame = view().frame_of(shard, chunk);
    const std::uint64_t origin = block_origin(bytes.block);
    if (frame.raw_begin < origin || frame.raw_begin - origin > bytes.bytes.size() ||
        frame.raw_bytes > bytes.bytes.size() - (frame.raw_begin - origin)) {
      return corrupt_sample(bytes.block, index, "lies outside the bytes of its block");
    }
    auto record = record_of(bytes.bytes.subspan(frame.raw_begin - origin, frame.raw_bytes),
                            records_of(shard, chunk), sample - frame.first_sample);
    if (!record) return corrupt_sample(bytes.block, index, record.error().message());
    out[0] = ColumnBytes{};
    out[0].bytes = *record;
    out[0].present = true;
    return Status();
  }

 private:
  std::uint64_t records_of(const ShardRecord& shard, std::uint32_t chunk) const {
    const std::uint64_t end = chunk + 1 < shard.frame_count
                                  ? view().frame_of(shard, chunk + 1).first_sample
                                  : shard.sample_count;
    return end - view().frame_of(shard, chunk).first_sample;
  }
};

}  // namespace

Result<std::shared_ptr<const Dataset>> make_array_record_dataset(DatasetParts parts) {
  bool fits = parts.view.columns().size() == 1;
  for (const ShardRecord& shard : parts.view.shards()) {
    fits = fits && (shard.sample_count == 0 ||
                    (shard.compression == Compression::kOwn && shard.frame_count > 0));
  }
  if (!fits)
    return Status(Code::kCorrupt, fmt::format("{}: its index is not of chunks", parts.url));
  return std::shared_ptr<const Dataset>(std::make_shared<ArrayRecordDataset>(std::move(parts)));
}

}  // namespace headrace::detail
