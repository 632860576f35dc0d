#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/endian.h"
#include "shard/codec/inflate.h"
#include "shard/dataset/fixed_dataset.h"
#include "shard/formats/litdata/fernet.h"
#include "shard/formats/litdata/framed.h"
#include "shard/formats/litdata/item.h"
#include "shard/formats/litdata/litdata_driver.h"
#include "shard/formats/litdata/litdata_layout.h"
#include "shard/formats/table/ipc_table.h"

namespace headrace::detail {
namespace {

using Kind = LitDataLayout::Kind;
using DatasetPtr = std::shared_ptr<const Dataset>;

// Items of leaves: plain, in zstd frames, or in whole chunks of which the table is in the bytes.
class ItemDataset : public IndexedDataset {
 public:
  explicit ItemDataset(DatasetParts parts) : IndexedDataset(std::move(parts)), leaves_(columns()) {}

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == columns().size());
    HEADRACE_TRY_ASSIGN(const auto item, item_bytes(bytes, index));
    const std::string_view problem = leaves_.cut(item, out);
    return problem.empty() ? Status() : corrupt_sample(bytes.block, index, problem);
  }

 protected:
  virtual Result<std::span<const std::byte>> item_bytes(const BlockBytes& bytes,
                                                        std::uint32_t index) const {
    const ShardRecord& shard = shard_of(bytes.block);
    if (shard.has_bounds) return sample_bytes(bytes, index);
    auto item = chunk_item(bytes.bytes, shard.sample_count, index);
    if (!item) return corrupt_sample(bytes.block, index, item.error().message());
    return *item;
  }

 private:
  const ItemLayout leaves_;
};

// Encrypted items. Where an item was encrypted by itself, decompress() puts it where its token was:
// u32 size, plain text, and what is left of the token's room.
class EncryptedDataset final : public ItemDataset {
 public:
  EncryptedDataset(DatasetParts parts, const FernetKey& key, ChunkEncryption level)
      : ItemDataset(std::move(parts)), key_(key), level_(level) {}

  Status decompress(std::uint32_t block, std::span<const std::byte> stored,
                    std::span<std::byte> raw) const override {
    Status status = open_block(block, stored, raw);
    if (status.ok()) return status;
    const IndexObject object = view().object(shard_of(block).first_object);
    return std::move(status).annotate(fmt::format("decrypting {}/{}", url(), object.key));
  }

 protected:
  Result<std::span<const std::byte>> item_bytes(const BlockBytes& bytes,
                                                std::uint32_t index) const override {
    HEADRACE_TRY_ASSIGN(const auto item, ItemDataset::item_bytes(bytes, index));
    if (level_ == ChunkEncryption::kChunk) return item;
    if (item.size() < 4 || load_le<std::uint32_t>(item.data()) > item.size() - 4)
      return corrupt_sample(bytes.block, index, "is not decrypted");
    return item.subspan(4, load_le<std::uint32_t>(item.data()));
  }

 private:
  Status open_block(std::uint32_t block, std::span<const std::byte> stored,
                    std::span<std::byte> raw) const {
    const ShardRecord& shard = shard_of(block);
    if (raw.size() != block_at(block).raw_bytes)
      return Status(Code::kInternal, "a buffer of another size than the block");
    if (shard.frame_count > 0) return open_frames(block, stored, raw);
    std::vector<std::byte> inflated;
    if (is_zstd_chunk(view().object(shard.first_object).key)) {
      inflated.resize(raw.size());
      HEADRACE_TRY(inflate(Compression::kZstd, stored, inflated));
      stored = inflated;
    }
    if (stored.size() > raw.size()) return Status(Code::kCorrupt, "more bytes than its index says");
    if (level_ == ChunkEncryption::kItem) return open_items(shard, stored, raw);
    HEADRACE_TRY_ASSIGN(const std::size_t size, open_token(stored, raw));
    std::fill(raw.begin() + static_cast<std::ptrdiff_t>(size), raw.end(), std::byte{0});
    if (size >= kArrowFooterBytes &&
        parse_arrow_footer(raw.subspan(size - kArrowFooterBytes, kArrowFooterBytes), size)) {
      return Status(Code::kUnsupported,
                    "Arrow rows in an encrypted chunk (litdata does not read them either)");
    }
    return Status();
  }

