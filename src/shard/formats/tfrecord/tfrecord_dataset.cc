#include <memory>

#include "base/check.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/formats/tfrecord/example_cutter.h"
#include "shard/formats/tfrecord/record.h"
#include "shard/formats/tfrecord/tfrecord_driver.h"

namespace headrace::detail {
namespace {

class TfRecordDataset final : public IndexedDataset {
 public:
  TfRecordDataset(DatasetParts parts, ExampleLayout layout)
      : IndexedDataset(std::move(parts)),
        is_records_(layout.is_records),
        cutter_(std::move(layout)) {}

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == columns().size());
    HEADRACE_TRY_ASSIGN(const auto frame, sample_bytes(bytes, index));
    auto payload = open_record(frame);
    if (!payload) return corrupt_sample(bytes.block, index, payload.error().message());
    if (is_records_) {
      out[0] = {.bytes = *payload, .present = true};
      return Status();
    }
    const Status status = cutter_.cut(*payload, out);
    return status.ok() ? Status() : corrupt_sample(bytes.block, index, status.message());
  }

 private:
  const bool is_records_;
  const ExampleCutter cutter_;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> make_tfrecord_dataset(DatasetParts parts) {
  auto layout = parse_example_layout(parts.view.layout());
  if (!layout) return std::move(layout).error().annotate(parts.url);
  // A reader's columns are those of the schema; an index that disagrees with itself is broken.
  if (example_columns(*layout).size() != parts.view.columns().size())
    return Status(Code::kCorrupt, parts.url + ": the index has a broken layout of records");
  return std::shared_ptr<const Dataset>(
      std::make_shared<TfRecordDataset>(std::move(parts), *std::move(layout)));
}

}  // namespace headrace::detail
