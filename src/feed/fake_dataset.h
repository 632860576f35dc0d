#pragma once
/// \file
/// FakeDataset: a Dataset for the tests of src/feed, whose every byte follows from the sample's
/// position, and the objects that hold it.
///
/// Threads: immutable.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "headrace/dataset.h"
#include "headrace/loader.h"
#include "store/memory/memory_store.h"

namespace headrace::feed_test {

/// Columns: "x" of 24 bytes; "text" of varying size; "opt", which every third sample lacks.
struct FakeSpec {
  std::vector<std::uint32_t> block_samples = {10, 7, 12, 1, 9, 11, 10, 8};
  std::uint32_t blocks_per_shard = 2;  ///< 1 where is_compressed.
  bool is_compressed = false;
  bool is_object_per_sample = false;  ///< Like raw files.
  std::uint32_t text_bytes = 100;     ///< Texts are shorter than this.
  bool only_fixed = false;
  bool is_unpacked = false;           ///< Blocks are made ready by unpack(). Implies is_compressed.
  std::uint64_t workspace_bytes = 0;  ///< What unpack() needs besides.
  /// Of what unpacking takes, this part is told before it is tried.
  std::uint32_t told_percent = 100;
  bool has_extents = true;    ///< False, with is_unpacked: unpack() finds the bytes by itself.
  bool has_writers = false;   ///< Texts do not lie in the bytes as they are delivered.
  bool is_versioned = false;  ///< Extents name the version kFakeVersion, and whole objects.
  bool is_checked = false;    ///< cut() and decompress() notice any bit that differs.
  std::set<std::uint64_t> bad_samples = {};  ///< cut() finds them corrupt.
  std::set<std::uint32_t> bad_blocks = {};   ///< Where is_compressed: they do not inflate.
};

inline constexpr std::string_view kFakeVersion = "v";

class FakeDataset final : public Dataset {
 public:
  explicit FakeDataset(FakeSpec spec) : spec_(std::move(spec)) {
    columns_.resize(spec_.only_fixed ? 1 : 3);
    columns_[0].name = "x";
    columns_[0].fixed_size_bytes = kFixedBytes;
    if (!spec_.only_fixed) {
      columns_[1].name = "text";
      columns_[2].name = "opt";
    }
    if (spec_.is_unpacked) spec_.is_compressed = true;
    if (spec_.is_compressed) spec_.blocks_per_shard = 1;
    std::uint64_t first = 0;
    for (std::size_t b = 0; b < spec_.block_samples.size(); ++b) {
      Block block;
      block.shard = static_cast<std::uint32_t>(b / spec_.blocks_per_shard);
      block.sample_count = spec_.block_samples[b];
      block.first_sample = first;
      std::vector<std::uint64_t> starts = {0};
      for (std::uint32_t i = 0; i < block.sample_count; ++i)
        starts.push_back(starts.back() + encode(first + i).size());
      block.raw_bytes = starts.back();
      block.stored_bytes = spec_.is_compressed ? block.raw_bytes + kHeader : block.raw_bytes;
      if (!spec_.has_extents) block.stored_bytes = 0;
      if (spec_.is_unpacked) block.raw_bytes = told(block.raw_bytes);
      first += block.sample_count;
      stored_bytes_ += block.stored_bytes;
      blocks_.push_back(block);
      starts_.push_back(std::move(starts));
      if (block.shard == keys_.size()) keys_.push_back("shard-" + std::to_string(block.shard));
    }
    sample_count_ = first;
    for (std::uint64_t id = 0; id < sample_count_ && spec_.is_object_per_sample; ++id)
      file_keys_.push_back("file-" + std::to_string(id));
    fingerprint_ = "fake-" + std::to_string(sample_count_) + "-" + std::to_string(stored_bytes_);
    version_fingerprint_ = fingerprint_ + "-v";
  }

  static constexpr std::size_t kFixedBytes = 24;
  static constexpr std::size_t kHeader = 8;

  // What the samples hold.
  static std::string fixed_value(std::uint64_t id) {
    std::string bytes(kFixedBytes, '\0');
    for (std::size_t i = 0; i < kFixedBytes; i += 8) {
      const std::uint64_t word = mix64(id * 3 + i);
      std::memcpy(bytes.data() + i, &word, 8);
    }
    return bytes;
  }
  std::string text_value(std::uint64_t id) const {
    std::string text(mix64(id + 99) % spec_.text_bytes, static_cast<char>('a' + id % 26));
    for (std::size_t i = 0; i < text.size(); i += 2) text[i] = static_cast<char>('0' + i / 2 % 10);
    return text;
  }
  static bool has_opt(std::uint64_t id) { return id % 3 != 0; }
  static std::string opt_value(std::uint64_t id) { return "opt" + std::to_string(id); }

