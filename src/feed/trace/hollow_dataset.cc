#include "feed/trace/hollow_dataset.h"

#include <algorithm>

namespace headrace::feed {

HollowDataset::HollowDataset(std::shared_ptr<const Dataset> inner) : inner_(std::move(inner)) {
  std::uint64_t largest = 0;
  for (const Column& column : inner_->columns())
    largest = std::max(largest, column.fixed_size_bytes);
  zeros_.resize(largest);
}

Result<std::shared_ptr<const UnpackedBlock>> HollowDataset::unpack(std::uint32_t,
                                                                   std::span<const std::byte>,
                                                                   SlabArena&) const {
  return std::shared_ptr<const UnpackedBlock>(std::make_shared<UnpackedBlock>());
}

Status HollowDataset::cut(const BlockBytes&, std::uint32_t, std::span<ColumnBytes> out) const {
  const std::vector<Column>& columns = inner_->columns();
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = {.bytes = std::span(zeros_).first(columns[i].fixed_size_bytes), .present = true};
  }
  return {};
}

}  // namespace headrace::feed
