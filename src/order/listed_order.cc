// Orders given sample by sample: lane b is block b, its one window the whole block.
#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"
#include "headrace/order.h"

namespace headrace {
namespace {

/// Finds the block of a position: a table of the first block of each equal stretch of positions,
/// about one stretch a block, then a search among the blocks that begin in the stretch.
class BlockSearch {
 public:
  explicit BlockSearch(std::span<const std::uint32_t> block_samples) {
    const std::size_t count = block_samples.size();
    first_.resize(count + 1);
    for (std::size_t i = 0; i < count; ++i) first_[i + 1] = first_[i] + block_samples[i];
    while ((first_.back() >> shift_) > count) ++shift_;
    stretch_.resize((first_.back() >> shift_) + 2);
    std::uint32_t block = 0;
    for (std::size_t i = 0; i < stretch_.size(); ++i) {
      while (block + 1 < count && first_[block + 1] <= std::uint64_t{i} << shift_) ++block;
      stretch_[i] = block;
    }
  }

  std::uint32_t operator()(std::uint64_t position) const noexcept {
    const std::size_t stretch = position >> shift_;
    const auto begin = first_.begin() + stretch_[stretch];
    const auto end = first_.begin() + stretch_[stretch + 1] + 1;
    return static_cast<std::uint32_t>(std::upper_bound(begin, end, position) - first_.begin()) - 1;
  }
  std::uint64_t first(std::size_t block) const noexcept { return first_[block]; }
  std::size_t block_count() const noexcept { return first_.size() - 1; }
  std::uint64_t sample_count() const noexcept { return first_.back(); }

 private:
  std::vector<std::uint64_t> first_;  ///< Dataset position of each block, and N.
  std::uint32_t shift_ = 0;           ///< A stretch is 2^shift positions.
  std::vector<std::uint32_t> stretch_;
};

class ListedOrder final : public EpochOrder {
 public:
  ListedOrder(OrderSpec spec, std::span<const std::uint32_t> block_samples, std::uint64_t epoch,
              std::shared_ptr<const SampleList> list)
      : spec_(std::move(spec)), epoch_(epoch), list_(std::move(list)), blocks_(block_samples) {}

  const OrderSpec& spec() const noexcept override { return spec_; }
  std::uint64_t epoch() const noexcept override { return epoch_; }
  std::uint64_t sample_count() const noexcept override { return list_->size(); }
  LanePosition locate(std::uint64_t t, const Segment&) const override {
    HEADRACE_DCHECK(t < list_->size());
    std::int64_t id = -1;
    list_->read(t, {&id, 1});
    return place_of(id);
  }
  void locate_run(std::uint64_t t, const Segment&, std::span<LanePosition> out) const override {
    HEADRACE_DCHECK(t + out.size() <= list_->size());
    constexpr std::size_t kChunk = 256;
    std::int64_t ids[kChunk];
    for (std::size_t done = 0; done < out.size(); done += kChunk) {
      const std::size_t count = std::min(kChunk, out.size() - done);
      list_->read(t + done, {ids, count});
      for (std::size_t i = 0; i < count; ++i) out[done + i] = place_of(ids[i]);
    }
  }

  Window window_at(std::uint32_t lane, std::uint64_t position) const override {
    Window window;
    window.sample_count = blocks_.first(lane + std::size_t{1}) - blocks_.first(lane);
    HEADRACE_DCHECK(position < window.sample_count);
    static_cast<void>(position);
    window.shuffled_count = window.sample_count;
    window.pieces.push_back(
        {.block = lane, .begin = 0, .end = static_cast<std::uint32_t>(window.sample_count)});
    window.is_shuffled = false;
    return window;
  }
  WindowSample sample_at(const Window&, std::uint64_t position) const override {
    return {.piece = 0, .sample_in_block = static_cast<std::uint32_t>(position)};
  }
  BlockSample find(const LanePosition& place) const override {
    return {.block = place.lane, .index = static_cast<std::uint32_t>(place.position)};
  }
  std::uint64_t block_first_sample(std::uint32_t block) const override {
    return blocks_.first(block);
  }
  std::uint64_t largest_window_weight(std::span<const std::uint64_t> block_bytes) const override {
    return *std::max_element(block_bytes.begin(), block_bytes.end());
  }

 private:
  LanePosition place_of(std::int64_t id) const noexcept {
    // Negative ids are empty slots. Ids beyond the end are errors of the list's maker; lists may
    // come from files, so they must not reach the search.
    const auto position = static_cast<std::uint64_t>(id);
    if (position >= blocks_.sample_count()) return {.lane = kNoLane, .position = 0};
    const std::uint32_t block = blocks_(position);
    return {.lane = block, .position = position - blocks_.first(block)};
  }

  const OrderSpec spec_;
  const std::uint64_t epoch_;
  const std::shared_ptr<const SampleList> list_;
  const BlockSearch blocks_;
};

}  // namespace

Result<std::shared_ptr<const EpochOrder>> create_listed_order(
    const OrderSpec& spec, std::span<const std::uint32_t> block_samples, std::uint64_t epoch,
    std::shared_ptr<const SampleList> list) {
  if (block_samples.empty()) return Status(Code::kInvalidArgument, "order: no blocks");
  // kNoLane is no block.
  if (block_samples.size() >= kNoLane) {
    return Status(Code::kInvalidArgument, "order: more than 2^32 - 2 blocks");
  }
  const auto empty = std::find(block_samples.begin(), block_samples.end(), 0U);
  if (empty != block_samples.end()) {
    return Status(
        Code::kInvalidArgument,
        "order: block " + std::to_string(empty - block_samples.begin()) + " has no samples");
  }
  return std::shared_ptr<const EpochOrder>(
      std::make_shared<const ListedOrder>(spec, block_samples, epoch, std::move(list)));
}

}  // namespace headrace
