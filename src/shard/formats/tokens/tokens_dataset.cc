#include <fmt/format.h>

#include "base/check.h"
#include "shard/dataset/fixed_dataset.h"
#include "shard/formats/tokens/tokens_driver.h"

namespace headrace::detail {
namespace {

// Whole documents: one array of varying length a sample.
class DocumentDataset final : public IndexedDataset {
 public:
  using IndexedDataset::IndexedDataset;

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == 1);
    HEADRACE_TRY_ASSIGN(const auto sample, sample_bytes(bytes, index));
    out[0] = {sample, true};
    return Status();
  }
};

}  // namespace

Result<std::shared_ptr<const Dataset>> make_tokens_dataset(DatasetParts parts) {
  const auto& columns = parts.view.columns();
  if (columns.size() != 1)
    return Status(Code::kCorrupt, fmt::format("{}: its index is not of tokens", parts.url));
  if (columns[0].fixed_size_bytes > 0) return make_fixed_dataset(std::move(parts));
  return std::shared_ptr<const Dataset>(std::make_shared<DocumentDataset>(std::move(parts)));
}

}  // namespace headrace::detail