  /// The objects of the dataset, by key.
  std::map<std::string, std::string> objects() const {
    std::map<std::string, std::string> objects;
    for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
      std::string bytes;
      for (std::uint32_t i = 0; i < blocks_[b].sample_count; ++i) {
        const std::string sample = encode(blocks_[b].first_sample + i);
        if (spec_.is_object_per_sample) objects[file_keys_[blocks_[b].first_sample + i]] = sample;
        bytes += sample;
      }
      if (spec_.is_compressed) {
        for (char& c : bytes) c = static_cast<char>(c ^ 0x5a);
        bytes.insert(0, std::string(kHeader, 'Z'));
      }
      if (!spec_.is_object_per_sample) objects[keys_[blocks_[b].shard]] += bytes;
    }
    return objects;
  }
  /// The objects of the dataset in a memory store.
  std::unique_ptr<Store> make_store(SlabPool& pool) const {
    StoreOptions options;
    options.url = "memory://fake";
    auto store = open_memory_store(options);
    EXPECT_TRUE(store);
    for (const auto& [key, bytes] : objects()) EXPECT_TRUE(write_object(**store, pool, key, bytes));
    return *std::move(store);
  }

  Format format() const noexcept override { return Format::kMds; }
  const std::string& url() const noexcept override { return url_; }
  const std::vector<Column>& columns() const noexcept override { return columns_; }
  std::uint64_t sample_count() const noexcept override { return sample_count_; }
  std::uint64_t stored_bytes() const noexcept override { return stored_bytes_; }
  const std::string& fingerprint() const noexcept override { return fingerprint_; }
  const std::string& version_fingerprint() const noexcept override { return version_fingerprint_; }
  std::uint32_t shard_count() const noexcept override {
    return static_cast<std::uint32_t>(keys_.size());
  }
  Shard shard(std::uint32_t index) const override {
    Shard shard;
    shard.key = keys_[index];
    shard.compression = spec_.is_compressed ? "xor" : "";
    for (const Block& b : blocks_) {
      if (b.shard < index) shard.first_sample += b.sample_count;
      if (b.shard == index) shard.sample_count += b.sample_count;
    }
    return shard;
  }
  std::uint32_t block_count() const noexcept override {
    return static_cast<std::uint32_t>(blocks_.size());
  }
  Block block(std::uint32_t index) const override { return blocks_[index]; }
  std::uint32_t block_of(std::uint64_t position) const override {
    std::uint32_t b = 0;
    while (position >= blocks_[b].first_sample + blocks_[b].sample_count) ++b;
    return b;
  }
  std::uint64_t largest_block_bytes() const noexcept override {
    std::uint64_t most = 0;
    for (const Block& b : blocks_)
      most = std::max(most, b.stored_bytes + (spec_.is_compressed ? b.raw_bytes : 0));
    return most;
  }
  std::uint64_t append_extents(std::uint32_t b, std::uint32_t begin, std::uint32_t end,
                               std::vector<Extent>& out) const override {
    EXPECT_LT(begin, end);
    if (!spec_.has_extents) return 0;
    if (spec_.is_object_per_sample) {
      for (std::uint32_t i = begin; i < end; ++i) {
        out.push_back({.key = file_keys_[blocks_[b].first_sample + i],
                       .etag = version(),
                       .offset_bytes = 0,
                       .length_bytes = starts_[b][i + 1] - starts_[b][i],
                       .target_offset_bytes = starts_[b][i] - starts_[b][begin],
                       .is_whole_object = spec_.is_versioned});
      }
      return starts_[b][end] - starts_[b][begin];
    }
    Extent extent{.key = keys_[blocks_[b].shard],
                  .etag = version(),
                  .offset_bytes = offset_of(b),
                  .length_bytes = 0,
                  .target_offset_bytes = 0};
    if (spec_.is_compressed) {
      extent.length_bytes = blocks_[b].stored_bytes;
      extent.is_whole_object = spec_.is_versioned;
    } else {
      extent.offset_bytes += starts_[b][begin];
      extent.length_bytes = starts_[b][end] - starts_[b][begin];
    }
    out.push_back(extent);
    return extent.length_bytes;
  }
  bool is_compressed(std::uint32_t) const override { return spec_.is_compressed; }
  bool is_unpacked(std::uint32_t) const override { return spec_.is_unpacked; }
  std::uint64_t unpack_workspace_bytes(std::uint32_t,
                                       std::span<const std::byte> stored) const override {
    return stored.empty() && spec_.has_extents ? told(spec_.workspace_bytes)
                                               : spec_.workspace_bytes;
  }
  Result<std::shared_ptr<const UnpackedBlock>> unpack(std::uint32_t b,
                                                      std::span<const std::byte> stored,
                                                      SlabArena& arena) const override {
    auto unpacked = std::make_shared<FakeUnpacked>();
    HEADRACE_TRY_ASSIGN(unpacked->raw, arena.take(starts_[b].back()));
    std::string made;
    if (!spec_.has_extents) {
      made = std::string(kHeader, 'Z');
      for (std::uint32_t i = 0; i < blocks_[b].sample_count; ++i)
        made += encode(blocks_[b].first_sample + i);
      for (std::size_t i = kHeader; i < made.size(); ++i)
        made[i] = static_cast<char>(made[i] ^ 0x5a);
      EXPECT_TRUE(stored.empty());
      stored = std::as_bytes(std::span(made));
    }
    HEADRACE_TRY(decompress(b, stored, unpacked->raw));
    return std::shared_ptr<const UnpackedBlock>(std::move(unpacked));
  }
  Status decompress(std::uint32_t b, std::span<const std::byte> stored,
                    std::span<std::byte> raw) const override {
    if (stored.size() != raw.size() + kHeader || raw.size() != starts_[b].back() ||
        stored[0] != std::byte{'Z'} || spec_.bad_blocks.contains(b)) {
      return Status(Code::kCorrupt, "fake shard");
    }
    for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = stored[i + kHeader] ^ std::byte{0x5a};
    // Every other block has a sum over all, the others leave it to their samples.
    if (spec_.is_checked && b % 2 == 0) {
      for (std::uint32_t i = 0; i < blocks_[b].sample_count; ++i) {
        const auto sample = raw.subspan(starts_[b][i], starts_[b][i + 1] - starts_[b][i]);
        if (!is_intact(sample, blocks_[b].first_sample + i))
          return Status(Code::kCorrupt, "checksum of a fake block");
      }
    }
    return {};
  }
  Status verify(std::uint32_t, std::span<const std::byte>) const override { return {}; }
  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    EXPECT_TRUE(bytes.begin <= index && index < bytes.end && out.size() == columns_.size());
    const auto& starts = starts_[bytes.block];
    const std::uint64_t offset = starts[index] - starts[bytes.begin];
    const std::uint64_t length = starts[index + 1] - starts[index];
    EXPECT_EQ(bytes.unpacked != nullptr, spec_.is_unpacked);
    const std::span<const std::byte> all =
        bytes.unpacked != nullptr
            ? std::span<const std::byte>(static_cast<const FakeUnpacked*>(bytes.unpacked)->raw)
            : bytes.bytes;
    if (spec_.bad_samples.contains(blocks_[bytes.block].first_sample + index))
      return Status(Code::kCorrupt, "fake sample");
    if (offset + length > all.size()) return Status(Code::kCorrupt, "sample outside of its bytes");
    const std::span<const std::byte> sample = all.subspan(offset, length);
    if (spec_.is_checked && !is_intact(sample, blocks_[bytes.block].first_sample + index))
      return Status(Code::kCorrupt, "checksum of a fake sample");
    out[0] = {sample.first(kFixedBytes), true};
    if (spec_.only_fixed) return {};
    std::uint32_t text = 0;
    std::memcpy(&text, sample.data() + kFixedBytes, 4);
    const bool has = sample[kFixedBytes + 4] != std::byte{0};
    if (kFixedBytes + 5 + text > length)
      return Status(Code::kCorrupt, "text outside of the sample");
    out[1] = {.bytes = sample.subspan(kFixedBytes + 5, text), .present = true};
    if (spec_.has_writers) {
      out[1].writer = [](const ColumnBytes& cell, std::span<std::byte> value) noexcept {
        std::reverse_copy(cell.bytes.begin(), cell.bytes.end(), value.begin());
      };
      out[1].value_bytes = text;
    }
    out[2] = {has ? sample.subspan(kFixedBytes + 5 + text) : std::span<const std::byte>(), has};
    return {};
  }

 private:
  std::string_view version() const noexcept {
    return spec_.is_versioned ? kFakeVersion : std::string_view();
  }
  struct FakeUnpacked final : UnpackedBlock {
    std::span<std::byte> raw;  // In the arena.
  };

  std::uint64_t told(std::uint64_t bytes) const { return bytes * spec_.told_percent / 100; }
  bool is_intact(std::span<const std::byte> sample, std::uint64_t id) const {
    const std::string right = encode(id);
    return sample.size() == right.size() &&
           std::memcmp(sample.data(), right.data(), right.size()) == 0;
  }
  std::string encode(std::uint64_t id) const {
    std::string bytes = fixed_value(id);
    if (spec_.only_fixed) return bytes;
    std::string text = text_value(id);
    if (spec_.has_writers) std::reverse(text.begin(), text.end());
    const auto size = static_cast<std::uint32_t>(text.size());
    bytes.append(reinterpret_cast<const char*>(&size), 4);
    bytes.push_back(has_opt(id) ? 1 : 0);
    return bytes + text + (has_opt(id) ? opt_value(id) : "");
  }
  std::uint64_t offset_of(std::uint32_t b) const {
    std::uint64_t offset = 0;
    for (std::uint32_t i = b; i > 0 && blocks_[i - 1].shard == blocks_[b].shard; --i)
      offset += blocks_[i - 1].stored_bytes;
    return offset;
  }

  FakeSpec spec_;
  std::string url_ = "memory://fake";
  std::string fingerprint_;
  std::string version_fingerprint_;
  std::vector<Column> columns_;
  std::vector<Block> blocks_;
  std::vector<std::vector<std::uint64_t>> starts_;  ///< Of samples in their block's raw bytes.
  std::vector<std::string> keys_;
  std::vector<std::string> file_keys_;
  std::uint64_t sample_count_ = 0;
  std::uint64_t stored_bytes_ = 0;
};

