// A cell of this view does not point at its bytes: they are put together from several documents
// when it is written into a batch. What a cell can carry is the block, the number of the sequence
// and the first document that was read, and from these gather() finds all again. Plans may
// therefore be dropped and made anew at any time; they are a function of lengths that do not
// change.
//
// - cut() checks everything that can be wrong with the bytes, as a writer can report nothing:
//   gather() may rely on it.
// - Documents of a block are packed together and with no others, so a sequence needs no bytes but
//   its block's. Blocks are thereby part of the fingerprint.
// - Blocks that make no sequence are left out; `inner` is the block of the documents.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <unordered_map>

#include "base/check.h"
#include "base/mutex.h"
#include "headrace/views.h"
#include "shard/views/pack_plan.h"
#include "shard/views/token_column.h"

namespace headrace::detail {
namespace {

/// Columns of the documents at most: their cells are cut on the stack.
constexpr std::size_t kMaxColumns = 256;
constexpr std::uint32_t kMaxLength = 1U << 24;
/// Plans kept, in bytes: 12 a document. Those of the blocks in memory are wanted again and again;
/// 128 blocks of 8 MiB with documents of 100 bytes take 123 MiB.
constexpr std::uint64_t kCacheBytes = std::uint64_t{256} << 20;
constexpr std::string_view kMethodNames[] = {"concatenate", "best_fit"};

enum : std::size_t { kTokens, kSegmentIds, kPositions, kColumnCount };

Status bad(std::string what) { return Status(Code::kInvalidArgument, std::move(what)); }

/// Lengths of the documents of one block. Errors: kCorrupt.
Result<std::vector<std::uint32_t>> lengths_of(const Dataset& documents, const TokenColumn& column,
                                              std::uint32_t block) {
  const Block info = documents.block(block);
  std::vector<std::uint32_t> lengths(info.sample_count);
  std::vector<Extent> extents;
  for (std::uint32_t i = 0; i < info.sample_count; ++i) {
    extents.clear();
    const std::uint64_t size = documents.append_extents(block, i, i + 1, extents);
    const auto count = column.count_of(size);
    if (!count) {
      return Status(Code::kCorrupt,
                    fmt::format("{}: sample {} of {} bytes holds no whole tokens of {}",
                                documents.url(), info.first_sample + i, size, column.dtype()));
    }
    lengths[i] = *count;
  }
  return lengths;
}

class PackedDatasetImpl final : public PackedDataset {
 public:
  PackedDatasetImpl(std::shared_ptr<const Dataset> documents, TokenColumn column,
                    PackTokensOptions options)
      : documents_(std::move(documents)), column_(std::move(column)), options_(std::move(options)) {
    for (BrokenShard shard : documents_->broken_shards()) {
      shard.first_sample = shard.sample_count = 0;  // Positions are those of sequences.
      broken_.push_back(std::move(shard));
    }
    const std::uint64_t length = options_.length;
    const auto add = [&](const char* name, const std::string& dtype, std::uint64_t item_bytes) {
      Column added;
      added.name = name;
      added.encoding = fmt::format("ndarray:{}:{}", dtype, length);
      added.dtype = dtype;
      added.shape = {length};
      added.fixed_size_bytes = length * item_bytes;
      columns_.push_back(std::move(added));
    };
    add("tokens", column_.dtype(), column_.item_bytes());
    add("segment_ids", "int32", 4);
    add("positions", "int32", 4);
  }

  /// Plans every block once. Errors: kCorrupt, kUnsupported, kInvalidArgument (no sequence).
  Status plan_all();

  const PackReport& report() const noexcept override { return report_; }
  Format format() const noexcept override { return Format::kSamples; }
  const std::string& url() const noexcept override { return documents_->url(); }
  const std::vector<Column>& columns() const noexcept override { return columns_; }
  std::uint64_t sample_count() const noexcept override { return report_.sequences; }
  std::uint64_t stored_bytes() const noexcept override { return documents_->stored_bytes(); }
  const std::string& fingerprint() const noexcept override { return fingerprint_; }
  const std::string& version_fingerprint() const noexcept override { return version_fingerprint_; }
  std::uint64_t largest_block_bytes() const noexcept override {
    return documents_->largest_block_bytes();
  }

