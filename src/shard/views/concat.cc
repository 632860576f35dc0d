// Blocks, shards and samples of the parts follow each other; a number of ours is the part's plus
// what lies before it, and the part is found by binary search. Keys get the part's number in
// front, which is how a router finds the store (route_stores()).
//
// Columns are decided when the view is made: for each part which of its columns is ours, or that
// it has none. A part whose columns are ours, in our order, is cut straight into the caller's
// cells.
//
// A growing view has the fingerprint of its first part: what is added later must not make old
// states those of another dataset.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "base/check.h"
#include "base/mutex.h"
#include "headrace/views.h"

namespace headrace::detail {
namespace {

/// Columns of one part at most: their cells are cut on the stack.
constexpr std::size_t kMaxColumns = 256;
constexpr std::size_t kAbsent = ~std::size_t{0};

/// Keys with "<part>/" before them. Made when first asked for and kept: views of them live as long
/// as the dataset. Threads: any.
class KeyTable {
 public:
  std::string_view prefixed(std::size_t part, std::string_view key) HEADRACE_EXCLUDES(mutex_) {
    // By address: a dataset's keys stay where they are.
    const Name name{key.data(), key.size(), part};
    MutexLock lock(mutex_);
    auto& text = keys_[name];
    if (!text) text = std::make_unique<const std::string>(fmt::format("{}/{}", part, key));
    return *text;
  }

 private:
  struct Name {
    const char* data;
    std::size_t size;
    std::size_t part;
    bool operator==(const Name&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Name& name) const noexcept {
      return XXH3_64bits(&name, sizeof(name));
    }
  };
  Mutex mutex_;
  std::unordered_map<Name, std::unique_ptr<const std::string>, Hash> keys_
      HEADRACE_GUARDED_BY(mutex_);
};

struct Part {
  std::shared_ptr<const Dataset> dataset;
  std::uint32_t first_block = 0;
  std::uint32_t first_shard = 0;
  std::uint64_t first_sample = 0;
  /// Column of the part for each of ours, or kAbsent.
  std::vector<std::size_t> columns;
  bool is_direct = false;  ///< Its columns are ours, in our order.
};

class ConcatDataset final : public Dataset {
 public:
  ConcatDataset(std::vector<Part> parts, std::vector<Column> columns, std::string fingerprint,
                std::string version_fingerprint)
      : parts_(std::move(parts)),
        columns_(std::move(columns)),
        fingerprint_(std::move(fingerprint)),
        version_fingerprint_(std::move(version_fingerprint)) {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const Part& part = parts_[p];
      for (BrokenShard shard : part.dataset->broken_shards()) {
        shard.key = fmt::format("{}/{}", p, shard.key);
        shard.first_sample += shard.sample_count == 0 ? 0 : part.first_sample;
        broken_.push_back(std::move(shard));
      }
      for (const CutEnd& end : part.dataset->cut_ends())
        cut_ends_.push_back({fmt::format("{}/{}", p, end.key), end.cut_bytes});
      url_ += (url_.empty() ? "" : " + ") + part.dataset->url();
      sample_count_ += part.dataset->sample_count();
      stored_bytes_ += part.dataset->stored_bytes();
      largest_block_bytes_ = std::max(largest_block_bytes_, part.dataset->largest_block_bytes());
    }
  }

  Format format() const noexcept override { return Format::kSamples; }
  const std::string& url() const noexcept override { return url_; }
  const std::vector<Column>& columns() const noexcept override { return columns_; }
  std::uint64_t sample_count() const noexcept override { return sample_count_; }
  std::uint64_t stored_bytes() const noexcept override { return stored_bytes_; }
  const std::string& fingerprint() const noexcept override { return fingerprint_; }
  const std::string& version_fingerprint() const noexcept override { return version_fingerprint_; }
  std::uint64_t largest_block_bytes() const noexcept override { return largest_block_bytes_; }