/// Samples of up to `most_blocks` blocks, each of 1 to `most_samples`.
inline std::vector<std::uint32_t> random_blocks(Random& random, std::uint64_t most_blocks,
                                                std::uint64_t most_samples) {
  std::vector<std::uint32_t> samples(1 + random.below(most_blocks));
  for (auto& count : samples) count = static_cast<std::uint32_t>(1 + random.below(most_samples));
  return samples;
}

/// Up to 24 blocks of up to 400 samples, compressed or an object a sample in half of the cases.
inline FakeSpec random_layout(Random& random) {
  FakeSpec spec;
  spec.block_samples = random_blocks(random, 24, 1 + random.below(random.below(4) == 0 ? 400 : 40));
  spec.blocks_per_shard = static_cast<std::uint32_t>(1 + random.below(4));
  const std::uint64_t kind = random.below(6);
  spec.is_compressed = kind < 2;
  spec.is_object_per_sample = kind == 2;
  return spec;
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Checks every value of a batch against its ids.
inline void expect_right_bytes(const FakeDataset& dataset, const Batch& batch,
                               const LoaderOptions& options = {}) {
  for (std::uint32_t i = 0; i < batch.count(); ++i) {
    const auto id = static_cast<std::uint64_t>(batch.ids()[i]);
    for (const BatchColumn& column : batch.columns()) {
      const std::string& name = column.column->name;
      if (options.decode.contains(name)) continue;  // See expect_decoded_bytes().
      if (name == "x") {
        ASSERT_EQ(
            text_of(column.values.subspan(i * FakeDataset::kFixedBytes, FakeDataset::kFixedBytes)),
            FakeDataset::fixed_value(id));
        continue;
      }
      const std::string_view value = text_of(
          column.values.subspan(column.offsets[i], column.offsets[i + 1] - column.offsets[i]));
      const bool is_present = column.present.empty() || column.present[i] != 0;
      if (name == "text") {
        ASSERT_TRUE(is_present);
        ASSERT_EQ(value, dataset.text_value(id));
      } else {
        ASSERT_EQ(is_present, FakeDataset::has_opt(id));
        ASSERT_EQ(value, is_present ? FakeDataset::opt_value(id) : "");
      }
    }
  }
}

}  // namespace headrace::feed_test
