#include <algorithm>

#include "base/check.h"
#include "shard/indexed_dataset.h"

namespace headrace::detail {
namespace {

// Column 0 is the file's bytes, column 1 its key.
class RawDataset final : public IndexedDataset {
 public:
  using IndexedDataset::IndexedDataset;

  std::uint64_t append_extents(std::uint32_t block, std::uint32_t begin, std::uint32_t end,
                               std::vector<Extent>& out) const override {
    const ShardRecord& shard = shard_of(block);
    const std::uint64_t first = first_in_shard(block);
    // Sizes of a broken index may not rise; the buffer is no larger for it.
    const std::uint64_t from = view().begin_of(shard, first + begin);
    const std::uint64_t total = std::max(from, view().end_of(shard, first + end - 1)) - from;
    std::uint64_t target = 0;
    for (std::uint64_t i = first + begin; i < first + end; ++i) {
      const auto [file_begin, file_end] = view().range_of(shard, i);
      const std::uint64_t length = std::min(file_end - file_begin, total - target);
      if (length == 0) continue;  // Nothing to ask the store for.
      const IndexObject object = view().object(i);
      out.push_back({object.key, object.etag, 0, length, target});
      target += length;
    }
    return target;
  }

  Status cut(const BlockBytes& bytes, std::uint32_t index,
             std::span<ColumnBytes> out) const override {
    HEADRACE_DCHECK(index >= bytes.begin && index < bytes.end && out.size() == 2);
    HEADRACE_TRY_ASSIGN(const auto sample, sample_bytes(bytes, index));
    const std::string_view key = view().object(first_in_shard(bytes.block) + index).key;
    out[0] = {sample, true};
    out[1] = {std::as_bytes(std::span(key)), true};
    return Status();
  }
};

}  // namespace

std::shared_ptr<const Dataset> make_raw_dataset(DatasetParts parts) {
  return std::make_shared<RawDataset>(std::move(parts));
}

}  // namespace headrace::detail