  Status open_frames(std::uint32_t block, std::span<const std::byte> stored,
                     std::span<std::byte> raw) const {
    const ShardRecord& shard = shard_of(block);
    if (stored.size() != block_at(block).stored_bytes)
      return Status(Code::kInternal, "a buffer of another size than the block");
    const FrameRun run = frames_of_block(block);
    const Frame first = view().frame_of(shard, run.begin);
    for (std::uint32_t f = run.begin; f < run.end; ++f) {
      const Frame frame = view().frame_of(shard, f);
      const auto token =
          stored.subspan(frame.stored_begin - first.stored_begin, frame.stored_bytes);
      HEADRACE_TRY(open_item(frame.first_sample, token,
                             raw.subspan(frame.raw_begin - first.raw_begin, frame.raw_bytes)));
    }
    return Status();
  }

  // All items of a classic chunk, each in its place.
  Status open_items(const ShardRecord& shard, std::span<const std::byte> chunk,
                    std::span<std::byte> raw) const {
    HEADRACE_TRY_ASSIGN(const auto offsets,
                        parse_chunk_table(chunk, shard.sample_count, chunk.size()));
    std::fill(raw.begin(), raw.end(), std::byte{0});
    std::copy_n(chunk.begin(), chunk_table_bytes(shard.sample_count), raw.begin());
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      const std::uint64_t size = offsets[i + 1] - offsets[i];
      HEADRACE_TRY(open_item(i, chunk.subspan(offsets[i], size), raw.subspan(offsets[i], size)));
    }
    return Status();
  }

  Status open_item(std::uint64_t index, std::span<const std::byte> token,
                   std::span<std::byte> place) const {
    const std::string where = fmt::format("item {}", index);
    // The plain text is at least 57 bytes shorter than its token, so that the size fits before it.
    if (place.size() < token.size() || place.size() < 4)
      return Status(Code::kCorrupt, where + ": no token");
    auto size = open_token(token, place);
    if (!size) return std::move(size).error().annotate(where);
    std::copy_backward(place.begin(), place.begin() + static_cast<std::ptrdiff_t>(*size),
                       place.begin() + static_cast<std::ptrdiff_t>(*size + 4));
    store_le(place.data(), static_cast<std::uint32_t>(*size));
    return Status();
  }

  Result<std::size_t> open_token(std::span<const std::byte> token, std::span<std::byte> out) const {
    if (const auto size = key_.decrypt(token, out)) {
      fits_.store(true, std::memory_order_relaxed);
      return *size;
    }
    // A token does not tell damage from another key; an earlier token of this key does.
    if (fits_.load(std::memory_order_relaxed))
      return Status(Code::kCorrupt, "its signature does not fit its bytes");
    return Status(Code::kDenied, "the password does not fit (or the data are damaged)");
  }

  const FernetKey key_;
  const ChunkEncryption level_;
  mutable std::atomic<bool> fits_{false};  // Relaxed: a hint for messages.
};

// As of Arrow files (table_dataset.cc): texts rarely shrink to less than a 20th; small batches do
// no harm.
constexpr std::uint64_t kMostInflation = 32;
constexpr std::uint64_t kAlwaysInflatedBytes = std::uint64_t{16} << 20;

// Rows that pyarrow unpacks, one Arrow file a chunk, one frame a record batch.
class RowDataset final : public IndexedDataset {
 public:
  RowDataset(DatasetParts parts, LitDataLayout layout)
      : IndexedDataset(std::move(parts)), layout_(std::move(layout)) {}

  Result<std::shared_ptr<const UnpackedBlock>> unpack(std::uint32_t block,
                                                      std::span<const std::byte> stored,
                                                      SlabArena& arena) const override {
    auto table = decode_rows(block, stored, arena);
    if (table) return std::shared_ptr<const UnpackedBlock>(*std::move(table));
    const IndexObject object = view().object(shard_of(block).first_object);
    return std::move(table).error().annotate(fmt::format("unpacking {}/{}", url(), object.key));
  }

