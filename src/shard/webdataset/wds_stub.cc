#include "shard/build.h"
#include "shard/indexed_dataset.h"
namespace headrace::detail {
Result<std::string> build_webdataset_index(const BuildContext&, const std::vector<ObjectInfo>&) {
  return Status(Code::kUnsupported, "webdataset: not yet");
}
std::shared_ptr<const Dataset> make_webdataset(DatasetParts parts) {
  return make_mds_dataset(std::move(parts));
}
}  // namespace headrace::detail
