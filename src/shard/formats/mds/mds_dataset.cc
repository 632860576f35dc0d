#include <fmt/format.h>

#include "base/check.h"
#include "shard/dataset/indexed_dataset.h"
#include "shard/formats/mds/mds_driver.h"
#include "shard/formats/mds/mds_lines.h"
#include "shard/formats/mds/mds_shard.h"

namespace headrace::detail {
namespace {

class MdsDataset final : public IndexedDataset {
 public:
  explicit MdsDataset(DatasetParts parts) : IndexedDataset(std::move(parts)), layout_(columns()) {}

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == columns().size());
    if (has_compressed() && is_compressed(bytes.block)) return cut_inflated(bytes, index, out);
    if (layout_.is_fixed()) {
      HEADRACE_TRY(check_whole(bytes.block, index));
      const std::uint64_t size = layout_.sample_bytes();
      const std::uint64_t from = size * (index - bytes.begin);
      if (from + size > bytes.bytes.size())
        return corrupt_sample(bytes.block, index, "lies outside its block");
      layout_.cut_fixed(bytes.bytes.data() + from, out);
      return Status();
    }
    HEADRACE_TRY_ASSIGN(const auto sample, sample_bytes(bytes, index));
    return finish(bytes.block, index, layout_.cut(sample, out));
  }

 private:
  Status cut_inflated(const BlockBytes& bytes, std::uint32_t index,
                      std::span<ColumnBytes> out) const {
    auto sample = mds_sample(bytes.bytes, shard_of(bytes.block).sample_count, index);
    if (!sample) return corrupt_sample(bytes.block, index, sample.error().message());
    return finish(bytes.block, index, layout_.cut(*sample, out));
  }
  Status finish(std::uint32_t block, std::uint32_t index, bool fits) const {
    if (fits) return Status();
    return corrupt_sample(block, index, "column sizes do not add up to the sample");
  }

  const MdsLayout layout_;
};

}  // namespace

Result<std::shared_ptr<const Dataset>> make_mds_dataset(DatasetParts parts) {
  auto split = parse_mds_layout(parts.view.layout());
  if (!split) return std::move(split).error().annotate(parts.url);
  if (split->kind == MdsSplit::Kind::kNone)
    return std::shared_ptr<const Dataset>(std::make_shared<MdsDataset>(std::move(parts)));
  return std::shared_ptr<const Dataset>(
      std::make_shared<CutterDataset<MdsLineCutter>>(std::move(parts), *std::move(split)));
}

}  // namespace headrace::detail