  std::uint64_t unpack_workspace_bytes(std::uint32_t block,
                                       std::span<const std::byte> stored) const override {
    const auto exact = ipc_workspace_bytes(stored);
    // Damage is found when the block is unpacked.
    return exact && !stored.empty() ? *exact : 2 * block_at(block).raw_bytes;
  }

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(out.size() == columns().size());
    HEADRACE_TRY(check_whole(bytes.block, index));
    if (bytes.unpacked == nullptr) return corrupt_sample(bytes.block, index, "was not unpacked");
    const Status status = static_cast<const UnpackedTable*>(bytes.unpacked)->cut(index, out);
    return status.ok() ? Status() : corrupt_sample(bytes.block, index, status.message());
  }

 private:
  Result<std::shared_ptr<const UnpackedTable>> decode_rows(std::uint32_t block,
                                                           std::span<const std::byte> stored,
                                                           SlabArena& arena) const {
    HEADRACE_TRY(check_sizes(stored));
    const RowSchema& schema = layout_.schemas[layout_.schema_of_shard[block_at(block).shard]];
    TableBuilder builder(columns(), {}, arena);
    HEADRACE_TRY(
        unpack_ipc(schema.spec, std::as_bytes(std::span(schema.message)), stored, builder));
    HEADRACE_TRY_ASSIGN(auto table, builder.finish());
    if (table->row_count() != block_at(block).sample_count) {
      return Status(Code::kCorrupt, fmt::format("{} rows, its index says {}", table->row_count(),
                                                block_at(block).sample_count));
    }
    return table;
  }

  // Compressed buffers say what they inflate to; pyarrow believes them.
  static Status check_sizes(std::span<const std::byte> stored) {
    std::uint64_t inflated = 0;
    for (auto rest = stored; !rest.empty();) {
      HEADRACE_TRY_ASSIGN(const IpcMessage message, next_ipc_message(rest));
      inflated += message.inflated_bytes;
    }
    const std::uint64_t most = stored.size() * kMostInflation + kAlwaysInflatedBytes;
    if (inflated <= most) return Status();
    return Status(Code::kCorrupt,
                  fmt::format("{} bytes say that they inflate to {}, of which at most {} are "
                              "believed",
                              stored.size(), inflated, most));
  }

  const LitDataLayout layout_;
};

// What an index must be for the classes above to read it.
Status check_index(const DatasetParts& parts, const LitDataLayout& layout) {
  const bool is_encrypted = layout.encryption != ChunkEncryption::kNone;
  for (const ShardRecord& shard : parts.view.shards()) {
    if (shard.sample_count == 0 || shard.is_broken) continue;
    const bool is_rows = shard.compression == Compression::kUnpacked;
    const bool is_own = shard.compression == Compression::kOwn;
    if (is_rows != (layout.kind == Kind::kRows) || is_own != is_encrypted ||
        (is_rows && shard.frame_count == 0)) {
      return Status(Code::kCorrupt,
                    fmt::format("{}: its index mixes kinds of LitData chunks", parts.url));
    }
  }
  return Status();
}

Status check_columns(const DatasetParts& parts, const DatasetOptions& options) {
  for (const Column& column : parts.view.columns()) {
    if (!is_pickled_leaf(column) || options.allow_unsafe) continue;
    return Status(Code::kUnsupported,
                  fmt::format("{}: column '{}' is pickled, which can run any code when unpacked; "
                              "allow_unsafe lets its bytes through",
                              parts.url, column.name));
  }
  return Status();
}

}  // namespace

Result<std::shared_ptr<const Dataset>> make_litdata_dataset(DatasetParts parts,
                                                            const DatasetOptions& options) {
  auto layout = parse_litdata_layout(parts.view.layout(), parts.view.shards().size());
  if (!layout) return std::move(layout).error().annotate(parts.url);
  HEADRACE_TRY(check_index(parts, *layout));
  HEADRACE_TRY(check_columns(parts, options));
  if (layout->kind == Kind::kTokens) {
    if (options.tokens_per_sample != 0 && options.tokens_per_sample != layout->tokens_per_sample) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: its index was made for tokens_per_sample={}, not {}; make it "
                                "anew",
                                parts.url, layout->tokens_per_sample, options.tokens_per_sample));
    }
    return make_fixed_dataset(std::move(parts));
  }
  if (layout->kind == Kind::kRows)
    return DatasetPtr(std::make_shared<RowDataset>(std::move(parts), *std::move(layout)));
  if (layout->encryption == ChunkEncryption::kNone)
    return DatasetPtr(std::make_shared<ItemDataset>(std::move(parts)));
  if (options.password.empty()) {
    return Status(Code::kDenied, fmt::format("{}: is encrypted; password= and password_salt= of "
                                             "litdata's key file open it",
                                             parts.url));
  }
  HEADRACE_TRY_ASSIGN(const FernetKey key,
                      FernetKey::derive(options.password, options.password_salt));
  return DatasetPtr(std::make_shared<EncryptedDataset>(std::move(parts), key, layout->encryption));
}

}  // namespace headrace::detail
