#include <algorithm>

#include "base/check.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/formats/raw/raw_driver.h"
#include "shard/formats/raw/raw_layout.h"
#include "shard/formats/text/row_cutter.h"

namespace headrace::detail {
namespace {

// Column 0 is the file's bytes, column 1 its key; then come its label, or the fields of its record.
class RawDataset final : public IndexedDataset {
 public:
  RawDataset(DatasetParts parts, std::unique_ptr<const RowCutter> rows)
      : IndexedDataset(std::move(parts)),
        rows_(std::move(rows)),
        has_labels_(view().layout() == kFolderLabels) {
    if (!has_labels_) return;
    for (std::size_t i = 0; i < classes().size(); ++i)
      labels_.push_back(static_cast<std::int64_t>(i));
  }

  std::uint64_t append_extents(std::uint32_t block, std::uint32_t begin, std::uint32_t end,
                               std::vector<Extent>& out) const override {
    const ShardRecord& shard = shard_of(block);
    const std::uint64_t first = first_in_shard(block);
    // Sizes of a broken index may not rise; the buffer is no larger for it.
    const std::uint64_t from = view().begin_of(shard, first + begin);
    const std::uint64_t total = std::max(from, view().end_of(shard, first + end - 1)) - from;
    std::uint64_t target = 0;
    const std::size_t count_before = out.size();
    for (std::uint64_t i = first + begin; i < first + end; ++i) {
      const auto [file_begin, file_end] = view().range_of(shard, i);
      const std::uint64_t length = std::min(file_end - file_begin, total - target);
      if (length == 0) continue;  // Nothing to ask the store for.
      const IndexObject object = view().object(i);
      out.push_back({object.key, object.etag, 0, length, target, length == file_end - file_begin});
      target += length;
    }
    if (index_status().ok()) return target;
    // Some of it may be wrong; sample_bytes() then says why.
    out.resize(count_before);
    return 0;
  }

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == columns().size());
    HEADRACE_TRY_ASSIGN(const auto sample, sample_bytes(bytes, index));
    const std::string_view key = view().object(first_in_shard(bytes.block) + index).key;
    out[0] = {sample, true};
    out[1] = {std::as_bytes(std::span(key)), true};
    if (rows_ != nullptr) return cut_row(bytes, index, out.subspan(2));
    return has_labels_ ? find_label(bytes, index, key, out[2]) : Status();
  }

 private:
  const std::vector<std::string>& classes() const noexcept { return columns()[2].classes; }

  Status cut_row(const BlockBytes& bytes, std::uint32_t index, std::span<ColumnBytes> out) const {
    const std::string_view row = view().key_of(block_at(bytes.block).first_sample + index);
    const Status status = rows_->cut(std::as_bytes(std::span(row)), out);
    return status.ok() ? Status() : corrupt_sample(bytes.block, index, status.message());
  }

  Status find_label(const BlockBytes& bytes, std::uint32_t index, std::string_view key,
                    ColumnBytes& out) const {
    const std::string_view folder = first_folder(key);
    const auto found = std::lower_bound(classes().begin(), classes().end(), folder);
    if (found == classes().end() || *found != folder)
      return corrupt_sample(bytes.block, index, "the index has no label for its folder");
    const auto label = static_cast<std::size_t>(found - classes().begin());
    out = {std::as_bytes(std::span(&labels_[label], 1)), true};
    return Status();
  }

  const std::unique_ptr<const RowCutter> rows_;
  const bool has_labels_;
  std::vector<std::int64_t> labels_;  ///< 0, 1, ...: what columns point at.
};

}  // namespace

Result<std::shared_ptr<const Dataset>> make_raw_dataset(DatasetParts parts) {
  auto row_layout = row_layout_of(parts.view.layout());
  if (!row_layout) return std::move(row_layout).error().annotate(parts.url);
  std::size_t column_count = parts.view.layout() == kFolderLabels ? 3 : 2;
  RowReader rows;
  if (!row_layout->empty()) {
    auto reader = make_row_reader(*row_layout);
    if (!reader) return std::move(reader).error().annotate(parts.url);
    rows = *std::move(reader);
    column_count += rows.column_count;
  }
  if (column_count != parts.view.columns().size())
    return Status(Code::kCorrupt, parts.url + ": the index has a broken layout of raw files");
  return std::shared_ptr<const Dataset>(
      std::make_shared<RawDataset>(std::move(parts), std::move(rows.cutter)));
}

}  // namespace headrace::detail