  std::uint32_t shard_count() const noexcept override {
    const Part& last = parts_.back();
    return last.first_shard + last.dataset->shard_count();
  }
  Shard shard(std::uint32_t index) const override {
    const std::size_t p = find(&Part::first_shard, index);
    Shard shard = parts_[p].dataset->shard(index - parts_[p].first_shard);
    shard.key = keys_.prefixed(p, shard.key);
    shard.first_sample += parts_[p].first_sample;
    return shard;
  }

  std::span<const BrokenShard> broken_shards() const noexcept override { return broken_; }
  std::span<const CutEnd> cut_ends() const noexcept override { return cut_ends_; }

  std::uint32_t block_count() const noexcept override {
    const Part& last = parts_.back();
    return last.first_block + last.dataset->block_count();
  }
  Block block(std::uint32_t index) const override {
    const Part& part = part_of_block(index);
    Block block = part.dataset->block(index - part.first_block);
    block.shard += part.first_shard;
    block.first_sample += part.first_sample;
    return block;
  }
  std::uint32_t block_of(std::uint64_t position) const override {
    const Part& part = parts_[find(&Part::first_sample, position)];
    return part.first_block + part.dataset->block_of(position - part.first_sample);
  }

  std::uint64_t append_extents(std::uint32_t block, std::uint32_t begin, std::uint32_t end,
                               std::vector<Extent>& out) const override {
    const std::size_t p = find(&Part::first_block, block);
    const std::size_t old_size = out.size();
    const std::uint64_t size =
        parts_[p].dataset->append_extents(block - parts_[p].first_block, begin, end, out);
    for (std::size_t i = old_size; i < out.size(); ++i) out[i].key = keys_.prefixed(p, out[i].key);
    return size;
  }
  void append_layout(std::uint32_t block, std::string& out) const override {
    const Part& part = part_of_block(block);
    part.dataset->append_layout(block - part.first_block, out);
  }
  bool is_compressed(std::uint32_t block) const override {
    const Part& part = part_of_block(block);
    return part.dataset->is_compressed(block - part.first_block);
  }
  Status decompress(std::uint32_t block, std::span<const std::byte> stored,
                    std::span<std::byte> raw) const override {
    const Part& part = part_of_block(block);
    return part.dataset->decompress(block - part.first_block, stored, raw);
  }
  bool is_unpacked(std::uint32_t block) const override {
    const Part& part = part_of_block(block);
    return part.dataset->is_unpacked(block - part.first_block);
  }
  Result<std::shared_ptr<const UnpackedBlock>> unpack(std::uint32_t block,
                                                      std::span<const std::byte> stored,
                                                      SlabArena& arena) const override {
    const Part& part = part_of_block(block);
    return part.dataset->unpack(block - part.first_block, stored, arena);
  }
  std::uint64_t unpack_workspace_bytes(std::uint32_t block,
                                       std::span<const std::byte> stored) const override {
    const Part& part = part_of_block(block);
    return part.dataset->unpack_workspace_bytes(block - part.first_block, stored);
  }
  Status verify(std::uint32_t block, std::span<const std::byte> stored) const override {
    const Part& part = part_of_block(block);
    return part.dataset->verify(block - part.first_block, stored);
  }

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(out.size() == columns_.size());
    const Part& part = part_of_block(bytes.block);
    BlockBytes inner = bytes;
    inner.block -= part.first_block;
    if (part.is_direct) return part.dataset->cut(inner, index, out);
    std::array<ColumnBytes, kMaxColumns> cells;
    HEADRACE_TRY(
        part.dataset->cut(inner, index, std::span(cells).first(part.dataset->columns().size())));
    for (std::size_t c = 0; c < out.size(); ++c)
      out[c] = part.columns[c] == kAbsent ? ColumnBytes() : cells[part.columns[c]];
    return {};
  }

