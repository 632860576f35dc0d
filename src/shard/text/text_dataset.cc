#include <memory>

#include "base/check.h"
#include "shard/indexed_dataset.h"
#include "shard/text/line_cutter.h"

namespace headrace::detail {
namespace {

class TextDataset final : public IndexedDataset {
 public:
  TextDataset(DatasetParts parts, TextLayout layout)
      : IndexedDataset(std::move(parts)), cutter_(std::move(layout)) {}

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == columns().size());
    HEADRACE_TRY_ASSIGN(const auto line, sample_bytes(bytes, index));
    const Status status = cutter_.cut(line, out);
    return status.ok() ? Status() : corrupt_sample(bytes.block, index, status.message());
  }

 private:
  const LineCutter cutter_;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> make_text_dataset(DatasetParts parts) {
  auto layout = parse_text_layout(parts.view.layout());
  if (!layout) return std::move(layout).error().annotate(parts.url);
  // A reader's columns are those of the schema; an index that disagrees with itself is broken.
  if (text_columns(*layout).size() != parts.view.columns().size())
    return Status(Code::kCorrupt, parts.url + ": the index has a broken layout of lines");
  return std::shared_ptr<const Dataset>(
      std::make_shared<TextDataset>(std::move(parts), *std::move(layout)));
}

}  // namespace headrace::detail
