#include <memory>

#include "base/check.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/formats/text/row_cutter.h"
#include "shard/formats/text/text_driver.h"

namespace headrace::detail {
namespace {

// Lines, JSON lines, separated values.
class TextDataset final : public IndexedDataset {
 public:
  TextDataset(DatasetParts parts, std::unique_ptr<const RowCutter> cutter)
      : IndexedDataset(std::move(parts)), cutter_(std::move(cutter)) {}

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == columns().size());
    HEADRACE_TRY_ASSIGN(const auto row, sample_bytes(bytes, index));
    const Status status = cutter_->cut(row, out);
    return status.ok() ? Status() : corrupt_sample(bytes.block, index, status.message());
  }

 private:
  const std::unique_ptr<const RowCutter> cutter_;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> make_text_dataset(DatasetParts parts) {
  auto reader = make_row_reader(parts.view.layout());
  if (!reader) return std::move(reader).error().annotate(parts.url);
  // A reader's columns are those of the schema; an index that disagrees with itself is broken.
  if (reader->column_count != parts.view.columns().size())
    return Status(Code::kCorrupt, parts.url + ": the index has a broken layout of lines");
  return std::shared_ptr<const Dataset>(
      std::make_shared<TextDataset>(std::move(parts), std::move(reader->cutter)));
}

}  // namespace headrace::detail