 private:
  /// The last part that begins at or before `value`.
  template <class T, class Value>
  std::size_t find(T Part::*first, Value value) const noexcept {
    const auto after = std::upper_bound(parts_.begin(), parts_.end(), value,
                                        [&](Value v, const Part& part) { return v < part.*first; });
    return static_cast<std::size_t>(after - parts_.begin()) - 1;
  }
  const Part& part_of_block(std::uint32_t block) const noexcept {
    return parts_[find(&Part::first_block, block)];
  }

  const std::vector<Part> parts_;
  const std::vector<Column> columns_;
  const std::string fingerprint_;
  const std::string version_fingerprint_;
  std::string url_;
  std::vector<BrokenShard> broken_;
  std::vector<CutEnd> cut_ends_;
  std::uint64_t sample_count_ = 0;
  std::uint64_t stored_bytes_ = 0;
  std::uint64_t largest_block_bytes_ = 0;
  mutable KeyTable keys_;
};

Status bad(std::string what) { return Status(Code::kInvalidArgument, std::move(what)); }

/// Whether numbers of the column are times, dates or durations, whose unit the encoding alone says:
/// "timestamp[ms, tz=UTC]", "date32[day]". No other encoding of numbers has brackets.
bool has_unit(const Column& column) { return column.encoding.find('[') != std::string::npos; }

/// Whether values of both mean the same: one type and shape, or one encoding.
bool are_alike(const Column& a, const Column& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || a.fixed_size_bytes != b.fixed_size_bytes)
    return false;
  const bool are_numbers = !a.dtype.empty() && a.fixed_size_bytes > 0;
  return a.encoding == b.encoding || (are_numbers && !has_unit(a) && !has_unit(b));
}

bool is_wanted(const ConcatOptions& options, const std::string& name) {
  const std::vector<std::string>& wanted = options.wanted;
  const bool are_all = wanted.empty() || options.columns == ConcatColumns::kCommon ||
                       options.columns == ConcatColumns::kUnion;
  return are_all || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

std::size_t index_of(const std::vector<Column>& columns, const std::string& name) {
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const Column& column) { return column.name == name; });
  return found == columns.end() ? kAbsent : static_cast<std::size_t>(found - columns.begin());
}

std::string names_of(const std::vector<Column>& columns) {
  std::string names;
  for (const Column& column : columns) names += (names.empty() ? "" : ", ") + column.name;
  return names;
}

/// kInvalidArgument: columns of one name whose values mean different things.
Status check_alike(const Column& ours, const Column& theirs, const std::string& url) {
  if (!are_alike(ours, theirs)) {
    return bad(
        fmt::format("column '{}' is '{}' in {} and '{}' before it: columns of datasets as one must "
                    "agree; leave it out with columns=, the names of those to take",
                    ours.name, theirs.encoding, url, ours.encoding));
  }
  if (ours.classes == theirs.classes) return {};
  return bad(
      fmt::format("the labels '{}' of {} stand for other classes than those before it ({} and {}): "
                  "give all the same folders, or leave labels out",
                  ours.name, url, theirs.classes.size(), ours.classes.size()));
}

Status not_equal(const Dataset& part, const Dataset& first) {
  return bad(fmt::format(
      "{} has the columns {}; {} has {}: they must be equal, or say with columns= which to take "
      "(their names; of a mixture also common or union)",
      part.url(), names_of(part.columns()), first.url(), names_of(first.columns())));
}

/// Columns of the first part; of those that nobody wants, what is in nobody's way.
std::vector<Column> first_columns(const std::vector<std::shared_ptr<const Dataset>>& parts,
                                  const ConcatOptions& options) {
  std::vector<Column> columns = parts.front()->columns();
  std::erase_if(columns, [&](const Column& column) {
    if (is_wanted(options, column.name)) return false;
    if (options.columns == ConcatColumns::kWanted) return true;
    return !std::all_of(parts.begin(), parts.end(), [&](const auto& part) {
      const std::size_t theirs = index_of(part->columns(), column.name);
      return theirs != kAbsent && check_alike(column, part->columns()[theirs], part->url()).ok();
    });
  });
  return columns;
}

