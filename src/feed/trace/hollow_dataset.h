#pragma once
/// \file
/// HollowDataset: a dataset whose blocks lie where those of another do, and whose values are zeros,
/// or empty where they vary in size. For running a loader over bytes that are not there.
///
/// Threads: immutable.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/dataset.h"

namespace headrace::feed {

class HollowDataset final : public Dataset {
 public:
  explicit HollowDataset(std::shared_ptr<const Dataset> inner);

  Format format() const noexcept override { return inner_->format(); }
  const std::string& url() const noexcept override { return inner_->url(); }
  const std::vector<Column>& columns() const noexcept override { return inner_->columns(); }
  std::uint64_t sample_count() const noexcept override { return inner_->sample_count(); }
  std::uint64_t stored_bytes() const noexcept override { return inner_->stored_bytes(); }
  const std::string& fingerprint() const noexcept override { return inner_->fingerprint(); }
  const std::string& version_fingerprint() const noexcept override {
    return inner_->version_fingerprint();
  }
  std::uint32_t shard_count() const noexcept override { return inner_->shard_count(); }
  Shard shard(std::uint32_t index) const override { return inner_->shard(index); }
  std::uint32_t block_count() const noexcept override { return inner_->block_count(); }
  Block block(std::uint32_t index) const override { return inner_->block(index); }
  std::uint32_t block_of(std::uint64_t position) const override {
    return inner_->block_of(position);
  }
  std::uint64_t largest_block_bytes() const noexcept override {
    return inner_->largest_block_bytes();
  }
  std::uint64_t append_extents(std::uint32_t block, std::uint32_t begin, std::uint32_t end,
                               std::vector<Extent>& out) const override {
    return inner_->append_extents(block, begin, end, out);
  }
  void append_layout(std::uint32_t block, std::string& out) const override {
    inner_->append_layout(block, out);
  }
  bool is_compressed(std::uint32_t block) const override { return inner_->is_compressed(block); }
  bool is_unpacked(std::uint32_t block) const override { return inner_->is_unpacked(block); }
  Status decompress(std::uint32_t, std::span<const std::byte>,
                    std::span<std::byte>) const override {
    return {};
  }
  Result<std::shared_ptr<const UnpackedBlock>> unpack(std::uint32_t block,
                                                      std::span<const std::byte> stored,
                                                      SlabArena& arena) const override;
  std::uint64_t unpack_workspace_bytes(std::uint32_t block,
                                       std::span<const std::byte>) const override {
    return inner_->unpack_workspace_bytes(block, {});
  }
  Status verify(std::uint32_t, std::span<const std::byte>) const override { return {}; }
  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override;

 private:
  const std::shared_ptr<const Dataset> inner_;
  std::vector<std::byte> zeros_;  ///< As long as the largest value of a known size.
};

}  // namespace headrace::feed