  std::uint32_t shard_count() const noexcept override { return documents_->shard_count(); }
  Shard shard(std::uint32_t index) const override {
    Shard shard = documents_->shard(index);
    shard.first_sample = first_of_shard(index);
    shard.sample_count = first_of_shard(index + 1) - shard.first_sample;
    return shard;
  }

  std::span<const BrokenShard> broken_shards() const noexcept override { return broken_; }
  std::span<const CutEnd> cut_ends() const noexcept override { return documents_->cut_ends(); }

  std::uint32_t block_count() const noexcept override {
    return static_cast<std::uint32_t>(blocks_.size());
  }
  Block block(std::uint32_t index) const override {
    const PackedBlock& packed = blocks_[index];
    Block block = documents_->block(packed.inner);
    block.sample_count = packed.sequence_count;
    block.first_sample = packed.first_sequence;
    // What its samples take once they are cut.
    block.raw_bytes = 0;
    for (const Column& column : columns_)
      block.raw_bytes += column.fixed_size_bytes * packed.sequence_count;
    return block;
  }
  std::uint32_t block_of(std::uint64_t position) const override {
    const auto after = std::upper_bound(
        blocks_.begin(), blocks_.end(), position,
        [](std::uint64_t p, const PackedBlock& block) { return p < block.first_sequence; });
    return static_cast<std::uint32_t>(after - blocks_.begin()) - 1;
  }

  std::uint64_t append_extents(std::uint32_t block, std::uint32_t begin, std::uint32_t end,
                               std::vector<Extent>& out) const override {
    const auto range = plan_of(block)->documents(begin, end);
    return documents_->append_extents(blocks_[block].inner, range.begin, range.end, out);
  }
  bool is_compressed(std::uint32_t) const override { return false; }
  Status decompress(std::uint32_t, std::span<const std::byte>,
                    std::span<std::byte>) const override {
    return bad("blocks of packed tokens are not compressed");
  }
  Status verify(std::uint32_t block, std::span<const std::byte> stored) const override {
    return documents_->verify(blocks_[block].inner, stored);
  }

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override;

 private:
  struct PackedBlock {
    const PackedDatasetImpl* dataset = nullptr;  ///< For the writers.
    std::uint64_t first_sequence = 0;
    std::uint32_t inner = 0;
    std::uint32_t sequence_count = 0;
  };
  using PlanPtr = std::shared_ptr<const PackPlan>;

  std::uint64_t first_of_shard(std::uint32_t shard) const {
    const auto found = std::lower_bound(blocks_.begin(), blocks_.end(), shard,
                                        [this](const PackedBlock& block, std::uint32_t s) {
                                          return documents_->block(block.inner).shard < s;
                                        });
    return found == blocks_.end() ? report_.sequences : found->first_sequence;
  }
  PlanPtr plan_of(std::uint32_t block) const HEADRACE_EXCLUDES(mutex_);
  /// Of the block that a cell lies in.
  static PlanPtr plan_of(const ColumnBytes& cell);
  /// The tokens of a piece; nullopt when the document is not as long as the index says.
  std::optional<std::span<const std::byte>> tokens_of(const BlockBytes& inner,
                                                      const PackPiece& piece,
                                                      std::uint32_t document_tokens) const;
  /// The end of the documents from `begin` on that take `size_bytes` once read. There is no room
  /// for it in a cell.
  std::uint32_t read_end(const PackedBlock& block, std::uint32_t begin,
                         std::uint64_t size_bytes) const;
  std::string make_fingerprint(const std::string& documents) const;

  static void write_tokens(const ColumnBytes& cell, std::span<std::byte> out) noexcept;
  static void write_segment_ids(const ColumnBytes& cell, std::span<std::byte> out) noexcept;
  static void write_positions(const ColumnBytes& cell, std::span<std::byte> out) noexcept;
  void gather(const PackedBlock& block, const ColumnBytes& cell, std::span<std::byte> out) const;

