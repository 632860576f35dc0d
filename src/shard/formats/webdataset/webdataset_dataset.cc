#include "base/check.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/formats/webdataset/sample_cutter.h"
#include "shard/formats/webdataset/webdataset_driver.h"

namespace headrace::detail {
namespace {

class WebDataset final : public IndexedDataset {
 public:
  explicit WebDataset(DatasetParts parts) : IndexedDataset(std::move(parts)), cutter_(columns()) {}

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == columns().size());
    HEADRACE_TRY_ASSIGN(const auto run, sample_bytes(bytes, index));
    const Status status = cutter_.cut(run, out);
    return status.ok() ? Status() : corrupt_sample(bytes.block, index, status.message());
  }

 private:
  const SampleCutter cutter_;
};

}  // namespace

std::shared_ptr<const Dataset> make_webdataset(DatasetParts parts) {
  return std::make_shared<WebDataset>(std::move(parts));
}

}  // namespace headrace::detail
