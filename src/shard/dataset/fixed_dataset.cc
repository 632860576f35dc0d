#include "shard/dataset/fixed_dataset.h"

#include <fmt/format.h>

#include "base/check.h"

namespace headrace::detail {
namespace {

class FixedDataset final : public IndexedDataset {
 public:
  explicit FixedDataset(DatasetParts parts)
      : IndexedDataset(std::move(parts)), value_bytes_(columns()[0].fixed_size_bytes) {}

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == 1);
    if (has_compressed() && is_compressed(bytes.block)) {
      HEADRACE_TRY_ASSIGN(const auto sample, sample_bytes(bytes, index));
      out[0] = {sample, true};
      return Status();
    }
    HEADRACE_TRY(check_whole(bytes.block, index));
    const std::uint64_t from = value_bytes_ * (index - bytes.begin);
    if (from + value_bytes_ > bytes.bytes.size())
      return corrupt_sample(bytes.block, index, "lies outside its block");
    out[0] = {bytes.bytes.subspan(from, value_bytes_), true};
    return Status();
  }

 private:
  const std::uint64_t value_bytes_;
};

bool is_even(const ShardRecord& shard, std::uint64_t value_bytes) {
  return shard.has_bounds && !shard.has_gaps && shard.bounds.first_group == kNoGroups &&
         shard.bounds.stride == value_bytes;
}

}  // namespace

Result<std::shared_ptr<const Dataset>> make_fixed_dataset(DatasetParts parts) {
  const auto& columns = parts.view.columns();
  bool fits = columns.size() == 1 && columns[0].fixed_size_bytes > 0;
  for (const ShardRecord& shard : parts.view.shards())
    fits = fits && (shard.sample_count == 0 || is_even(shard, columns[0].fixed_size_bytes));
  if (!fits) {
    return Status(Code::kCorrupt,
                  fmt::format("{}: its index does not describe values of one size", parts.url));
  }
  return std::shared_ptr<const Dataset>(std::make_shared<FixedDataset>(std::move(parts)));
}

}  // namespace headrace::detail
