#include <algorithm>

#include "base/check.h"
#include "headrace/order.h"

namespace headrace {

std::uint64_t BatchPlan::batch_count() const noexcept {
  const std::uint64_t left = sample_count - std::min(segment.start, sample_count);
  const std::uint64_t full = left / segment.global_batch;
  const bool has_rest = left % segment.global_batch != 0;
  return full + (has_rest && epoch_end != EpochEnd::kDrop ? 1 : 0);
}

BatchPlan::Slots BatchPlan::slots(std::uint64_t k) const noexcept {
  HEADRACE_DCHECK(k < batch_count() && rank < world_size && segment.global_batch % world_size == 0);
  const std::uint64_t start = segment.start + k * segment.global_batch;
  const std::uint64_t real = std::min(segment.global_batch, sample_count - start);
  // Slots shared out: all of them, or only the real ones of an incomplete batch under kUneven.
  const std::uint64_t shared = epoch_end == EpochEnd::kUneven ? real : segment.global_batch;
  const std::uint64_t begin = rank * shared / world_size;
  const std::uint64_t end = (std::uint64_t{rank} + 1) * shared / world_size;
  return {.first = start + begin,
          .count = static_cast<std::uint32_t>(end - begin),
          .end = start + real,
          .batch_start = start};
}

std::uint64_t BatchPlan::Slots::sample(std::uint32_t i) const noexcept {
  const std::uint64_t t = first + i;
  return t < end ? t : batch_start + (t - batch_start) % (end - batch_start);
}

std::uint64_t BatchPlan::t_after(std::uint64_t k) const noexcept {
  return std::min(segment.start + (k + 1) * segment.global_batch, sample_count);
}

}  // namespace headrace
