#include "shard/dataset/indexed_dataset.h"
#include "shard/formats/webdataset/sample_cutter.h"
#include "shard/formats/webdataset/webdataset_driver.h"

namespace headrace::detail {
std::shared_ptr<const Dataset> make_webdataset(DatasetParts parts) {
  return std::make_shared<CutterDataset<SampleCutter>>(std::move(parts));
}

}  // namespace headrace::detail
