#pragma once
/// \file
/// What all formats share: a Dataset that is a view of index bytes plus a block table. One subclass
/// a format adds how to cut.
///
/// Place: between the index (index/) and formats/.
///
/// Threads: immutable.
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "headrace/dataset.h"
#include "shard/index/block_table.h"
#include "shard/index/hri.h"
#include "shard/index/index_file.h"

namespace headrace::detail {

/// Everything that a dataset is made of.
struct DatasetParts {
  std::string url;
  IndexBytes bytes;  ///< What `view` looks into.
  IndexView view;
  std::vector<Block> blocks;
};

/// FormatDriver::make of a format of which no option changes the datasets.
template <auto kMake>
Result<std::shared_ptr<const Dataset>> by_parts_alone(DatasetParts parts, const DatasetOptions&) {
  return kMake(std::move(parts));
}

class IndexedDataset : public Dataset {
 public:
  explicit IndexedDataset(DatasetParts parts);

  Format format() const noexcept override { return view_.format(); }
  const std::string& url() const noexcept override { return url_; }
  const std::vector<Column>& columns() const noexcept override { return view_.columns(); }
  std::uint64_t sample_count() const noexcept override { return view_.sample_count(); }
  std::uint64_t stored_bytes() const noexcept override { return view_.stored_bytes(); }
  const std::string& fingerprint() const noexcept override;
  const std::string& version_fingerprint() const noexcept override { return view_.fingerprint(); }
  std::uint32_t shard_count() const noexcept override {
    return static_cast<std::uint32_t>(view_.shards().size());
  }
  Shard shard(std::uint32_t index) const override;
  std::uint32_t block_count() const noexcept override {
    return static_cast<std::uint32_t>(blocks_.size());
  }
  Block block(std::uint32_t index) const override { return blocks_[index]; }
  std::uint32_t block_of(std::uint64_t position) const override;
  std::uint64_t largest_block_bytes() const noexcept override { return largest_block_bytes_; }
  std::uint64_t append_extents(std::uint32_t block, std::uint32_t begin, std::uint32_t end,
                               std::vector<Extent>& out) const override;
  /// Where each sample lies: of an empty one its extents say nothing.
  void append_layout(std::uint32_t block, std::string& out) const override;
  bool is_compressed(std::uint32_t block) const override {
    return shard_of(block).compression != Compression::kNone;
  }
  bool is_unpacked(std::uint32_t block) const override {
    return shard_of(block).compression == Compression::kUnpacked;
  }
  Status decompress(std::uint32_t block, std::span<const std::byte> stored,
                    std::span<std::byte> raw) const override;
  Status verify(std::uint32_t block, std::span<const std::byte> stored) const override;
  std::span<const std::byte> index_bytes() const noexcept override { return bytes_.whole(); }
  std::span<const BrokenShard> broken_shards() const noexcept override { return view_.broken(); }
  std::span<const CutEnd> cut_ends() const noexcept override { return view_.cut_ends(); }

 protected:
  const IndexView& view() const noexcept { return view_; }
  /// False when no shard is compressed: spares a look at the block.
  bool has_compressed() const noexcept { return has_compressed_; }
  const Block& block_at(std::uint32_t index) const noexcept { return blocks_[index]; }
  const ShardRecord& shard_of(std::uint32_t block) const noexcept {
    return view_.shards()[blocks_[block].shard];
  }
  /// Index in its shard of the first sample of a block.
  std::uint64_t first_in_shard(std::uint32_t block) const noexcept {
    return blocks_[block].first_sample - shard_of(block).first_sample;
  }
  /// Where the bytes of a block begin in the address space of its shard, once it is ready to cut.
  std::uint64_t block_origin(std::uint32_t block) const noexcept;
  /// The frames of a block. \pre shard_of(block).frame_count > 0.
  FrameRun frames_of_block(std::uint32_t block) const noexcept {
    return frames_of(view_, shard_of(block), first_in_shard(block), blocks_[block].sample_count);
  }
  /// The bytes of sample `index` inside what append_extents() laid out, or decompress() made of it;
  /// an error unless they lie in bytes.bytes. For shards with boundaries.
  Result<std::span<const std::byte>> sample_bytes(const BlockBytes& bytes,
                                                  std::uint32_t index) const;
  /// Ok unless the index could not be read: then nothing that its boundaries say may be believed.
  Status index_status() const {
    return bytes_.pages() == nullptr ? Status() : bytes_.pages()->status();
  }
  /// Ok unless the block is of a broken shard, which has no bytes. For each cut() that does not
  /// ask sample_bytes().
  Status check_whole(std::uint32_t block, std::uint32_t index) const {
    if (view_.broken().empty() || !shard_of(block).is_broken) return Status();
    return broken_sample(block, index);
  }
  /// kCorrupt, naming the shard's object and the sample.
  Status corrupt_sample(std::uint32_t block, std::uint32_t index, std::string_view what) const;

 private:
  Status broken_sample(std::uint32_t block, std::uint32_t index) const;
  Status inflate_frames(std::uint32_t block, std::span<const std::byte> stored,
                        std::span<std::byte> raw) const;

  const std::string url_;
  const IndexBytes bytes_;
  const IndexView view_;
  const std::vector<Block> blocks_;
  std::uint64_t largest_block_bytes_ = 0;
  bool has_compressed_ = false;
  mutable std::once_flag has_fingerprint_;
  mutable std::string fingerprint_;  ///< Once has_fingerprint_.
  /// block_origin() of every block; empty when no shard has frames.
  std::vector<std::uint64_t> origins_;
};

/// Shards with boundaries, whose samples a `Cutter` cuts: Status cut(bytes, out) const.
template <class Cutter>
class CutterDataset final : public IndexedDataset {
 public:
  /// `arguments` and the columns make the cutter.
  template <class... Arguments>
  explicit CutterDataset(DatasetParts parts, Arguments&&... arguments)
      : IndexedDataset(std::move(parts)),
        cutter_(std::forward<Arguments>(arguments)..., columns()) {}

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == columns().size());
    HEADRACE_TRY_ASSIGN(const auto sample, sample_bytes(bytes, index));
    const Status status = cutter_.cut(sample, out);
    return status.ok() ? Status() : corrupt_sample(bytes.block, index, status.message());
  }

 private:
  const Cutter cutter_;
};

/// Makes the dataset of the index's format. Errors: kCorrupt, kUnsupported (what the format's own
/// reader of the layout says).
Result<std::shared_ptr<const Dataset>> make_dataset(DatasetParts parts,
                                                    const DatasetOptions& options);

}  // namespace headrace::detail