Result<std::vector<Column>> merge_columns(const std::vector<std::shared_ptr<const Dataset>>& parts,
                                          const ConcatOptions& options) {
  const ConcatColumns rule = options.columns;
  const bool are_equal = rule == ConcatColumns::kEqual || rule == ConcatColumns::kWanted;
  const Dataset& first = *parts.front();
  std::vector<Column> columns = first_columns(parts, options);
  for (const auto& part : parts) {
    const std::vector<Column>& theirs = part->columns();
    if (theirs.size() > kMaxColumns)
      return bad(fmt::format("{} has {} columns; datasets as one may have {}", part->url(),
                             theirs.size(), kMaxColumns));
    for (const Column& column : theirs) {
      const std::size_t ours = index_of(columns, column.name);
      if (ours != kAbsent) {
        HEADRACE_TRY(check_alike(columns[ours], column, part->url()));
      } else if (rule == ConcatColumns::kUnion) {
        columns.push_back(column);
      } else if (are_equal && is_wanted(options, column.name)) {
        return not_equal(*part, first);
      }
    }
    const auto lacks = [&](const Column& column) {
      return index_of(theirs, column.name) == kAbsent;
    };
    if (rule == ConcatColumns::kCommon) std::erase_if(columns, lacks);
    if (are_equal && std::any_of(columns.begin(), columns.end(), lacks))
      return not_equal(*part, first);
  }
  for (const std::string& name : options.wanted) {
    if (rule == ConcatColumns::kWanted && index_of(columns, name) == kAbsent)
      return bad(fmt::format("columns: '{}' is not in {}; it has {}", name, first.url(),
                             names_of(first.columns())));
  }
  if (columns.empty()) return bad("the datasets have no column in common");
  return columns;
}

using FingerprintOf = const std::string& (Dataset::*)() const noexcept;

std::string fingerprint_of(const std::vector<std::shared_ptr<const Dataset>>& parts,
                           const std::vector<Column>& columns, const ConcatOptions& options,
                           FingerprintOf of) {
  if (options.is_growing) return (*parts.front().*of)();
  std::string text = "headrace concat 1";
  for (const auto& part : parts) text += "\n" + (*part.*of)();
  for (const Column& column : columns) text += "\n" + column.name;
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace
}  // namespace headrace::detail

namespace headrace {

Result<std::shared_ptr<const Dataset>> concat_datasets(
    std::vector<std::shared_ptr<const Dataset>> parts, const ConcatOptions& options) {
  using namespace detail;
  if (parts.empty()) return bad("no datasets to make one of");
  HEADRACE_TRY_ASSIGN(auto columns, merge_columns(parts, options));
  std::string fingerprint = fingerprint_of(parts, columns, options, &Dataset::fingerprint);
  std::string versions = fingerprint_of(parts, columns, options, &Dataset::version_fingerprint);
  std::vector<Part> placed;
  Part next;
  for (auto& dataset : parts) {
    if (dataset->sample_count() == 0) return bad(dataset->url() + " has no samples");
    Part part = next;
    part.is_direct = dataset->columns().size() == columns.size();
    for (std::size_t c = 0; c < columns.size(); ++c) {
      part.columns.push_back(index_of(dataset->columns(), columns[c].name));
      part.is_direct = part.is_direct && part.columns.back() == c;
    }
    next.first_block += dataset->block_count();
    next.first_shard += dataset->shard_count();
    next.first_sample += dataset->sample_count();
    part.dataset = std::move(dataset);
    placed.push_back(std::move(part));
  }
  return std::shared_ptr<const Dataset>(std::make_shared<const ConcatDataset>(
      std::move(placed), std::move(columns), std::move(fingerprint), std::move(versions)));
}

}  // namespace headrace