  const std::shared_ptr<const Dataset> documents_;
  const TokenColumn column_;
  const PackTokensOptions options_;
  std::vector<BrokenShard> broken_;
  std::vector<Column> columns_;
  std::vector<PackedBlock> blocks_;  ///< Blocks with at least one sequence.
  PackReport report_;
  std::string fingerprint_;
  std::string version_fingerprint_;

  struct Kept {
    PlanPtr plan;
    std::list<std::uint32_t>::iterator use;
  };
  mutable Mutex mutex_;
  mutable std::unordered_map<std::uint32_t, Kept> kept_ HEADRACE_GUARDED_BY(mutex_);
  mutable std::list<std::uint32_t> uses_ HEADRACE_GUARDED_BY(mutex_);  ///< Latest first.
  mutable std::uint64_t kept_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

Status PackedDatasetImpl::plan_all() {
  for (std::uint32_t b = 0; b < documents_->block_count(); ++b) {
    if (documents_->is_compressed(b)) {
      return Status(Code::kUnsupported,
                    fmt::format("{}: the lengths of documents in compressed shards are not known "
                                "before they are read; packing needs plain shards",
                                documents_->url()));
    }
    HEADRACE_TRY_ASSIGN(const auto lengths, lengths_of(*documents_, column_, b));
    const std::uint64_t first = report_.sequences;
    const PackPlan plan = PackPlan::make(lengths, options_, &report_);
    if (plan.sequence_count() == 0) continue;
    blocks_.push_back({this, first, b, plan.sequence_count()});
  }
  if (blocks_.empty())
    return bad(fmt::format("{}: its {} tokens make no sequence of {}", documents_->url(),
                           report_.document_tokens, options_.length));
  fingerprint_ = make_fingerprint(documents_->fingerprint());
  version_fingerprint_ = make_fingerprint(documents_->version_fingerprint());
  return {};
}

std::string PackedDatasetImpl::make_fingerprint(const std::string& documents) const {
  std::string text =
      fmt::format("headrace packed 1\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", documents, options_.length,
                  options_.column, pack_method_name(options_.method), options_.pad_token,
                  options_.min_piece, options_.drop_partial, column_.dtype());
  // Documents of one block are packed together, so the blocks are part of what the samples are.
  for (const PackedBlock& block : blocks_)
    text += fmt::format("\n{} {}", block.inner, block.sequence_count);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

PackedDatasetImpl::PlanPtr PackedDatasetImpl::plan_of(const ColumnBytes& cell) {
  const auto* block = static_cast<const PackedBlock*>(cell.context);
  const PackedDatasetImpl& dataset = *block->dataset;
  return dataset.plan_of(static_cast<std::uint32_t>(block - dataset.blocks_.data()));
}

PackedDatasetImpl::PlanPtr PackedDatasetImpl::plan_of(std::uint32_t block) const {
  {
    MutexLock lock(mutex_);
    if (const auto found = kept_.find(block); found != kept_.end()) {
      uses_.splice(uses_.begin(), uses_, found->second.use);
      return found->second.plan;
    }
  }
  auto lengths = lengths_of(*documents_, column_, blocks_[block].inner);
  HEADRACE_CHECK(lengths);  // They were good when the dataset was opened, and do not change.
  auto plan = std::make_shared<const PackPlan>(PackPlan::make(*lengths, options_, nullptr));
  MutexLock lock(mutex_);
  if (const auto found = kept_.find(block); found != kept_.end()) return found->second.plan;
  uses_.push_front(block);
  kept_.emplace(block, Kept{plan, uses_.begin()});
  kept_bytes_ += plan->memory_bytes();
  while (kept_bytes_ > kCacheBytes && uses_.size() > 1) {
    const auto oldest = kept_.find(uses_.back());
    kept_bytes_ -= oldest->second.plan->memory_bytes();
    kept_.erase(oldest);
    uses_.pop_back();
  }
  return plan;
}

std::optional<std::span<const std::byte>> PackedDatasetImpl::tokens_of(
    const BlockBytes& inner, const PackPiece& piece, std::uint32_t document_tokens) const {
  std::array<ColumnBytes, kMaxColumns> cells;
  const auto used = std::span(cells).first(documents_->columns().size());
  if (!documents_->cut(inner, piece.document, used).ok()) return std::nullopt;
  const ColumnBytes& cell = used[column_.index()];
  if (!cell.present || cell.writer != nullptr) return std::nullopt;
  const auto tokens = column_.tokens_in(cell.bytes, document_tokens);
  if (!tokens) return std::nullopt;
  return tokens->subspan(std::size_t{piece.begin} * column_.item_bytes(),
                         std::size_t{piece.length} * column_.item_bytes());
}

std::uint32_t PackedDatasetImpl::read_end(const PackedBlock& block, std::uint32_t begin,
                                          std::uint64_t size_bytes) const {
  std::uint32_t low = begin + 1, high = documents_->block(block.inner).sample_count;
  std::vector<Extent> extents;
  while (low < high) {
    extents.clear();
    const std::uint32_t middle = high - (high - low) / 2;
    if (documents_->append_extents(block.inner, begin, middle, extents) <= size_bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

Status PackedDatasetImpl::cut(const BlockBytes& bytes, std::uint32_t index,
                              std::span<ColumnBytes> out) const {
  HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == kColumnCount);
  const PackedBlock& block = blocks_[bytes.block];
  const PlanPtr plan = plan_of(bytes.block);
  const auto range = plan->documents(bytes.begin, bytes.end);
  std::vector<Extent> extents;
  const std::uint64_t size_bytes =
      documents_->append_extents(block.inner, range.begin, range.end, extents);
  // A cell's bytes end where those of its documents do: gather() tells their end by it.
  const auto read = bytes.bytes.first(std::min<std::uint64_t>(size_bytes, bytes.bytes.size()));
  const BlockBytes inner{block.inner, range.begin, range.end, read, nullptr};
  for (const PackPiece& piece : plan->pieces(index)) {
    extents.clear();
    const auto tokens = column_.count_of(
        documents_->append_extents(block.inner, piece.document, piece.document + 1, extents));
    if (read.size() == size_bytes && tokens && tokens_of(inner, piece, *tokens)) continue;
    return Status(Code::kCorrupt,
                  fmt::format("{}: sample {}: column '{}' does not hold the tokens that its size "
                              "in the index tells",
                              url(), documents_->block(block.inner).first_sample + piece.document,
                              options_.column));
  }
  const std::uint64_t argument = std::uint64_t{range.begin} << 32 | index;
  constexpr ColumnBytes::Writer kWriters[] = {write_tokens, write_segment_ids, write_positions};
  for (std::size_t c = 0; c < kColumnCount; ++c) {
    out[c] = {.bytes = c == kTokens ? read : std::span<const std::byte>(),
              .present = true,
              .writer = kWriters[c],
              .value_bytes = columns_[c].fixed_size_bytes,
              .context = &block,
              .argument = argument};
  }
  return {};
}

void PackedDatasetImpl::gather(const PackedBlock& block, const ColumnBytes& cell,
                               std::span<std::byte> out) const {
  const auto index = static_cast<std::uint32_t>(cell.argument);
  const auto first_document = static_cast<std::uint32_t>(cell.argument >> 32);
  const PlanPtr plan = plan_of(cell);
  const BlockBytes inner{block.inner, first_document,
                         read_end(block, first_document, cell.bytes.size()), cell.bytes, nullptr};
  const std::uint32_t item_bytes = column_.item_bytes();
  std::size_t at = 0;
  std::vector<Extent> extents;
  for (const PackPiece& piece : plan->pieces(index)) {
    extents.clear();
    const auto count = column_.count_of(
        documents_->append_extents(block.inner, piece.document, piece.document + 1, extents));
    const auto tokens = tokens_of(inner, piece, count.value_or(0));
    HEADRACE_CHECK(tokens);  // cut() found the same in the same bytes.
    std::memcpy(out.data() + at, tokens->data(), tokens->size());
    at += tokens->size();
  }
  std::array<std::byte, 8> pad;
  std::memcpy(pad.data(), &options_.pad_token, sizeof(options_.pad_token));
  for (; at < out.size(); at += item_bytes) std::memcpy(out.data() + at, pad.data(), item_bytes);
}

void PackedDatasetImpl::write_tokens(const ColumnBytes& cell, std::span<std::byte> out) noexcept {
  const auto* block = static_cast<const PackedBlock*>(cell.context);
  block->dataset->gather(*block, cell, out);
}

void PackedDatasetImpl::write_segment_ids(const ColumnBytes& cell,
                                          std::span<std::byte> out) noexcept {
  const PlanPtr plan = plan_of(cell);
  std::memset(out.data(), 0, out.size());
  std::byte* at = out.data();
  std::int32_t segment = 0;
  for (const PackPiece& piece : plan->pieces(static_cast<std::uint32_t>(cell.argument))) {
    ++segment;
    for (std::uint32_t i = 0; i < piece.length; ++i, at += 4) std::memcpy(at, &segment, 4);
  }
}

void PackedDatasetImpl::write_positions(const ColumnBytes& cell,
                                        std::span<std::byte> out) noexcept {
  const PlanPtr plan = plan_of(cell);
  std::memset(out.data(), 0, out.size());
  std::byte* at = out.data();
  for (const PackPiece& piece : plan->pieces(static_cast<std::uint32_t>(cell.argument))) {
    for (std::uint32_t i = 0; i < piece.length; ++i, at += 4) std::memcpy(at, &i, 4);
  }
}

Status check_options(const Dataset& documents, const PackTokensOptions& options) {
  if (options.length < 2 || options.length > kMaxLength)
    return bad(fmt::format("sequences of {} tokens: from 2 to {} there may be", options.length,
                           kMaxLength));
  if (options.min_piece < 1 || options.min_piece > options.length)
    return bad(fmt::format("min_piece is {}, not from 1 to the length {}", options.min_piece,
                           options.length));
  if (options.drop_partial && options.method != PackMethod::kConcatenate)
    return bad("drop_partial goes with method concatenate: best_fit fills sequences differently");
  if (documents.columns().size() > kMaxColumns)
    return bad(fmt::format("{} has {} columns; packing takes up to {}", documents.url(),
                           documents.columns().size(), kMaxColumns));
  return {};
}

Status check_pad_token(const TokenColumn& column, std::int64_t token) {
  const std::uint32_t bits = 8 * column.item_bytes();
  const bool fits = column.is_signed()
                        ? bits == 64 || (token >= -(std::int64_t{1} << (bits - 1)) &&
                                         token < std::int64_t{1} << (bits - 1))
                        : token >= 0 && (bits == 64 || token < std::int64_t{1} << bits);
  if (fits) return {};
  return bad(fmt::format("pad_token {} is no {}", token, column.dtype()));
}

}  // namespace
}  // namespace headrace::detail

namespace headrace {

std::string_view pack_method_name(PackMethod method) noexcept {
  return detail::kMethodNames[static_cast<std::size_t>(method)];
}

Result<PackMethod> parse_pack_method(std::string_view name) {
  for (std::size_t i = 0; i < std::size(detail::kMethodNames); ++i) {
    if (detail::kMethodNames[i] == name) return static_cast<PackMethod>(i);
  }
  return detail::bad(fmt::format("method '{}' is unknown; there are concatenate, best_fit", name));
}

Result<std::shared_ptr<const PackedDataset>> pack_tokens(std::shared_ptr<const Dataset> documents,
                                                         const PackTokensOptions& options) {
  HEADRACE_TRY(detail::check_options(*documents, options));
  HEADRACE_TRY_ASSIGN(auto column, detail::TokenColumn::create(*documents, options));
  HEADRACE_TRY(detail::check_pad_token(column, options.pad_token));
  auto packed =
      std::make_shared<detail::PackedDatasetImpl>(std::move(documents), std::move(column), options);
  HEADRACE_TRY(packed->plan_all());
  return std::shared_ptr<const PackedDataset>(std::move(packed));
}

}  // namespace headrace
